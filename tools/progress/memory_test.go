package main

import (
	"slices"
	"testing"
)

func TestLimits(t *testing.T) {
	for meminfo, want := range map[string][]string{
		"MemTotal: 1 kB\nMemAvailable:   4194304 kB\n": {"GOGC=off", "GOMEMLIMIT=1073741824"},
		"MemAvailable: 67108864 kB\n":                  {"GOGC=off", "GOMEMLIMIT=2147483648"},
		"MemAvailable: 2000000 kB\n":                   nil, // too little to be generous
		"MemAvailable: much\n":                         nil,
		"":                                             nil,
	} {
		if got := limits(meminfo, 2); !slices.Equal(got, want) {
			t.Errorf("of %q a process gets %v, not %v", meminfo, got, want)
		}
	}
}
