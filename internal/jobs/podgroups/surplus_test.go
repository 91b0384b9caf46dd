package podgroups

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// groupPod is the n-th pod of a group, with a role.
func groupPod(n int, role string, change func(*corev1.Pod)) *corev1.Pod {
	name := string(rune('a' + n))
	pod := member(role, func(pod *corev1.Pod) {
		pod.Namespace, pod.Name, pod.UID = "ns", name, types.UID(name)
		pod.CreationTimestamp = metav1.Unix(int64(n), 0)
		pod.Finalizers = []string{kinds.ManagedLabel}
		pod.Labels = map[string]string{kinds.GroupNameLabel: "g", kinds.QueueNameLabel: "q"}
		pod.Annotations[kinds.GroupTotal] = "2"
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kinds.AdmissionGate}}
	})
	if change != nil {
		change(pod)
	}
	return pod
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}

// A workload counts so many pods of each role: started ones before gated ones, old ones before young ones.
// One that failed is held until it is replaced.
func TestPodsThatCount(t *testing.T) {
	failed := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	started := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil }
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "x", Count: 1}, {Name: "y", Count: 1}}
	for name, tc := range map[string]struct {
		pods                           []*corev1.Pod
		kept, excess, replaced, strays []string
		unmatched                      bool
	}{
		"as many as counted":           {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", nil)}, kept: []string{"a", "b"}},
		"one role has one more":        {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", nil), groupPod(2, "y", nil)}, kept: []string{"a", "b"}, excess: []string{"c"}},
		"a started one stays":          {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", nil), groupPod(2, "y", started)}, kept: []string{"a", "c"}, excess: []string{"b"}},
		"one failed":                   {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", failed)}, kept: []string{"a", "b"}},
		"and was replaced":             {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", failed), groupPod(2, "y", nil)}, kept: []string{"a", "c"}, replaced: []string{"b"}},
		"but not by another role's":    {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", failed), groupPod(2, "x", nil)}, kept: []string{"a", "b"}, excess: []string{"c"}},
		"a role the workload has not":  {pods: []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "z", nil)}, kept: []string{"a"}, strays: []string{"b"}},
		"only roles it has not":        {pods: []*corev1.Pod{groupPod(0, "z", nil)}, kept: []string{"a"}, unmatched: true},
		"two failed, one was replaced": {pods: []*corev1.Pod{groupPod(0, "y", failed), groupPod(1, "y", failed), groupPod(2, "x", nil)}, kept: []string{"a", "c"}, replaced: []string{"b"}},
	} {
		g := &Group{Name: "g", Pods: tc.pods, Now: time.Unix(100, 0)}
		if matched := g.Match(wl); matched == tc.unmatched || !slices.Equal(names(g.Pods), tc.kept) || !slices.Equal(names(g.excess), tc.excess) ||
			!slices.Equal(names(g.replaced), tc.replaced) || !slices.Equal(names(g.strays), tc.strays) {
			t.Errorf("%s: kept %v, in excess %v, replaced %v, strays %v", name, names(g.Pods), names(g.excess), names(g.replaced), names(g.strays))
		}
	}
}

// Before a group has a workload, pods beyond its total are deleted, and those that ended are released.
func TestComposedGroup(t *testing.T) {
	failed := groupPod(3, "x", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	pods := []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "y", nil), groupPod(2, "z", nil), failed}
	c := fakeClient(pods...)
	recorder := events.NewFakeRecorder(9)
	g := &Group{Name: "g", Pods: pods, Recorder: recorder}
	if err := g.Compose(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := <-recorder.Events; got != "Normal ExcessPodDeleted Excess pod deleted" || len(recorder.Events) > 0 {
		t.Errorf("its events begin with %q", got)
	}
	if got := names(g.Pods); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("left are %v", got)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("the one in excess: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(failed), failed); err != nil || len(failed.Finalizers) > 0 {
		t.Errorf("the failed one: %v, %v", err, failed.Finalizers)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"another queue":  func(pod *corev1.Pod) { pod.Labels[kinds.QueueNameLabel] = "p" },
		"another total":  func(pod *corev1.Pod) { pod.Annotations[kinds.GroupTotal] = "1" },
		"one is lacking": func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
	} {
		pods := []*corev1.Pod{groupPod(0, "x", nil), groupPod(1, "x", change)}
		if err := (&Group{Name: "g", Pods: pods}).Compose(t.Context(), fakeClient(pods...)); err == nil {
			t.Errorf("%s: it was composed", name)
		}
	}
}

func fakeClient(pods ...*corev1.Pod) client.Client {
	b := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(&corev1.Pod{})
	for _, pod := range pods {
		b = b.WithObjects(pod)
	}
	return b.Build()
}

// Pods that are stopped say why. Those of a deleted workload go, whether they run, wait or have ended.
func TestStoppedPods(t *testing.T) {
	running := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil }
	ended := func(pod *corev1.Pod) { running(pod); pod.Status.Phase = corev1.PodSucceeded }
	for reason, left := range map[string][]string{"WorkloadEvictedDueToPreempted": {"a", "b", "c"}, kinds.StopWorkloadDeleted: nil} {
		pods := []*corev1.Pod{groupPod(0, "x", running), groupPod(1, "x", nil), groupPod(2, "x", ended)}
		c := fakeClient(pods...)
		stopped, err := (&Group{Name: "g", Pods: pods}).Stop(t.Context(), c, kinds.Stop{Reason: reason, Message: "why"})
		if err != nil {
			t.Fatal(err)
		}
		list := &corev1.PodList{}
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		var has []*corev1.Pod
		for i := range list.Items {
			has = append(has, &list.Items[i])
			if pod := &list.Items[i]; pod.Name == "a" && (pod.DeletionTimestamp == nil || len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Reason != reason || pod.Status.Conditions[0].Message != "why") {
				t.Errorf("it is not marked: %v", pod.Status.Conditions)
			}
		}
		if !slices.Equal(names(has), left) || len(stopped) != 3-len(left)+min(1, len(left)) {
			t.Errorf("%s: left are %v, stopped %d", reason, names(has), len(stopped))
		}
	}
}
