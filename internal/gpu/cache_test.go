package gpu_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/placement"
)

// A shell that starts later, from what the API server has, knows the same.
func TestRestartKnowsTheSame(t *testing.T) {
	w := newWorld(t, placement.Options{})
	objects := []client.Object{node("a", 2), node("b", 2)}
	var pods []*corev1.Pod
	for i, core := range []int{30, 50, 100, 20, 70} {
		pods = append(pods, share(fmt.Sprint("p", i), core))
		objects = append(objects, pods[i])
	}
	w.add(objects...)
	for i, p := range pods {
		w.mustBind(p, []string{"a", "b"}[i%2])
	}
	later := newWorld(t, placement.Options{})
	for _, object := range objects {
		get(w, object)
	}
	later.Feed(false, objects...)
	before, err := w.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after, err := later.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Fatalf("before %+v\nafter  %+v", before, after)
	}
}

// What is older than our own bind changes nothing.
func TestOldNewsDoNotUnbind(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 60)
	w.add(node("a", 1), p)
	old := p.DeepCopy()
	w.mustBind(p, "a")
	w.Feed(false, old)
	if c := w.card("a", 0); c.FreeCore != 40 {
		t.Fatalf("card %+v", c)
	}
	again := old.DeepCopy()
	again.UID = "another"
	w.Feed(false, again)
	if c := w.card("a", 0); c.FreeCore != 100 {
		t.Fatalf("the pod was made anew, and its old self holds cards: %+v", c)
	}
}

// A pod that another scheduler bound says no cards; they are counted all the same, after those of pods that do.
func TestPodOfAnotherSchedulerIsCounted(t *testing.T) {
	w := newWorld(t, placement.Options{})
	foreign, ours := pod("foreign", egpu.ResourceWhole, 1), share("ours", 50)
	foreign.Spec.NodeName, ours.Spec.NodeName = "a", "a"
	ours.Annotations = map[string]string{egpu.Assumed: "true", "elasticgpu.io/container-main": "0"}
	w.add(foreign, ours, node("a", 2))
	if c := w.card("a", 0); c.FreeCore != 50 {
		t.Fatalf("card 0 %+v", c)
	}
	if c := w.card("a", 1); c.FreeCore != 0 || c.Allocations[0].Pod != "ns/foreign" {
		t.Fatalf("card 1 %+v", c)
	}
	late := pod("late", egpu.ResourceWhole, 1)
	late.Spec.NodeName = "a"
	w.add(late) // beyond what there is
	w.Feed(true, ours)
	w.Feed(false, func() *corev1.Node { n := node("a", 3); return n }())
	if c := w.card("a", 0); c.FreeCore != 0 || c.Allocations[0].Pod != "ns/late" {
		t.Fatalf("card 0, when the late pod could fit: %+v", c)
	}
	w.Feed(true, late, foreign)
	for i := range 3 {
		if c := w.card("a", i); c.FreeCore != 100 {
			t.Fatalf("card %d %+v", i, c)
		}
	}
}

// kube-scheduler may see a pod's end before we do, ask too early, and set the pod aside.
func TestPodThatWasAskedAboutTooEarlyIsTriedAgain(t *testing.T) {
	w := newWorld(t, placement.Options{})
	first, second := share("first", 60), share("second", 60)
	w.add(node("a", 1), first, second)
	w.mustBind(first, "a")
	if r := w.filter(second, "a"); len(*r.NodeNames) != 0 {
		t.Fatalf("full node: %+v", r)
	}
	w.Feed(true, first)
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return get(w, second).Labels[gpu.RetryLabel] != "", nil
	})
	if err != nil {
		t.Fatalf("the pod is not tried again: %v", err)
	}
}

