package kinds

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// With Kueue's gate WorkloadIdentifierAnnotations off, an annotation counts only where it is too long for a label.
func TestNamesInLabels(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, test := range []struct {
		rules                   Rules
		annotation, label, want string
	}{
		{Rules{}, "a", "", "a"},
		{Rules{}, "a", "l", "a"},
		{Rules{}, "", "l", "l"},
		{Rules{NamesInLabels: true}, "a", "", ""},
		{Rules{NamesInLabels: true}, "a", "l", "l"},
		{Rules{NamesInLabels: true}, long, "", long},
		{Rules{NamesInLabels: true}, long, "l", "l"},
	} {
		pod := &corev1.Pod{}
		for _, key := range []string{PrebuiltLabel, GroupNameLabel} {
			SetAnnotation(pod, key, test.annotation)
			SetLabel(pod, key, test.label)
		}
		if got := test.rules.nameIn(pod, PrebuiltLabel); got != test.want {
			t.Errorf("%+v: the workload is %q", test, got)
		}
	}
}

// A name that a label cannot hold is in an annotation, and a label that was there before does not hide it.
func TestLongNamesGoIntoAnnotations(t *testing.T) {
	for _, name := range []string{"short", strings.Repeat("x", 64)} {
		pod := &corev1.Pod{}
		SetLabel(pod, GroupNameLabel, "forged")
		SetPodGroupName(pod, name)
		SetPrebuiltName(pod, name)
		if PodGroupName(pod) != name || PrebuiltName(pod) != name {
			t.Errorf("the group is %q, the workload %q", PodGroupName(pod), PrebuiltName(pod))
		}
		for key, value := range pod.Labels {
			if len(value) > 63 {
				t.Errorf("label %s is too long", key)
			}
		}
	}
}

// What goes beyond Kueue counts only where it is said.
func TestWhatCountsBeyondKueue(t *testing.T) {
	defer SetRules(Rules{})
	SetRules(Rules{SparkOverhead: true, ReclaimReplicas: true})
	j, reader := sample(t, "sparkapplication")
	sets, err := j.PodSets(t.Context(), reader)
	if got := describeSets(sets); err != nil || got != "driver 1 cpu=1 memory=896Mi; executor 2 cpu=1 memory=1408Mi" {
		t.Errorf("it requests %s, %v", got, err)
	}
	for reclaims, want := range map[bool]int32{false: 0, true: 2} {
		SetRules(Rules{ReclaimReplicas: reclaims})
		done, err := variant(t, "pytorchjob", map[string]any{"status.replicaStatuses.Worker.succeeded": int64(2)}).FinishedPods(t.Context(), nil)
		if err != nil || done[kueue.PodSetReference("worker")] != want {
			t.Errorf("finished are %v, %v; want %d", done, err, want)
		}
	}
}
