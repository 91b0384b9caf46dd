package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/dependencies"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// Workloads that come after others. What a workload waits for has come true once it says so itself: that is written
// before the engine hears of it, so neither a restart nor the deletion of the others takes it back.

// updateDependencies notes what a workload says of others, and others of it.
func (s *Shell) updateDependencies(wl *kueue.Workload) {
	if dependencies.Asks(wl) {
		s.useDependencies()
	}
	if s.dependencies.Uses() {
		s.waitersDue = append(s.waitersDue, s.dependencies.Set(wl, s.mayWaitFor)...)
	}
}

// useDependencies notes all workloads once the first one comes after others.
func (s *Shell) useDependencies() {
	if s.dependencies.Uses() {
		return
	}
	s.dependencies.Use()
	for _, t := range s.workloads {
		s.waitersDue = append(s.waitersDue, s.dependencies.Set(t.object, s.mayWaitFor)...)
	}
}

// mayWaitFor says whether policies let a workload wait for those of another namespace.
func (s *Shell) mayWaitFor(wl *kueue.Workload, namespace string) bool {
	return s.objects.MayWaitFor(types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}, namespace)
}

// recheckDependencies asks policies again who may wait for whom.
func (s *Shell) recheckDependencies() {
	s.waitersDue = append(s.waitersDue, s.dependencies.Recheck(func(key admission.Key) *kueue.Workload {
		if t := s.workloads[key]; t != nil {
			return t.object
		}
		return nil
	}, s.mayWaitFor)...)
}

// updateWaiters looks again at workloads for which something has changed that they wait for, once all messages at hand
// are handled.
func (s *Shell) updateWaiters() {
	for _, key := range s.waitersDue {
		t := s.workloads[key]
		if t == nil {
			continue
		}
		s.guard(stageStep, key, func() {
			if len(s.dependencies.Of(key).Met) == 0 {
				s.reapply(t) // the words are others; what has come true is written first
			}
			s.scheduleStep(t)
		})
	}
	s.waitersDue = s.waitersDue[:0]
}

// awaits says what a workload waits for.
func (s *Shell) awaits(w *admission.Workload, wl *kueue.Workload) {
	if !dependencies.Asks(wl) {
		return
	}
	standing := s.dependencies.Of(w.Key)
	if s.workloads[w.Key] == nil {
		s.useDependencies()
		standing = s.dependencies.Consider(wl, s.mayWaitFor)
	}
	w.Awaits, w.AwaitsInVain = standing.Waits, standing.InVain
	if standing.Invalid != "" && w.Admission == nil && !w.Finished && w.Refused == "" {
		w.Refused = standing.Invalid
	}
}

// writeMet has a workload say what has come true of what it waits for, and reports whether there is anything to say.
func (s *Shell) writeMet(t *tracked) bool {
	met := s.dependencies.Of(workload.KeyOf(t.object)).Met
	if len(met) == 0 {
		return false
	}
	s.startWrite(t, &change{write: writes.Met, apply: func(wl *kueue.Workload, _ time.Time) bool {
		workload.SetMet(wl, met)
		return true
	}})
	return true
}
