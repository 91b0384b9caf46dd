package queue

import (
	"container/heap"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
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
	step := workload.Next(t.object, s.statuses.queuesOf(t.object), s.options.Life, s.now())
	if step.Act != workload.PlaceNow {
		delete(s.late, workload.KeyOf(t.object))
	}
	switch step.Act {
	case workload.Wait:
		s.alarms.set(workload.KeyOf(t.object), step.At)
	case workload.PlaceNow:
		s.placeLate(t)
	case workload.Deactivate:
		s.start(t, &change{write: deactivate})
	case workload.Delete:
		s.start(t, &change{write: remove, ends: true, done: func(wl *kueue.Workload) { s.stepEvent(wl, step) }})
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
		c.write = writeEnd
	}
	return c
}

// deactivate takes a workload out of the line until someone puts it back.
func deactivate(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	written := wl.DeepCopy()
	err := c.Patch(ctx, written, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":false}}`)))
	return written, err
}

// remove deletes a workload that was kept long enough: a finished one alone, a
// deactivated one with its job, which would only ask for another workload.
func remove(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	if workload.IsFinished(wl) || len(wl.OwnerReferences) == 0 {
		return wl, workload.Remove(ctx, c, wl)
	}
	for _, owner := range wl.OwnerReferences {
		job := &metav1.PartialObjectMetadata{}
		job.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		job.Namespace, job.Name = wl.Namespace, owner.Name
		err := c.Delete(ctx, job, client.Preconditions{UID: &owner.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return wl, nil
}

func letGo(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	return wl, workload.LetGo(ctx, c, wl)
}

// writeEnd says a workload is finished, which otherwise its job says.
func writeEnd(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := workload.JobPatch(wl)
	if err != nil {
		return nil, err
	}
	return applyStatus(ctx, c, wl, patch, workload.JobManager)
}

// ring looks at the workloads whose time has come.
func (s *Shell) ring() {
	for now := s.now(); ; {
		key, due := s.alarms.due(now)
		if !due {
			return
		}
		if t := s.workloads[key]; t != nil {
			s.look(t)
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
func checksFor(cq *kueue.ClusterQueue, given func(kueue.ResourceFlavorReference) bool) []string {
	if cq == nil || cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var checks []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(rule.OnFlavors, given) {
			checks = append(checks, string(rule.Name))
		}
	}
	slices.Sort(checks)
	return slices.Compact(checks)
}
