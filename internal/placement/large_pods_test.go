package placement

import (
	"fmt"
	"testing"
	"time"
)

// Small pods must not take the last whole node from the large ones that are known to come.
func TestLargePodsFitWhileThereIsCapacity(t *testing.T) {
	e := newEngine(t, Options{})
	const nodes = 40
	for i := range nodes {
		apply(t, e, NodeChanged{gpuNode(fmt.Sprintf("n%02d", i), 8, "T4", 16000)})
	}
	held := int64(0)
	for i := 0; held < nodes*8000*85/100; i++ {
		pod := sharePod(t, fmt.Sprintf("ns/%d", i), []int64{30, 45, 60, 70, 80, 100}[i%6])
		pod.Resources = map[string]int64{"cpu": int64(i%4+1) * 2000}
		large := i%30 == 29
		if large {
			pod.Containers[0].Cards = share(t, 800, 0)
		}
		node, err := e.Best(&pod)
		if err != nil {
			if large {
				t.Fatalf("eight cards refused with %d %% of all cards in use: %v", held/(nodes*80), err)
			}
			continue
		}
		if _, err := e.Assign(&pod, node, time.Time{}); err != nil {
			t.Fatal(err)
		}
		c := pod.Containers[0].Cards
		held += int64(c.Count) * c.Core
	}
}
