package world

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// The timing of preemption, as in a QueuePolicy; minRuntime is that by every rule.
var timings = map[string]func(*admission.Timing, time.Duration){
	policy.Delay:    func(t *admission.Timing, d time.Duration) { t.Delay = d },
	policy.Cooldown: func(t *admission.Timing, d time.Duration) { t.Cooldown = d },
	"preemption.minRuntime": func(t *admission.Timing, d time.Duration) {
		t.MinRuntime = admission.MinRuntime{WithinQueue: d, Reclaim: d, Borrowed: d}
	},
	policy.MinWithin:   func(t *admission.Timing, d time.Duration) { t.MinRuntime.WithinQueue = d },
	policy.MinReclaim:  func(t *admission.Timing, d time.Duration) { t.MinRuntime.Reclaim = d },
	policy.MinBorrowed: func(t *admission.Timing, d time.Duration) { t.MinRuntime.Borrowed = d },
}

// setTiming of a queue's preemption. What is not said is as without a policy.
func setTiming(field string) setter {
	return says(field, ofQueues(func(c *Cluster, q *admission.Queue, text string) error {
		spec := queuepolicy.QueuePolicySpec{Preemption: &queuepolicy.Preemption{Delay: ptr.To(queuepolicy.Duration(text))}} // all have the same bounds
		if err := policy.Check(&spec); err != nil {
			return err
		}
		d, err := time.ParseDuration(text)
		next := c.Options.Timing()
		if q.Timing != nil {
			next = *q.Timing
		}
		timings[field](&next, d)
		q.Timing = &next
		return err
	}))
}

// ofCohort sets what a queue has at all queues below a Cohort.
func ofCohort(set setter) setter {
	return func(c *Cluster, name, value string) (bool, error) {
		tree := c.tree()
		_, exists := tree.Cohorts[name]
		if name == "" || !exists && name != "*" {
			return false, nil
		}
		for i := range c.Queues {
			var above []string
			for at := c.Queues[i].Cohort; at != "" && !slices.Contains(above, at); at = tree.Cohorts[at] {
				above = append(above, at)
			}
			if slices.Contains(above, name) || name == "*" && len(above) > 0 {
				if _, err := set(c, c.Queues[i].Name, value); err != nil {
					return true, err
				}
			}
		}
		return true, nil
	}
}
