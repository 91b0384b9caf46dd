package main

import (
	"fmt"
	"os"
	"strings"
)

// class is a kind of workload of the baseline of Kueue's suite.
type class struct {
	name                              string
	count, everyMs, runMs, prio, cpus int
}

var baseline = []class{
	{"small", 350, 100, 200, 50, 1},
	{"medium", 100, 500, 500, 100, 5},
	{"large", 50, 1200, 1000, 200, 20},
}

const cohorts, queues = 5, 6

// scaled is how many of the class a queue gets.
func (c class) scaled(scale float64) int { return max(1, int(float64(c.count)*scale)) }

// writeWork writes the generator's file: the baseline with a share of its
// workloads, arriving as fast. It returns how many there are.
func writeWork(path string, scale float64) (int, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `cohorts:
- className: cohort
  count: %d
  queuesSets:
  - className: cq
    count: %d
    nominalQuota: 20
    borrowingLimit: 100
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
    workloadsSets:
`, cohorts, queues)
	total := 0
	for _, c := range baseline {
		count := c.scaled(scale)
		total += cohorts * queues * count
		fmt.Fprintf(&b, `    - count: %d
      creationIntervalMs: %d
      workloads:
      - {className: %s, runtimeMs: %d, priority: %d, request: %d}
`, count, c.everyMs, c.name, c.runMs, c.prio, c.cpus)
	}
	return total, os.WriteFile(path, []byte(b.String()), 0o600)
}
