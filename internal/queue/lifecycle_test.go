package queue

import (
	"strconv"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func version(name, resourceVersion string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Name, wl.ResourceVersion = name, resourceVersion
	return wl
}

func TestNewerComparesNumbers(t *testing.T) {
	if newer(version("a", "9"), version("a", "10")) || !newer(version("a", "10"), version("a", "9")) || newer(version("a", "9"), version("a", "9")) {
		t.Error("versions are numbers, not words")
	}
}

func TestAlarms(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := func(name string) admission.Key { return admission.Key{Name: name} }
	var a timers
	if !a.next().IsZero() {
		t.Error("no alarm is set")
	}
	a.set(key("late"), start.Add(time.Hour))
	a.set(key("moved"), start.Add(time.Second))
	a.set(key("moved"), start.Add(time.Minute))
	a.set(key("off"), start)
	a.set(key("off"), time.Time{})
	if got := a.next(); !got.Equal(start.Add(time.Minute)) {
		t.Errorf("next is %s, want the moved one", got)
	}
	if key, due := a.due(start.Add(time.Second)); due {
		t.Errorf("%s rang although it was moved or switched off", key)
	}
	if got, due := a.due(start.Add(2 * time.Hour)); !due || got != key("moved") {
		t.Errorf("first to ring is %v", got)
	}
	if got, due := a.due(start.Add(2 * time.Hour)); !due || got != key("late") {
		t.Errorf("second to ring is %v", got)
	}
	if got, due := a.due(start.Add(2 * time.Hour)); due {
		t.Errorf("%v rang twice", got)
	}
}

// As in Kueue, the queue itself finishes a slice whose replacement is admitted; then the new one counts alone,
// and less when its job shrinks.
func TestAdmittedSliceFinishesTheOneItReplaces(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("low", "main", "batch", 1, "1")
	p.submit("old", "main", "batch", 5, "1")
	p.submit("other", "main", "batch", 5, "1")
	bigger := p.workload("new", "main", "batch", 5, "1")
	bigger.Spec.PodSets[0].Count = 3
	bigger.Annotations = map[string]string{workload.ReplacesAnnotation: "ns/old"}
	p.see(bigger)
	if workload.IsFinished(p.written["old"]) || workload.IsAdmitted(p.written["new"]) {
		t.Fatal("the new one waits for what it preempts, and the old one runs on")
	}
	p.change("low", func(wl *kueue.Workload) { workload.Release(wl, "stopped", p.time) })
	if !workload.IsAdmitted(p.written["new"]) {
		t.Fatalf("the new one is not admitted: %+v", p.written["new"].Status.Conditions)
	}
	finished := apimeta.FindStatusCondition(p.written["old"].Status.Conditions, kueue.WorkloadFinished)
	if finished == nil || finished.Reason != kueue.WorkloadSliceReplaced {
		t.Fatalf("Finished of the old one is %+v", finished)
	}
	if workload.IsFinished(p.written["other"]) || workload.IsAdmitted(p.written["low"]) {
		t.Error("others are as they were")
	}
	p.change("new", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 2 })
	if !workload.IsAdmitted(p.written["low"]) {
		t.Error("the quota of pods that the job no longer has is not free")
	}
}

// A job that grows before its first workload's quota is written preempts for what it has more, not for all of it.
func TestSliceThatComesTogetherWithTheOneItReplaces(t *testing.T) {
	for name, together := range map[string]bool{"together": true, "while it is written": false} {
		t.Run(name, func(t *testing.T) {
			p := newHarness(t)
			p.oneQueue()
			p.submit("low", "main", "batch", -1, "2")
			old, bigger := p.workload("old", "main", "batch", 1, "2"), p.workload("new", "main", "batch", 0, "2")
			bigger.Spec.PodSets[0].Count = 2
			bigger.Annotations = map[string]string{workload.ReplacesAnnotation: "ns/old"}
			if together {
				p.see(old, bigger)
			} else {
				p.version += 2
				old.ResourceVersion, bigger.ResourceVersion = strconv.Itoa(p.version-1), strconv.Itoa(p.version)
				p.written["old"], p.written["new"] = old, bigger
				p.turn([]message{{object: old}})
				p.turn([]message{{object: bigger}})
				p.see()
			}
			if !workload.IsEvicted(p.written["low"]) {
				t.Errorf("nothing is preempted: %+v", p.written["new"].Status.Conditions)
			}
			if workload.IsEvicted(p.written["old"]) {
				t.Error("the one that it replaces is preempted")
			}
		})
	}
}

// One that waits for its checks finishes the one it replaces as soon as it has its quota, as in Kueue, unless slices are kept.
func TestSliceThatWaitsForItsChecks(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		p := newHarness(t)
		p.options.KeepSlices = keeps
		p.oneQueue()
		p.see(check("slow", "example.com/slow", true), queueObject("cq", "", "slow"))
		p.submit("old", "main", "batch", 5, "1")
		p.change("old", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
		bigger := p.workload("new", "main", "batch", 5, "1")
		bigger.Spec.PodSets[0].Count = 3
		bigger.Annotations = map[string]string{workload.ReplacesAnnotation: "ns/old"}
		p.see(bigger)
		if is := p.written["new"]; !workload.HasReservation(is) || workload.IsAdmitted(is) {
			t.Fatalf("it has its quota and waits: %v", is.Status.Conditions)
		}
		if workload.IsFinished(p.written["old"]) == keeps {
			t.Errorf("keeps %t: the old one is finished %t", keeps, !keeps)
		}
		p.change("new", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
		if !workload.IsAdmitted(p.written["new"]) || !workload.IsFinished(p.written["old"]) {
			t.Errorf("keeps %t: the new one stands for the job", keeps)
		}
	}
}

// As in Kueue, a workload that is deactivated loses its quota when it is evicted, not only when its pods are gone.
func TestDeactivatedWorkloadHoldsNoQuota(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("one", "main", "batch", 1, "4")
	p.submit("two", "main", "batch", 1, "4")
	if !workload.IsAdmitted(p.written["one"]) || workload.HasReservation(p.written["two"]) {
		t.Fatal("one has all there is")
	}
	p.change("one", func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) })
	if one := p.written["one"]; !workload.IsEvicted(one) || !workload.HasReservation(one) {
		t.Errorf("it is evicted, and its pods are not gone: %v", one.Status.Conditions)
	}
	if !workload.IsAdmitted(p.written["two"]) {
		t.Errorf("the other has to wait: %v", p.written["two"].Status.Conditions)
	}
	if usage := p.statuses.Usage().ClusterQueue("cq"); usage.WithQuota != 1 || usage.Admitted != 1 {
		t.Errorf("%d have quota, %d are admitted", usage.WithQuota, usage.Admitted)
	}
	// Active again before its pods are gone, it waits for that, and for quota.
	p.change("two", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	p.change("one", func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) })
	if one := p.written["one"]; !workload.IsEvicted(one) || p.statuses.Usage().ClusterQueue("cq").WithQuota != 0 {
		t.Errorf("it has quota before its pods are gone: %v", one.Status.Conditions)
	}
	p.change("one", func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) })
	p.change("one", func(wl *kueue.Workload) { workload.Release(wl, "stopped", p.time) })
	reserved := apimeta.FindStatusCondition(p.written["one"].Status.Conditions, kueue.WorkloadQuotaReserved)
	if reserved.Status != metav1.ConditionFalse || reserved.Reason != string(admission.ReasonDeactivated) {
		t.Errorf("in the end it says %s %s: %s", reserved.Status, reserved.Reason, reserved.Message)
	}
}
