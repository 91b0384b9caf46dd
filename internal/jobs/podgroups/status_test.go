package podgroups

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func member(role string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kinds.RoleAnnotation: role}}}
	if change != nil {
		change(pod)
	}
	return pod
}

// Which pods of a group have to be replaced before it can go on.
func TestAbsentPods(t *testing.T) {
	failed := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	succeeded := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	deleted := func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	stopping := func(pod *corev1.Pod) { deleted(pod); pod.Spec.NodeName = "node" }
	fast := func(pod *corev1.Pod) { pod.Annotations[kinds.GroupFastAdmission] = "true" }
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "a", Count: 1}, {Name: "b", Count: 2}}
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want int32
	}{
		"all there":               {pods: []*corev1.Pod{member("a", nil), member("b", nil), member("b", succeeded)}},
		"one failed":              {pods: []*corev1.Pod{member("a", nil), member("b", nil), member("b", failed)}, want: 1},
		"and was replaced":        {pods: []*corev1.Pod{member("a", nil), member("b", nil), member("b", failed), member("b", nil)}},
		"by one of another role":  {pods: []*corev1.Pod{member("a", nil), member("a", nil), member("b", nil)}, want: 1},
		"one that never ran goes": {pods: []*corev1.Pod{member("a", deleted), member("b", nil), member("b", nil)}, want: 1},
		"one that runs still":     {pods: []*corev1.Pod{member("a", stopping), member("b", nil), member("b", nil)}},
		"others may come later":   {pods: []*corev1.Pod{member("a", fast), member("b", nil)}},
		"but one must be there":   {pods: []*corev1.Pod{member("a", fast)}, want: 1},
	} {
		if got := (&Group{Name: "g", Pods: tc.pods}).AbsentPods(wl); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if got := (&Group{Pods: []*corev1.Pod{member("a", failed)}}).AbsentPods(wl); got != 0 {
		t.Errorf("a pod of no group: %d", got)
	}
}

// The condition comes with the first pod that is lacking, has the eviction's reason where there is one, and
// stays false when all are there again.
func TestWaitForReplacementPods(t *testing.T) {
	wl := &kueue.Workload{}
	is := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadWaitingForReplacementPods)
		if c == nil || c.Status != status || c.Reason != reason {
			t.Fatalf("%v, want %s %s", c, status, reason)
		}
	}
	now := time.Unix(1, 0)
	if workload.WaitForReplacementPods(wl, false, now) {
		t.Fatal("it says what nobody asked")
	}
	workload.WaitForReplacementPods(wl, true, now)
	is(metav1.ConditionTrue, "PodsFailed")
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted"})
	workload.WaitForReplacementPods(wl, true, now)
	is(metav1.ConditionTrue, "Preempted")
	if workload.WaitForReplacementPods(wl, true, now) {
		t.Error("it says it again")
	}
	workload.WaitForReplacementPods(wl, false, now)
	is(metav1.ConditionFalse, "PodsReady")
}

// A pod's role is what Kueue calls it, so that groups which run can be taken over, and is found in
// workloads that call it otherwise.
func TestRoles(t *testing.T) {
	spec := corev1.PodSpec{
		Containers:   []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
		NodeSelector: map[string]string{"a": "b"},
	}
	// The JSON that is hashed is part of the format.
	text := `{"spec":{"affinity":null,"containers":[{"ports":null,"resources":{"requests":{"cpu":"1"}}}],"initContainers":null,"nodeSelector":{"a":"b"},` +
		`"overhead":null,"priority":null,"resourceClaims":null,"runtimeClassName":null,"tolerations":null,"topologySpreadConstraints":null}}`
	sum := sha256.Sum256([]byte(text))
	role := hex.EncodeToString(sum[:])[:8]
	if got := RoleHash(&spec); got != role {
		t.Errorf("role %s, want %s", got, role)
	}
	other := spec.DeepCopy()
	other.Priority = ptr.To(int32(1))
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "old-a", Template: corev1.PodTemplateSpec{Spec: *other}}, {Name: "old-b", Template: corev1.PodTemplateSpec{Spec: spec}}}
	if got := RoleIn(wl, &corev1.Pod{Spec: spec}); got != "old-b" {
		t.Errorf("in a workload with other names the role is %s", got)
	}
	if got := RoleIn(wl, member("old-a", nil)); got != "old-a" {
		t.Errorf("a pod that says its role has %s", got)
	}
}

// All pods of an object that makes them alike are of its one pod set. A workload with the sets it had before
// loses nothing.
func TestRolesOfAnObject(t *testing.T) {
	leader := member("leader", func(pod *corev1.Pod) {
		pod.Annotations[kinds.ParentAnnotation] = "leaderworkerset.x-k8s.io/leaderworkerset"
	})
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}}
	if got := RoleIn(wl, leader); got != "main" {
		t.Errorf("the leader is of %q", got)
	}
	if got := RoleIn(wl, member("leader", nil)); got != "leader" {
		t.Errorf("a pod of another role is of %q", got)
	}
	kind, err := kinds.BuiltIn([]string{"leaderworkerset.x-k8s.io/leaderworkerset"})
	if err != nil {
		t.Fatal(err)
	}
	parent := kind[0].Object(&unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"leaderWorkerTemplate": map[string]any{"size": int64(3), "workerTemplate": map[string]any{}}}}})
	wl.Spec.PodSets = []kueue.PodSet{{Name: "leader", Count: 1}, {Name: "worker", Count: 2}}
	if done, err := (&Group{Name: "g", Pods: []*corev1.Pod{leader}, Parent: &parent}).ReclaimablePods(t.Context(), nil, wl); err != nil || len(done) > 0 {
		t.Errorf("it gives up %v, %v", done, err)
	}
}
