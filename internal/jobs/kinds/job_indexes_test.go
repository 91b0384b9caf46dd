package kinds

import "testing"

func TestCountIndexes(t *testing.T) {
	for name, tc := range map[string]struct {
		completed, failed string
		below, want       int64
	}{
		"none":                         {below: 5},
		"single ones and ranges":       {completed: "0,2-4,7", below: 10, want: 5},
		"those that failed, too":       {completed: "0", failed: "1", below: 3, want: 2},
		"each once":                    {completed: "0-5", failed: "3-8", below: 10, want: 9},
		"one inside of another":        {completed: "0-8", failed: "3-4,6", below: 10, want: 9},
		"beyond a job that is smaller": {completed: "0-99", failed: "200", below: 3, want: 3},
		"nonsense":                     {completed: "a,-1,3-,5-4,1-99999999999", failed: "-", below: 10},
		"more than can be listed":      {completed: "0-2147483647", below: 1 << 31, want: 1 << 31},
	} {
		if got := countIndexes(tc.below, tc.completed, tc.failed); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
