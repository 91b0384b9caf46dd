package queue

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// scheduleStep has the lifecycle of a workload looked at when all messages at hand are handled: its
// next step depends on its queues, which may come after it.
func (s *Shell) scheduleStep(t *tracked) {
	if !t.stepDue {
		t.stepDue = true
		s.stepsDue = append(s.stepsDue, t)
	}
}

func (s *Shell) takeSteps() {
	if s.allStepsDue {
		s.allStepsDue = false
		for _, t := range s.workloads {
			if workload.DependsOnQueues(t.object) {
				s.scheduleStep(t)
			}
		}
	}
	for _, t := range s.stepsDue {
		t.stepDue = false
		if s.workloads[workload.KeyOf(t.object)] == t {
			s.guard(stageStep, workload.KeyOf(t.object), func() { s.takeStep(t) })
		}
	}
	clear(s.stepsDue)
	s.stepsDue = s.stepsDue[:0]
}

// takeStep takes the next step of a workload's lifecycle, beside quota: it admits when checks are
// ready, evicts when pods do not become ready, requeues, deactivates and deletes. While a write is
// under way the step waits for its end.
func (s *Shell) takeStep(t *tracked) {
	if t.writing != nil || t.outdated || s.writeMet(t) || s.budgetStep(t) {
		return
	}
	step := s.nextStep(t.object)
	if step.Action != workload.SecondPassNow {
		delete(s.secondPass, workload.KeyOf(t.object))
	}
	switch step.Action {
	case workload.Wait:
		s.timers.set(workload.KeyOf(t.object), step.At)
	case workload.SecondPassNow:
		s.runSecondPass(t)
	case workload.ResetChecks, workload.ExplainNow:
		if !workload.HasReservation(t.object) {
			s.explainDue = append(s.explainDue, t)
			return
		}
		s.startWrite(t, s.step(step))
	case workload.Activate, workload.Deactivate:
		s.startWrite(t, &change{apply: step.Apply, write: writes.Active, done: func(wl *kueue.Workload) { s.stepEvent(wl, step) }})
	case workload.MarkParent:
		s.startWrite(t, &change{apply: step.Apply, write: writes.MarkParent})
	case workload.DeleteVariant:
		s.startWrite(t, &change{write: deleteAlone, last: true})
	case workload.DeleteNow:
		s.startWrite(t, &change{write: writes.Delete, last: true, done: func(wl *kueue.Workload) { s.stepEvent(wl, step) }})
	case workload.RemoveFinalizerNow:
		s.startWrite(t, &change{write: removeFinalizer, last: true})
	default:
		c := s.step(step)
		if step.ResetsRequeueState() && t.object.Status.RequeueState != nil {
			c.write = writes.StatusWithoutRequeueState
		}
		s.startWrite(t, c)
	}
}

// nextStep is the next one of a workload: that of its slices or its family, or what every workload asks for.
func (s *Shell) nextStep(wl *kueue.Workload) workload.Step {
	if step := s.replacedStep(wl); step.Action != workload.Wait {
		return step
	}
	family, settings := s.familyStep(wl), s.options.Lifecycle
	if family.Action != workload.Wait {
		return family
	}
	if s.isVariant(wl) { // its parent's affair
		settings.PodsReady, settings.RetainDeactivated = nil, nil
	}
	step := workload.NextStep(wl, s.queuesOf(wl), settings, s.now())
	step.At = inbox.Earlier(step.At, family.At)
	return step
}

// explainPending writes which checks pending workloads will have to pass, and that they are not admitted.
// It comes after decisions and reasons, which have that with them.
func (s *Shell) explainPending() {
	for _, t := range s.explainDue {
		if t.writing != nil || t.outdated || s.workloads[workload.KeyOf(t.object)] != t {
			continue // the step is looked at again after the write
		}
		s.guard(stageStep, workload.KeyOf(t.object), func() {
			step := s.nextStep(t.object)
			if step.Action == workload.ResetChecks || step.Action == workload.ExplainNow {
				s.startWrite(t, s.step(step))
			}
		})
	}
	clear(s.explainDue)
	s.explainDue = s.explainDue[:0]
}

// step is the change that takes a step of the lifecycle.
func (s *Shell) step(step workload.Step) *change {
	c := &change{apply: step.Apply, done: func(wl *kueue.Workload) {
		s.stepEvent(wl, step)
		if step.Action == workload.AdmitNow {
			s.placeAdmitted(wl)
		}
	}}
	if step.Action == workload.FinishNow {
		c.write = writes.FinishedStatus
	}
	return c
}

func deleteAlone(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	return wl, workload.Delete(ctx, c, wl)
}

func removeFinalizer(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	return wl, workload.RemoveFinalizer(ctx, c, wl)
}
