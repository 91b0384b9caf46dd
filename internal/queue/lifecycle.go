package queue

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// look has a workload looked at when all messages at hand are taken in: what
// its life asks for depends on its queues, which may come after it.
func (s *Shell) look(t *tracked) {
	if !t.looked {
		t.looked = true
		s.looked = append(s.looked, t)
	}
}

func (s *Shell) liveAll() {
	if s.lookAll {
		s.lookAll = false
		for _, t := range s.workloads {
			if workload.MindsQueues(t.object) {
				s.look(t)
			}
		}
	}
	for _, t := range s.looked {
		t.looked = false
		if s.workloads[workload.KeyOf(t.object)] == t {
			s.live(t)
		}
	}
	clear(s.looked)
	s.looked = s.looked[:0]
}

// live does what the workload's life asks for beside quota: admits when its
// checks are ready, evicts when its pods do not come up, requeues, deactivates
// and deletes. While a write is under way it waits for its end.
func (s *Shell) live(t *tracked) {
	if t.writing != nil || t.outdated {
		return
	}
	step := workload.Next(t.object, s.objects.QueuesOf(t.object), s.options.Lifecycle, s.now())
	if step.Act != workload.PlaceNow {
		delete(s.late, workload.KeyOf(t.object))
	}
	switch step.Act {
	case workload.Wait:
		s.alarms.set(workload.KeyOf(t.object), step.At)
	case workload.PlaceNow:
		s.placeLate(t)
	case workload.Deactivate:
		s.start(t, &change{write: writes.Deactivate})
	case workload.Delete:
		s.start(t, &change{write: writes.Delete, ends: true, done: func(wl *kueue.Workload) { s.stepEvent(wl, step) }})
	case workload.LetGoNow:
		s.start(t, &change{write: letGo, ends: true})
	default:
		s.start(t, s.step(step))
	}
}

// step is the change that takes a step of a workload's life.
func (s *Shell) step(step workload.Step) *change {
	c := &change{apply: step.Take, done: func(wl *kueue.Workload) {
		s.stepEvent(wl, step)
		if step.Act == workload.AdmitNow {
			s.settleLate(wl)
		}
	}}
	if step.Act == workload.FinishNow {
		c.write = writes.FinishedStatus
	}
	return c
}

func letGo(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	return wl, workload.LetGo(ctx, c, wl)
}