// kube-scheduler knows nothing of claims either: a pod that comes before its claim is bound is tried again then.
func TestPodThatItsClaimRefusedIsTriedAgain(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 0)
	p.Annotations = map[string]string{egpu.ClaimPrefix + "main": "c"}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "c"}}
	w.add(node("a", 1), p, claim)
	if r := w.filter(p, "a"); r.NodeNames != nil && len(*r.NodeNames) != 0 {
		t.Fatalf("a claim without an ElasticGPU: %+v", r)
	}
	claim.Status.Phase = egpu.ClaimBound
	w.Feed(false, claim)
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return get(w, p).Labels[gpu.RetryLabel] != "", nil
	})
	if err != nil {
		t.Fatalf("the pod is not tried again: %v", err)
	}
}

func TestFinishedPodsHoldNothing(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 60)
	w.add(node("a", 1), p)
	w.mustBind(p, "a")
	get(w, p)
	p.Status.Phase = corev1.PodSucceeded
	w.Feed(false, p)
	if c := w.card("a", 0); c.FreeCore != 100 {
		t.Fatalf("card %+v", c)
	}
}

func TestElasticGPUTakesNoPodsPlace(t *testing.T) {
	w := newWorld(t, placement.Options{})
	small := node("a", 1)
	small.Status.Allocatable[corev1.ResourcePods] = quantity(1)
	device := &egpu.ElasticGPU{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{egpu.CardsAnnotation: "0"}},
		Spec: egpu.ElasticGPUSpec{
			Capacity: corev1.ResourceList{egpu.ResourceCore: quantity(10)},
			NodeAffinity: &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"a"}}},
			}}}},
		},
	}
	w.add(small, device)
	if c := w.card("a", 0); c.FreeCore != 90 {
		t.Fatalf("card %+v: want the ElasticGPU on it", c)
	}
	if r := w.filter(share("p", 20), "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("an ElasticGPU took the place of a pod: %+v", r)
	}
}

// A card that an ElasticGPU has in space takes no pods that take turns, and is theirs again when it has gone.
func TestElasticGPUInSpace(t *testing.T) {
	w := newWorld(t, placement.Options{})
	device := &egpu.ElasticGPU{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{egpu.CardsAnnotation: "0", egpu.SharingAnnotation: egpu.SharingSpace}},
		Spec: egpu.ElasticGPUSpec{
			Capacity: corev1.ResourceList{egpu.ResourceCore: quantity(10)},
			NodeAffinity: &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"a"}}},
			}}}},
		},
	}
	w.add(node("a", 1), device)
	if r := w.filter(share("p", 20), "a"); len(*r.NodeNames) != 0 || !strings.Contains(r.FailedNodes["a"], "in the other way") {
		t.Fatalf("beside containers that run at once: %+v", r)
	}
	w.add(node("b", 1))
	if r := w.filter(share("p", 20), "a", "b"); len(*r.NodeNames) != 1 || (*r.NodeNames)[0] != "b" {
		t.Fatalf("%+v", r)
	}
}

func workload(pods int32) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{
			Name: "main", Count: pods, Template: corev1.PodTemplateSpec{Spec: pod("x", egpu.ResourceWhole, 1).Spec},
		}}},
		Status: kueue.WorkloadStatus{Admission: &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &pods}}}},
	}
}

func member(name string) *corev1.Pod {
	p := pod(name, egpu.ResourceWhole, 1)
	p.Annotations = map[string]string{kueue.WorkloadAnnotation: "job"}
	p.Labels = map[string]string{"kueue.x-k8s.io/podset": "main"}
	return p
}

