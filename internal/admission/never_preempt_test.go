package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// saysSomething has a workload report a checkpoint, or that it can or cannot be swapped out, or change its mind about preemption.
func (w *world) saysSomething(wl Workload) {
	switch rapid.IntRange(0, 3).Draw(w.t, "says") {
	case 0, 1:
		wl.CheckpointedAt = w.now.Add(time.Duration(rapid.IntRange(-120, 60).Draw(w.t, "saved")) * time.Second)
	case 2:
		wl.NeverPreempt = !wl.NeverPreempt
	default:
		wl.Stays = !wl.Stays
	}
	w.workload(wl)
}

// Who asks not to be preempted is not preempted by its own queue, and is not admitted to more than nominal quota.
func TestNeverPreemptKeepsItsWordAndItsQuota(t *testing.T) {
	for _, name := range []string{"says", "says2", "says-drf", "says-usage"} {
		cfg := worldConfigs[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t, cfg)
				for range rapid.IntRange(1, 25).Draw(t, "steps") {
					w.step()
					safe := map[Key]bool{}
					for k, wl := range w.workloads {
						safe[k] = wl.NeverPreempt
					}
					p := w.decide()
					for _, v := range p.Evict {
						if v.Reason == ReasonPreempted && v.Preempted == ReasonInClusterQueue && safe[v.Workload] {
							t.Fatalf("%s was preempted by its own queue", v.Workload.Name)
						}
					}
					for _, a := range p.Admit {
						if q := w.e.queues[a.Admission.Queue]; safe[a.Workload] {
							checkWithinNominal(t, q, w.e.workloads[a.Workload])
						}
					}
					w.releaseSome()
				}
			})
		})
	}
}

// checkWithinNominal: those of a queue who asked not to be preempted have no more than its nominal quota of what one of
// them was just admitted for.
func checkWithinNominal(t *rapid.T, q *queue, admitted *workload) {
	for _, u := range admitted.usage {
		sum := int64(0)
		for _, o := range q.quotaReserved {
			if o.spec.NeverPreempt {
				sum += quota.AmountOf(o.usage, u.FR)
			}
		}
		if nominal := q.node.Cells[u.FR].Nominal; sum > nominal {
			t.Fatalf("%s was admitted although those like it then use %d of the %d of %s", admitted.spec.Name, sum, nominal, q.name)
		}
	}
}
