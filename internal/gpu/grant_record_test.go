package gpu_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

const cardsOfMain = egpu.ContainerPrefix + "main"

// publishing is a world whose allocations are written, with a clock that a test moves.
func publishing(t *testing.T) (*world, *atomic.Int64) {
	t.Helper()
	clock := &atomic.Int64{}
	w := &world{TB: t, now: func() time.Time { return time.Unix(1_700_000_000, clock.Load()) }}
	w.start(t, placement.Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.PublishAllocations(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w, clock
}

// record waits until a card's status names a pod, and returns what it says.
func record(t *testing.T, w *world, card *egpu.GPU, key string) *egpu.PodResource {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return get(w, card).Status.Allocated[key] != nil, nil
	})
	if err != nil {
		t.Fatalf("the status of %s does not name %s: %v", card.Name, key, card.Status.Allocated)
	}
	return card.Status.Allocated[key]
}

// onNode is a pod that was bound by someone, with an annotation.
func onNode(name string, core int, node, cards string) *corev1.Pod {
	p := share(name, core)
	p.Spec.NodeName = node
	if cards != "" {
		p.Annotations = map[string]string{egpu.Assumed: "true", cardsOfMain: cards}
	}
	return p
}

func TestBindIsRecordedByUID(t *testing.T) {
	w, _ := publishing(t)
	p, card := share("p", 30), gpuObject("a", 0, "T4", 16000)
	w.add(node("a", 1), card, p)
	w.mustBind(p, "a")
	if r := record(t, w, card, "ns/p"); r.UID != "uid-p" || r.Guessed || r.Containers[0].Container != "main" {
		t.Fatalf("recorded %+v", r)
	}
}

// Who may patch a pod may write its annotations. That moves no share, and takes no card.
func TestChangedAnnotationChangesNothing(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 30)
	w.add(node("a", 2), p)
	w.mustBind(p, "a")
	get(w, p)
	has := p.Annotations[cardsOfMain]
	for _, forged := range []string{"1", "0", "0,1", "7", ""} {
		p.Annotations[cardsOfMain] = forged
		w.Feed(false, p)
		for i := range 2 {
			want := 100.0
			if has == []string{"0", "1"}[i] {
				want = 70
			}
			if c := w.card("a", i); c.FreeCore != want {
				t.Fatalf("annotation %q: card %d has %v free, want %v", forged, i, c.FreeCore, want)
			}
		}
	}
}

// Cards are never counted beyond what they have because an annotation says so.
func TestAnnotationBeyondTheCardIsNotBelieved(t *testing.T) {
	w, _ := publishing(t)
	first, second := gpuObject("a", 0, "T4", 16000), gpuObject("a", 1, "T4", 16000)
	w.add(node("a", 2), first, second, onNode("ours", 80, "a", "0"), onNode("forged", 80, "a", "0"), onNode("more", 10, "a", "0,1"))
	if c := w.card("a", 0); c.FreeCore < 0 {
		t.Fatalf("card 0 has %v free", c.FreeCore)
	}
	if r := record(t, w, first, "ns/ours"); r.Guessed {
		t.Fatalf("ours %+v", r)
	}
	if r := record(t, w, second, "ns/forged"); !r.Guessed {
		t.Fatalf("two pods of 80 percent say that they have card 0: %+v", r)
	}
	more := get(w, first).Status.Allocated["ns/more"]
	if more == nil {
		more = record(t, w, second, "ns/more")
	}
	if !more.Guessed {
		t.Fatalf("a share that says two cards: %+v", more)
	}
}

// After a restart the record counts, whatever annotations say by then.
func TestRestartBelievesTheRecord(t *testing.T) {
	first, second := gpuObject("a", 0, "T4", 16000), gpuObject("a", 1, "T4", 16000)
	first.Status.Allocated = map[string]*egpu.PodResource{"ns/ours": {
		Namespace: "ns", Pod: "ours", UID: "uid-ours", Containers: []egpu.ContainerResource{{Container: "main"}},
	}}
	for name, objects := range map[string][]client.Object{
		"at once":         {node("a", 2), first, second, onNode("ours", 60, "a", "1"), onNode("other", 60, "a", "0")},
		"record last":     {node("a", 2), onNode("ours", 60, "a", "1"), onNode("other", 60, "a", "0"), first, second},
		"pods first":      {onNode("ours", 60, "a", "1"), onNode("other", 60, "a", ""), first, second, node("a", 2)},
		"another's of it": {first, second, node("a", 2), onNode("ours", 60, "a", ""), onNode("other", 60, "a", "0")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, placement.Options{})
			for _, object := range objects {
				w.Feed(false, object.DeepCopyObject().(client.Object))
			}
			for i, want := range []string{"ns/ours", "ns/other"} {
				if c := w.card("a", i); len(c.Allocations) != 1 || c.Allocations[0].Pod != want {
					t.Errorf("card %d has %+v, want %s", i, c.Allocations, want)
				}
			}
		})
	}
}

// A record of a pod that had the name before is not this pod's.
func TestRecordIsOfAUID(t *testing.T) {
	w := newWorld(t, placement.Options{})
	first := gpuObject("a", 0, "T4", 16000)
	first.Status.Allocated = map[string]*egpu.PodResource{"ns/p": {UID: "another", Containers: []egpu.ContainerResource{{Container: "main"}}}}
	w.add(node("a", 2), first, gpuObject("a", 1, "T4", 16000), onNode("p", 60, "a", "1"))
	if c := w.card("a", 1); len(c.Allocations) != 1 {
		t.Fatalf("card 1 has %+v", c.Allocations)
	}
}