// 64 pods on 64 cards of which two are unhealthy: none starts, and the reason says 62 of 64.
func TestGangStartsWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t, placement.Options{})
	var names []string
	var sick []*egpu.GPU
	for i := range 8 {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		w.add(node(name, 8))
		for j := range 8 {
			g := gpuObject(name, j, "T4", 16000)
			if i == 3 && j < 2 {
				g.Status.State, g.Status.Message = egpu.GPUUnhealthy, "double bit error"
				sick = append(sick, g)
			}
			w.add(g)
		}
	}
	if err := w.client.Create(t.Context(), workload(64)); err != nil {
		t.Fatal(err)
	}
	r := w.filter(member("m0"), names...)
	if len(*r.NodeNames) != 0 || !strings.Contains(r.FailedAndUnresolvableNodes["n0"], "62 of 64 pods fit") {
		t.Fatalf("filter: %+v", r)
	}
	if !strings.Contains(r.FailedAndUnresolvableNodes["n0"], "double bit error") {
		t.Errorf("the reason does not name the cards: %s", r.FailedAndUnresolvableNodes["n0"])
	}
	for _, g := range sick {
		g.Status = egpu.GPUStatus{}
		w.Feed(false, g)
	}
	// The first pod reserves for all: a stranger does not fit, and every member does.
	if r := w.filter(member("m0"), names...); len(*r.NodeNames) != 8 {
		t.Fatalf("with all cards healthy: %+v", r)
	}
	if r := w.filter(pod("stranger", egpu.ResourceWhole, 1), names...); len(*r.NodeNames) != 0 {
		t.Fatalf("a stranger took the gang's place: %v", *r.NodeNames)
	}
	for i := range 64 {
		m := member(fmt.Sprint("m", i))
		if err := w.client.Create(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		r := w.filter(m, names...)
		if len(*r.NodeNames) == 0 {
			t.Fatalf("member %d: %+v", i, r)
		}
		w.mustBind(m, (*r.NodeNames)[0])
	}
}

// What a replica answers before it leads reserves nothing: the leader before it may have given the cards to others,
// which it reads when it takes over.
func TestFollowerReservesNothing(t *testing.T) {
	w := &world{TB: t, follows: true}
	w.start(t, placement.Options{})
	w.add(node("a", 2), workload(2))
	first, other := member("first"), pod("other", egpu.ResourceWhole, 2)
	w.add(first)
	w.filter(first, "a")
	other.Spec.NodeName = "a"
	other.Annotations = map[string]string{egpu.Assumed: "true", "elasticgpu.io/container-main": "0,1"}
	if err := w.client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := w.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.filter(first, "a"); len(*r.NodeNames) != 0 {
		t.Errorf("all cards have been given out: %+v", r)
	}
	if err := w.bindTo(first, "a"); err == nil {
		t.Error("a card was given out twice")
	}
}

