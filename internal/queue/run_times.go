package queue

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// How long workloads are taken to run that do not say so themselves: what a QueuePolicy says is learned, or its default.

// expectedRunTime is how long a workload is taken to run; 0: nobody knows.
func (s *Shell) expectedRunTime(w *admission.Workload) time.Duration {
	if !s.policies.estimates || w.Finished {
		return 0
	}
	percent, byDefault := s.estimatesOf(w)
	return cmp.Or(s.runTimes.Quantile(w, percent), byDefault)
}

// RunTime is how long a workload is taken to run that does not say so itself; 0: nobody knows. What is not known now is after a while: a
// replica that does not lead, or has not seen the workload, returns an error.
func (s *Shell) RunTime(ctx context.Context, key types.NamespacedName) (run time.Duration, err error) {
	known := false
	err = s.ask(ctx, func() {
		if t := s.workloads[admission.Key{Namespace: key.Namespace, Name: key.Name}]; t != nil {
			w := s.forEngineAlone(t.object)
			known, run = true, w.ExpectedRunTime
		}
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return run, err
}

func (s *Shell) estimatesOf(w *admission.Workload) (percent int, byDefault time.Duration) {
	return s.objects.RunTimesOf(types.NamespacedName{Namespace: w.Namespace, Name: w.LocalQueue})
}

// learn notes a workload that succeeded, and tells the engine of those like it if more is known of them now. It notes
// others, too, whom that may concern.
func (s *Shell) learn(wl *kueue.Workload, w *admission.Workload) {
	if !s.policies.estimates {
		return
	}
	percent, _ := s.estimatesOf(w)
	s.expectAnew(s.runTimes.Learn(w, workload.RanFor(wl), percent))
}

// unlearn forgets a workload that was deleted.
func (s *Shell) unlearn(wl *kueue.Workload) {
	if !s.policies.estimates {
		return
	}
	w := s.forEngineAlone(wl)
	percent, _ := s.estimatesOf(&w)
	before := s.runTimes.Quantile(&w, percent)
	if s.runTimes.Gone(w.Key); s.runTimes.Quantile(&w, percent) != before {
		s.expectAnew(s.runTimes.Others(&w))
	}
}

// expectAnew tells the engine of workloads whose expected run time changed.
func (s *Shell) expectAnew(keys []admission.Key) {
	for _, key := range keys {
		if t := s.workloads[key]; t != nil && !s.isAside(t.object) {
			s.engine.Apply(admission.WorkloadChanged{Workload: s.forEngine(t.object)})
		}
	}
}

// estimatesChanged learns everything anew once policies have changed that say how long workloads run.
func (s *Shell) estimatesChanged() {
	before := s.policies.estimates
	s.policies.estimates = s.objects.EstimatesRunTimes()
	if !before && !s.policies.estimates {
		return
	}
	s.runTimes = engineview.RunTimes{}
	for _, finished := range []bool{true, false} { // what is learned comes first
		for _, t := range s.workloads {
			if workload.IsFinished(t.object) == finished {
				s.tellEngine(t.object)
			}
		}
	}
}