// A pod made with a node and an annotation, while we bind: it is counted, and the agent is told that
// this is a guess. So is the one that a later leader finds.
func TestPodThatWeDidNotBindGetsNoRecord(t *testing.T) {
	w, clock := publishing(t)
	card := gpuObject("a", 0, "T4", 16000)
	w.add(node("a", 1), card)
	clock.Store(int64(time.Hour))
	forged := onNode("forged", 30, "a", "0")
	w.add(forged)
	if r := record(t, w, card, "ns/forged"); !r.Guessed || r.UID != types.UID("uid-forged") {
		t.Fatalf("recorded %+v", r)
	}
	next, _ := publishing(t)
	get(w, card).ResourceVersion, forged.ResourceVersion = "", ""
	next.add(node("a", 1), card, forged)
	ours := share("ours", 20)
	next.add(ours)
	next.mustBind(ours, "a")
	record(t, next, card, "ns/ours")
	if r := card.Status.Allocated["ns/forged"]; r == nil || !r.Guessed {
		t.Fatalf("a new leader records %+v", r)
	}
}

// The answer of a bind is lost, and so is the question whether it was done. The watch says that it was:
// the pod has the cards that we gave it.
func TestBindThatFailedAndWasDone(t *testing.T) {
	w, clock := publishing(t)
	p, card := share("p", 30), gpuObject("a", 0, "T4", 16000)
	w.add(node("a", 1), card, p)
	clock.Store(int64(time.Hour))
	w.onBind = func(client.ObjectKey, func() error) error { return context.DeadlineExceeded }
	if err := w.bindTo(p, "a"); err == nil {
		t.Fatal("the bind did not fail")
	}
	get(w, p)
	p.Spec.NodeName = "a"
	w.Feed(false, p)
	if r := record(t, w, card, "ns/p"); r.Guessed {
		t.Fatalf("recorded %+v", r)
	}
}

// An ElasticGPU and a pod never have the same key, whatever a namespace is called.
func TestNamespaceCannotTakeAnElasticGPUsPlace(t *testing.T) {
	w := newWorld(t, placement.Options{})
	device := &egpu.ElasticGPU{}
	device.Name, device.Annotations = "egpu-1", map[string]string{egpu.CardsAnnotation: "0"}
	device.Spec.Capacity = corev1.ResourceList{egpu.ResourceCore: quantity(50)}
	device.Spec.NodeAffinity = &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
	}}}}
	hostile := onNode("egpu-1", 10, "a", "0")
	hostile.Namespace = "elasticgpu"
	w.add(node("a", 1), device, hostile)
	if c := w.card("a", 0); c.FreeCore != 40 {
		t.Fatalf("card %+v", c)
	}
}

// Who writes a claim may write into it that it has another's ElasticGPU, and even that it is bound. A pod with such a
// claim fits nowhere, and is not bound.
func TestForgedClaimHasNoCards(t *testing.T) {
	for name, tc := range map[string]struct {
		ref  *corev1.ObjectReference
		want string
	}{
		"its own":             {&corev1.ObjectReference{Namespace: "ns", Name: "mine", UID: "claim"}, ""},
		"another namespace's": {&corev1.ObjectReference{Namespace: "other", Name: "mine", UID: "claim"}, "belongs to claim other/mine"},
		"another claim's":     {&corev1.ObjectReference{Namespace: "ns", Name: "theirs", UID: "claim"}, "belongs to claim ns/theirs"},
		"one's of before":     {&corev1.ObjectReference{Namespace: "ns", Name: "mine", UID: "before"}, "another claim that had this name"},
		"one that nobody has": {nil, "given to no claim"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, placement.Options{})
			device := &egpu.ElasticGPU{}
			device.Name, device.Annotations = "egpu-1", map[string]string{egpu.CardsAnnotation: "0"}
			device.Spec.Capacity = corev1.ResourceList{egpu.ResourceCore: quantity(50)}
			device.Spec.ClaimRef = tc.ref
			claim := &egpu.ElasticGPUClaim{}
			claim.Namespace, claim.Name, claim.UID = "ns", "mine", "claim"
			claim.Spec.ElasticGPUName, claim.Status.Phase = "egpu-1", egpu.ClaimBound
			p := share("p", 1)
			p.Spec.Containers[0].Resources.Limits = nil
			p.Annotations = map[string]string{egpu.ClaimPrefix + "main": "mine"}
			w.add(node("a", 1), device, p)
			if err := w.client.Create(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			claim.Status.Phase = egpu.ClaimBound
			if err := w.client.Status().Update(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			r, err := w.filter(p, "a"), w.bindTo(p, "a")
			if tc.want == "" {
				if r.Error != "" || len(*r.NodeNames) != 1 || err != nil {
					t.Fatalf("filter %+v, bind %v", r, err)
				}
				return
			}
			if said := fmt.Sprint(r.Error, r.FailedAndUnresolvableNodes); !strings.Contains(said, tc.want) || r.NodeNames != nil && len(*r.NodeNames) != 0 {
				t.Errorf("filter %+v, want %q", r, tc.want)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("bind: %v, want %q", err, tc.want)
			}
		})
	}
}

// A pod that asks for no cards is not ours: it fits anywhere, holds nothing, and is bound by others.
func TestPodWithoutCardsIsLeftAlone(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 1)
	p.Spec.Containers[0].Resources.Limits = nil
	w.add(node("a", 1), p)
	if r := w.filter(p, "a", "ghost"); len(*r.NodeNames) != 2 {
		t.Fatalf("filter %+v", r)
	}
	if err := w.bindTo(p, "a"); err == nil || !strings.Contains(err.Error(), "asks for no cards") {
		t.Fatalf("bind: %v", err)
	}
	if get(w, p); p.Spec.NodeName != "" {
		t.Fatalf("it is on node %s", p.Spec.NodeName)
	}
}