// A replica's watch may be late: which pods are gone is read with those that exist when it takes over. What the watch
// delivers from before that changes nothing.
func TestNewLeaderDoesNotBelieveALateWatch(t *testing.T) {
	w := &world{TB: t, follows: true}
	w.start(t, placement.Options{})
	w.versions = true
	on := func(p *corev1.Pod, version, cards string) *corev1.Pod {
		p.Spec.NodeName, p.ResourceVersion = "a", version
		p.Annotations = map[string]string{egpu.Assumed: "true", "elasticgpu.io/container-main": cards}
		return p
	}
	gone, late := on(pod("gone", egpu.ResourceWhole, 1), "3", "0"), on(pod("late", egpu.ResourceWhole, 1), "5", "1")
	ended, is := on(pod("zzz-ended", egpu.ResourceWhole, 1), "4", "1"), on(pod("is", egpu.ResourceWhole, 2), "", "0,1")
	w.add(node("a", 2))
	w.Feed(false, gone.DeepCopy(), ended.DeepCopy())
	ended.Status.Phase, ended.ResourceVersion = corev1.PodSucceeded, ""
	for _, p := range []*corev1.Pod{ended, is} {
		if err := w.client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	seen := get(w, is.DeepCopy())
	w.Feed(false, seen) // while others seem to have its cards
	if err := w.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Feed(false, late)
	for card := range 2 {
		if c := w.card("a", card); c.FreeCore != 0 || len(c.Allocations) != 1 || c.Allocations[0].Pod != "ns/is" {
			t.Errorf("card %d: %+v", card, c)
		}
	}
}

// A pod that only says it is one of many has cards reserved for itself alone: how many pods a gang has,
// and with which cards, is what was admitted.
func TestForgedGangHoldsNothing(t *testing.T) {
	group := func(p *corev1.Pod, name string) *corev1.Pod {
		p.Labels = map[string]string{"kueue.x-k8s.io/pod-group-name": name}
		p.Annotations = map[string]string{"kueue.x-k8s.io/pod-group-total-count": "8"}
		return p
	}
	waiting := func() *kueue.Workload {
		wl := workload(8)
		wl.Status.Admission = nil
		return wl
	}
	larger := member("m")
	larger.Spec = pod("m", egpu.ResourceWhole, 4).Spec
	small := workload(2)
	small.Spec.PodSets[0].Template.Spec = share("x", 10).Spec
	for name, tc := range map[string]struct {
		workload *kueue.Workload
		pod      *corev1.Pod
		reserved bool
	}{
		"a group without a queue":                {workload(8), group(pod("m", egpu.ResourceWhole, 1), "nobody"), false},
		"a group whose workload waits":           {waiting(), group(pod("m", egpu.ResourceWhole, 1), "job"), false},
		"a group of an admitted workload":        {workload(8), group(pod("m", egpu.ResourceWhole, 1), "job"), true},
		"a workload that waits":                  {waiting(), member("m"), false},
		"more cards than it was admitted with":   {workload(8), larger, false},
		"whole cards where shares were admitted": {small, member("m"), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, placement.Options{})
			w.add(node("a", 8), tc.workload)
			if r := w.filter(tc.pod, "a"); len(*r.NodeNames) != 1 {
				t.Fatalf("the pod itself: %+v", r)
			}
			r := w.filter(pod("stranger", egpu.ResourceWhole, 4), "a")
			if reserved := len(*r.NodeNames) == 0; reserved != tc.reserved {
				t.Fatalf("cards are reserved: %v, want %v: %+v", reserved, tc.reserved, r)
			}
		})
	}
}

// What is reserved for a job is free as soon as it may no longer run.
func TestEvictedGangHoldsNothing(t *testing.T) {
	w := newWorld(t, placement.Options{})
	w.add(node("a", 2))
	wl := workload(2)
	w.add(wl)
	if r := w.filter(member("m"), "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("member: %+v", r)
	}
	stranger := pod("stranger", egpu.ResourceWhole, 2)
	if r := w.filter(stranger, "a"); len(*r.NodeNames) != 0 {
		t.Fatalf("a stranger took the gang's place: %+v", r)
	}
	wl.Status.Admission = nil
	w.Feed(false, wl)
	if r := w.filter(stranger, "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("after the eviction: %+v", r)
	}
}

// A pod of a job that has started goes where it fits alone.
func TestReplacementDoesNotWaitForTheWholeGang(t *testing.T) {
	w := newWorld(t, placement.Options{})
	w.add(node("a", 2))
	if err := w.client.Create(t.Context(), workload(2)); err != nil {
		t.Fatal(err)
	}
	first, second := member("first"), member("second")
	for _, p := range []*corev1.Pod{first, second} {
		w.add(p)
		w.filter(p, "a")
		w.mustBind(p, "a")
	}
	w.Feed(true, first)
	stranger := pod("stranger", egpu.ResourceWhole, 1)
	if r := w.filter(member("again"), "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("replacement: %+v", r)
	}
	w.add(stranger)
	w.mustBind(stranger, "a")
	if r := w.filter(member("again"), "a"); len(*r.NodeNames) != 0 || strings.Contains(r.FailedNodes["a"], "together") {
		t.Fatalf("replacement on a full node: %+v", r)
	}
}

