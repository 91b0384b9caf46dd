package queue

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// carryOut turns a plan into status writes; events and metrics follow a write
// that went through.
func (s *Shell) carryOut(plan admission.Plan) {
	for _, evict := range plan.Evict {
		s.decide(evict.Workload, evict.UID, s.evict(evict))
	}
	for _, admit := range plan.Admit {
		s.decide(admit.Workload, admit.UID, s.admit(admit))
	}
	for _, park := range plan.Park {
		s.decide(park.Workload, park.UID, s.park(park))
	}
}

func (s *Shell) admit(a admission.Admit) *change {
	return &change{
		decided: true,
		apply: func(wl *kueue.Workload, now time.Time) bool {
			workload.Admit(wl, a.Admission, nil, now)
			return true
		},
		done: func(wl *kueue.Workload) {
			queue := a.Admission.Queue
			waited := s.now().Sub(wl.CreationTimestamp.Time)
			s.options.Recorder.Eventf(wl, nil, corev1.EventTypeNormal, "Admitted", "Admit",
				"Admitted by ClusterQueue %s, wait time since creation was %.0fs", queue, waited.Seconds())
			s.options.Metrics.admitted.WithLabelValues(queue).Inc()
			s.options.Metrics.wait.WithLabelValues(queue).Observe(waited.Seconds())
		},
	}
}

func (s *Shell) evict(e admission.Evict) *change {
	return &change{
		decided: true,
		apply: func(wl *kueue.Workload, now time.Time) bool {
			if e.Reason == admission.ReasonPreempted {
				workload.Preempt(wl, string(e.Preempted), e.Message, now)
			} else {
				workload.Evict(wl, string(e.Reason), e.Message, now)
			}
			return true
		},
		done: func(wl *kueue.Workload) {
			s.options.Recorder.Eventf(wl, nil, corev1.EventTypeNormal, fmt.Sprintf("EvictedDueTo%s", e.Reason), "Evict", "%s", e.Message)
			s.options.Metrics.evicted.WithLabelValues(e.Queue, string(e.Reason)).Inc()
		},
	}
}

func (s *Shell) park(p admission.Park) *change {
	return &change{
		apply: func(wl *kueue.Workload, now time.Time) bool {
			return workload.Park(wl, string(p.Reason), p.Message, now)
		},
		done: func(wl *kueue.Workload) {
			s.options.Recorder.Eventf(wl, nil, corev1.EventTypeWarning, string(p.Reason), "Wait", "%s", p.Message)
		},
	}
}
