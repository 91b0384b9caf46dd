package web

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// A job's life: created, refused, admitted, evicted and for whom, its pod swapped out. What a condition and an event both say is said once.
func TestTimeline(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(minute int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(minute) * time.Minute)) }
	const forWhom = "Preempted to accommodate a workload (UID: 7, JobUID: 8) due to prioritization in the ClusterQueue"
	wl := workload("job-train", "main",
		metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: "quota is used up", LastTransitionTime: at(6)},
		metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", Message: forWhom, LastTransitionTime: at(5)},
		metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionFalse, LastTransitionTime: at(5)},
		metav1.Condition{Type: "elasticai.io/LastRun", Status: metav1.ConditionTrue, Message: `{"from":"2026-05-01T12:00:00Z"}`, LastTransitionTime: at(5)},
	)
	wl.CreationTimestamp = at(0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train-0"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(3)},
		{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: egpu.ReasonMovedOut, Message: "60 MiB of 1 containers", LastTransitionTime: at(4)},
	}}}
	event := func(minute int, reason, message string) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: at(minute), InvolvedObject: corev1.ObjectReference{Kind: "Workload", Name: wl.Name}}
	}
	var whats []string
	got := timeline(wl, []*corev1.Pod{pod}, []corev1.Event{event(1, "Pending", "waits for 8 cards"), event(2, "Admitted", "by queue red"), event(5, "Evicted", forWhom)})
	for _, m := range got {
		whats = append(whats, m.What)
	}
	if want := []string{"Pending", "Evicted (Preempted)", egpu.ReasonMovedOut, "Admitted", "Pending", "Created"}; !slices.Equal(whats, want) {
		t.Fatalf("got %q, want %q", whats, want)
	}
	if got[1].Message != forWhom || !got[1].Warning || got[2].About != "pod/train-0" || got[2].Message != "60 MiB of 1 containers" {
		t.Errorf("got %+v", got)
	}
}
