package gpu_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/client_golang/prometheus/testutil"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/panics"
	"github.com/elastic-ai/elastic/internal/placement"
)

// failing is a world in which what concerns one object, by name, panics.
func failing(t *testing.T) (w *world, fail func(stage, name string), recorder *events.FakeRecorder, counted func(stage string) float64) {
	t.Helper()
	recorder = events.NewFakeRecorder(100)
	w = &world{TB: t, events: recorder}
	w.start(t, placement.Options{})
	was := map[string]float64{}
	for _, stage := range []string{"handle", "ask", "publish"} {
		was[stage] = testutil.ToFloat64(panics.Total.WithLabelValues(stage))
	}
	fail = func(stage, name string) {
		w.FailFor(func(at string, object client.Object) {
			if object != nil && at == stage && object.GetName() == name {
				panic("poison in " + stage)
			}
		})
	}
	return w, fail, recorder, func(stage string) float64 {
		return testutil.ToFloat64(panics.Total.WithLabelValues(stage)) - was[stage]
	}
}

// One object of each kind panics when it is taken in. It is counted and recorder of, and others come in
// after it; when it changes it is looked at again.
func TestPoisonObjectIsSetAside(t *testing.T) {
	for kind, poison := range map[string]client.Object{
		"node":       node("poison", 1),
		"pod":        onNode("poison", 50, "a", "0"),
		"gpu":        &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "poison"}, Spec: egpu.GPUSpec{NodeName: "a", Index: 7}},
		"elasticgpu": &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "poison"}},
		"workload":   &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "poison"}},
	} {
		t.Run(kind, func(t *testing.T) {
			w, fail, recorder, counted := failing(t)
			fail("handle", "poison")
			poison.SetResourceVersion("1")
			p := share("p", 60)
			w.Feed(false, poison, node("a", 1))
			w.Feed(false, poison) // the same again is not looked at
			if n := counted("handle"); n != 1 {
				t.Fatalf("%v panics are counted, want 1", n)
			}
			if e := <-recorder.Events; !strings.Contains(e, "SetAside") || !strings.Contains(e, "poison in handle") {
				t.Fatalf("event %q", e)
			}
			w.add(p)
			w.mustBind(p, "a")
			if c := w.card("a", 0); c.FreeCore != 40 {
				t.Fatalf("card %+v", c)
			}
			poison.SetResourceVersion("2")
			w.Feed(false, poison)
			if n := counted("handle"); n != 2 {
				t.Fatalf("it has changed, and %v panics are counted, want 2", n)
			}
			w.FailFor(nil)
			poison.SetResourceVersion("3")
			w.Feed(false, poison)
			if n := counted("handle"); n != 2 {
				t.Fatalf("%v panics are counted", n)
			}
		})
	}
}

// A question that panics is answered with an error, and the next one as ever. What a pod had it has.
func TestPoisonQuestionIsAnswered(t *testing.T) {
	w, fail, recorder, counted := failing(t)
	good, poison := share("good", 30), share("poison", 30)
	w.add(node("a", 1), good, poison)
	w.mustBind(good, "a")
	fail("ask", "poison")
	if r := w.filter(poison, "a"); !strings.Contains(r.Error, "defect") {
		t.Errorf("filter %+v", r)
	}
	if scores := w.score(poison, "a"); scores["a"] != 0 {
		t.Errorf("scores %v", scores)
	}
	if err := w.bindTo(poison, "a"); err == nil || !strings.Contains(err.Error(), "defect") {
		t.Errorf("bind: %v", err)
	}
	if n := counted("ask"); n != 3 {
		t.Errorf("%v panics are counted, want 3", n)
	}
	if e := <-recorder.Events; !strings.Contains(e, "SetAside") {
		t.Errorf("event %q", e)
	}
	other := share("other", 30)
	w.add(other)
	if r := w.filter(other, "a"); len(*r.NodeNames) != 1 {
		t.Errorf("another pod: %+v", r)
	}
	w.mustBind(other, "a")
	if c := w.card("a", 0); c.FreeCore != 40 {
		t.Errorf("card %+v", c)
	}
}

// A GPU object that cannot be published does not keep others from it.
func TestPoisonGPUIsLeftOut(t *testing.T) {
	w, fail, _, counted := failing(t)
	first, second := gpuObject("a", 0, "T4", 16000), gpuObject("a", 1, "T4", 16000)
	p, q := share("p", 100), share("q", 100)
	w.add(node("a", 2), first, second, p, q)
	fail("publish", first.Name)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.PublishAllocations(ctx) }()
	w.mustBind(p, "a")
	w.mustBind(q, "a")
	name := map[string]string{"0": "ns/q", "1": "ns/p"}[get(w, p).Annotations[cardsOfMain]]
	if r := record(t, w, second, name); r.Guessed {
		t.Errorf("recorded %+v", r)
	}
	if counted("publish") == 0 {
		t.Error("no panic is counted")
	}
	w.FailFor(nil)
	w.Feed(false, first)
	record(t, w, first, map[string]string{"ns/q": "ns/p", "ns/p": "ns/q"}[name])
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Who has the pod reads why its annotation is not believed.
func TestForgedAnnotationIsReported(t *testing.T) {
	w, _, recorder, _ := failing(t)
	w.add(node("a", 2), onNode("forged", 30, "a", "0,1"))
	if e := <-recorder.Events; !strings.Contains(e, "CardsNotGiven") || !strings.Contains(e, "another number of cards") || !strings.Contains(e, corev1.EventTypeWarning) {
		t.Fatalf("event %q", e)
	}
}
