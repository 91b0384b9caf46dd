package queue

import (
	"container/heap"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// live does what the workload's life asks for beside quota: admits when its
// checks are ready, evicts when its pods do not come up, requeues, deactivates
// and deletes. While a write is under way it waits for its end.
func (s *Shell) live(t *tracked) {
	if t.writing != nil || t.outdated {
		return
	}
	now := s.now()
	step := workload.Next(t.object, s.options.Life, now)
	key := workload.KeyOf(t.object)
	switch step.Act {
	case workload.Wait:
		s.alarms.set(key, step.At)
	case workload.Deactivate:
		s.start(t, &change{write: deactivate})
	case workload.Delete:
		s.start(t, &change{write: remove})
	default:
		s.start(t, &change{apply: step.Take, done: func(wl *kueue.Workload) { s.tell(wl, step) }})
	}
}

// tell records an event about a step that was taken.
func (s *Shell) tell(wl *kueue.Workload, step workload.Step) {
	switch step.Act {
	case workload.AdmitNow:
		s.admittedEvent(wl)
	case workload.EvictNow:
		s.evictedEvent(wl, string(wl.Status.Admission.ClusterQueue), step.Reason, step.Message)
	case workload.Target:
		s.options.Recorder.Eventf(wl, nil, corev1.EventTypeWarning, step.Reason, "Deactivate", "%s", step.Message)
	}
}

// deactivate takes a workload out of the line until someone puts it back.
func deactivate(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	written := wl.DeepCopy()
	err := c.Patch(ctx, written, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`)))
	return written, err
}

// remove deletes a workload that was kept long enough.
func remove(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	return wl, c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID})
}

// ring looks at the workloads whose time has come.
func (s *Shell) ring() {
	for now := s.now(); ; {
		key, due := s.alarms.due(now)
		if !due {
			return
		}
		if t := s.workloads[key]; t != nil {
			s.live(t)
		}
	}
}

// alarms are times at which to look at a workload again. Of several for one
// workload the last one set counts.
type alarms struct {
	heap  alarmHeap
	times map[admission.Key]time.Time
}

type alarm struct {
	at  time.Time
	key admission.Key
}

func (a *alarms) set(key admission.Key, at time.Time) {
	if at.IsZero() {
		delete(a.times, key)
		return
	}
	if a.times == nil {
		a.times = map[admission.Key]time.Time{}
	}
	if a.times[key].Equal(at) {
		return
	}
	a.times[key] = at
	heap.Push(&a.heap, alarm{at, key})
}

// due takes one alarm whose time has come.
func (a *alarms) due(now time.Time) (admission.Key, bool) {
	for len(a.heap) > 0 && !a.heap[0].at.After(now) {
		first := heap.Pop(&a.heap).(alarm)
		if a.times[first.key].Equal(first.at) {
			delete(a.times, first.key)
			return first.key, true
		}
	}
	return admission.Key{}, false
}

// next is the earliest alarm; zero: none.
func (a *alarms) next() time.Time {
	for len(a.heap) > 0 {
		if first := a.heap[0]; a.times[first.key].Equal(first.at) {
			return first.at
		}
		heap.Pop(&a.heap)
	}
	return time.Time{}
}

type alarmHeap []alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)        { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// checksFor lists the admission checks a workload must pass: those its queue
// asks of every workload, and those of the flavors it was given.
func checksFor(cq *kueue.ClusterQueue, a *admission.Admission) []string {
	if cq == nil || cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	given := map[string]bool{}
	for _, set := range a.PodSets {
		for _, flavor := range set.Flavors {
			given[flavor] = true
		}
	}
	var checks []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		wanted := len(rule.OnFlavors) == 0
		for _, flavor := range rule.OnFlavors {
			wanted = wanted || given[string(flavor)]
		}
		if wanted {
			checks = append(checks, string(rule.Name))
		}
	}
	return checks
}