// The cards of a pod that is swapped out are free until it is called back; then they count again, whatever
// other pods are there.
func TestSwappedOutPodsHoldNoCards(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p, other := share("p", 60), share("other", 70)
	w.add(node("a", 1), p, other)
	w.mustBind(p, "a")
	if got := w.filter(other, "a"); got.NodeNames != nil && len(*got.NodeNames) != 0 {
		t.Fatalf("%+v: both do not fit", got)
	}
	say := func(where string, out corev1.ConditionStatus) {
		t.Helper()
		get(w, p)
		p.Annotations[egpu.SwapAnnotation] = where
		p.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: out}}
		w.Feed(false, p.DeepCopy())
	}
	say(egpu.SwapOut, corev1.ConditionFalse)
	if c := w.card("a", 0); c.FreeCore != 40 {
		t.Fatalf("it was swapped out, and is still there: %+v", c)
	}
	say(egpu.SwapOut, corev1.ConditionTrue)
	if c := w.card("a", 0); c.FreeCore != 100 {
		t.Fatalf("it is out: %+v", c)
	}
	w.mustBind(other, "a")
	say(egpu.SwapIn, corev1.ConditionTrue)
	if c := w.card("a", 0); c.FreeCore > 0 {
		t.Fatalf("it comes back: %+v", c)
	}
}

// An ElasticGPU whose pods all are idle and have left its card is not allocated there until one of them returns; then it
// counts again, whatever others were given meanwhile.
func TestElasticGPUOfIdlePodsHoldsNoCard(t *testing.T) {
	w := newWorld(t, placement.Options{})
	device := &egpu.ElasticGPU{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{egpu.CardsAnnotation: "0"}},
		Spec: egpu.ElasticGPUSpec{
			Capacity: corev1.ResourceList{egpu.ResourceCore: quantity(60)}, ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "notebook", UID: "claim"},
			NodeAffinity: &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"a"}}},
			}}}},
		},
	}
	user := func(name, reason string) *corev1.Pod {
		p := pod(name, corev1.ResourceCPU, 1)
		p.UID, p.Annotations = types.UID(name), map[string]string{egpu.ClaimPrefix + "main": "notebook"}
		p.Spec.NodeName = "a"
		p.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: reason}}
		return p
	}
	free := func(what string, want int64) {
		t.Helper()
		if c := w.card("a", 0); int64(c.FreeCore) != want {
			t.Fatalf("%s: %+v", what, c)
		}
	}
	w.add(node("a", 1), device)
	free("nobody uses it", 40)
	w.Feed(false, user("one", egpu.ReasonReturning), user("two", egpu.ReasonIdle))
	free("one is there", 40)
	w.Feed(false, user("one", egpu.ReasonIdle))
	free("both are idle", 100)
	called := user("two", egpu.ReasonIdle)
	called.Annotations[egpu.SwapAnnotation] = egpu.SwapIn
	w.Feed(false, called)
	free("one is called back", 40)
	w.Feed(false, user("two", egpu.ReasonIdle))
	free("both are idle again", 100)
	other := share("other", 70)
	w.add(other)
	w.mustBind(other, "a")
	w.Feed(false, user("one", egpu.ReasonReturning))
	free("it returns, and another has its place", -30)
	w.Feed(true, user("one", egpu.ReasonReturning))
	free("the one that is left is idle", 30)
	w.Feed(true, user("two", egpu.ReasonIdle))
	free("nobody uses it any more", -30)
	w.Feed(true, device)
	free("it is gone", 30)
}

// A pod that was bound before the cache had it, and is deleted before the watch delivers it, leaves its cards.
func TestPodThatTheCacheNeverHadLeavesItsCards(t *testing.T) {
	w := newWorld(t, placement.Options{})
	w.late = true
	w.add(node("a", 1))
	p := share("p", 30)
	if err := w.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.mustBind(p, "a")
	if c := w.card("a", 0); c.FreeCore != 70 {
		t.Fatalf("%v of the card is free beside the pod", c.FreeCore)
	}
	if err := w.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.Tick(50 * time.Millisecond); w.card("a", 0).FreeCore != 100; {
		select {
		case <-wait.Done():
			t.Fatal("the card is still taken")
		case <-tick:
		}
	}
}
