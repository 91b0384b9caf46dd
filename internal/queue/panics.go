package queue

import (
	"fmt"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A panic while one object is handled, evaluated or written must not stop the queue for all. The
// object is set aside until it changes; the others go on.

// Stages in which a panic is contained, as a metric's label.
const (
	stageHandle   = "handle"
	stageStep     = "step"
	stageEvaluate = "evaluate"
	stageWrite    = "write"
)

// handleSafely is handle; a panic sets the object aside.
func (s *Shell) handleSafely(m message) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		obj := m.object
		if m.written != nil {
			obj = m.written.sent.workload
		}
		s.contain(stageHandle, obj, v, debug.Stack())
	}()
	if wl, ok := m.object.(*kueue.Workload); ok && s.faults != nil {
		s.faults(stageHandle, workload.KeyOf(wl))
	}
	s.handle(m)
}

// guard runs what concerns one workload; a panic sets that workload aside.
func (s *Shell) guard(stage string, key admission.Key, work func()) {
	defer func() {
		if v := recover(); v != nil {
			var obj client.Object
			if t := s.workloads[key]; t != nil {
				obj = t.object
			}
			s.contain(stage, obj, v, debug.Stack())
		}
	}()
	if s.faults != nil {
		s.faults(stage, key)
	}
	work()
}

// contain reports a panic and sets the object aside, if it is a workload.
func (s *Shell) contain(stage string, obj client.Object, value any, stack []byte) {
	s.options.Metrics.Inc("elastic_contained_panics_total", stage)
	name := "none"
	if obj != nil {
		name = client.ObjectKeyFromObject(obj).String()
	}
	s.options.Log.Error(fmt.Errorf("panic: %v", value), "a defect concerns one object, which is set aside; please report it",
		"stage", stage, "object", name, "type", fmt.Sprintf("%T", obj), "stack", string(stack))
	if wl, ok := obj.(*kueue.Workload); ok {
		s.setAside(wl, value)
	}
}

// aside is a workload that is set aside, as of when it was.
type aside struct {
	uid        string
	generation int64
}

// setAside takes a workload from the engine until its spec changes, and tells its user. One with
// quota stays as the engine knows it: its quota counts until an event shows it without.
func (s *Shell) setAside(wl *kueue.Workload, value any) {
	key := workload.KeyOf(wl)
	t := s.workloads[key]
	if t == nil { // not even taken in
		t = &tracked{object: wl}
		s.workloads[key] = t
	}
	t.writing, t.next = nil, nil
	if workload.UsesQuota(wl) || s.isAside(wl) {
		return
	}
	s.aside[key] = aside{string(wl.UID), wl.Generation}
	s.engine.Apply(admission.WorkloadGone{Key: key})
	s.pendingReasons.drop(key)
	message := fmt.Sprintf("A defect in the queue concerns this workload (%v). It is set aside until its spec changes", value)
	s.recordEvent(wl, corev1.EventTypeWarning, "SetAside", "%s", message)
	s.startDecision(key, string(wl.UID), s.setPending(admission.Pending{
		Workload: key, UID: string(wl.UID), Reason: admission.ReasonMisconfigured, Message: message, Blocked: true,
	}))
}

// isAside says whether the workload is set aside as it is.
func (s *Shell) isAside(wl *kueue.Workload) bool {
	key := workload.KeyOf(wl)
	is, ok := s.aside[key]
	if ok && is != (aside{string(wl.UID), wl.Generation}) {
		delete(s.aside, key)
		return false
	}
	return ok
}

// reportPanics tells of defects that the engine contained: their workloads wait as misconfigured.
func (s *Shell) reportPanics(panics []admission.Panic) {
	for _, p := range panics {
		s.options.Metrics.Inc("elastic_contained_panics_total", stageEvaluate)
		s.options.Log.Error(fmt.Errorf("panic: %s", p.Value), "a defect concerns one workload, which is not admitted; please report it",
			"stage", stageEvaluate, "workload", p.Workload.String(), "stack", string(p.Stack))
		if t := s.workloads[p.Workload]; t != nil {
			s.recordEvent(t.object, corev1.EventTypeWarning, "SetAside", "A defect in the queue concerns this workload (%s)", p.Value)
		}
	}
}
