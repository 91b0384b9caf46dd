package gpu_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// The faults of the old scheduler, each a test through the extender.

func TestSidecarIsOnNoCard(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 30)
	p.Spec.Containers = append([]corev1.Container{{Name: "sidecar"}}, p.Spec.Containers...)
	w.add(node("a", 1), p)
	w.mustBind(p, "a")
	get(w, p)
	if _, given := p.Annotations["elasticgpu.io/container-sidecar"]; given || p.Annotations["elasticgpu.io/container-main"] != "0" {
		t.Fatalf("annotations %v", p.Annotations)
	}
	if c := w.card("a", 0); c.FreeCore != 70 || len(c.Allocations) != 1 {
		t.Fatalf("card %+v: want one allocation of 30", c)
	}
	w.Feed(true, p)
	if c := w.card("a", 0); c.FreeCore != 100 {
		t.Fatalf("after the pod %v is free: the sidecar was credited", c.FreeCore)
	}
}

func TestScoresTellNodesApartFrom0To10(t *testing.T) {
	for _, policy := range []string{"spread", "binpack"} {
		w := newWorld(t, placement.Options{Policy: policy})
		w.add(node("a", 2), node("b", 2), share("x", 70), share("y", 30))
		w.mustBind(share("x", 70), "a")
		w.mustBind(share("y", 30), "b")
		scores := w.score(share("z", 20), "a", "b")
		for host, score := range scores {
			if score < 0 || score > 10 {
				t.Errorf("%s: %s scores %d", policy, host, score)
			}
		}
		if fuller := scores["a"] > scores["b"]; scores["a"] == scores["b"] || fuller != (policy == "binpack") {
			t.Errorf("%s: scores %v", policy, scores)
		}
	}
}

func TestFilterSeesThatANodeIsFull(t *testing.T) {
	w := newWorld(t, placement.Options{})
	first, second := share("first", 60), share("second", 60)
	w.add(node("a", 1), first, second)
	if r := w.filter(second, "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("empty node: %+v", r)
	}
	w.mustBind(first, "a")
	r := w.filter(second, "a")
	if len(*r.NodeNames) != 0 || !strings.Contains(r.FailedNodes["a"], "not enough free capacity on cards") {
		t.Fatalf("full node: %+v", r)
	}
	w.Feed(true, first)
	if r := w.filter(second, "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("free again: %+v", r)
	}
}

func TestUnseenNodeIsAnAnswerNotACrash(t *testing.T) {
	w := newWorld(t, placement.Options{})
	w.add(node("a", 1))
	if scores := w.score(share("p", 20), "ghost", "a"); scores["ghost"] != 0 || scores["a"] != 10 {
		t.Errorf("scores %v", scores)
	}
	if r := w.filter(share("p", 20), "ghost", "a"); len(*r.NodeNames) != 1 || r.FailedAndUnresolvableNodes["ghost"] == "" {
		t.Errorf("filter %+v", r)
	}
	p := share("p", 20)
	w.add(p)
	if err := w.bindTo(p, "ghost"); err == nil {
		t.Error("binding to an unknown node succeeded")
	}
}

func TestFailedBindIsSaidAndLeavesNothing(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 60)
	w.add(node("a", 1), p)
	w.onBind = func(client.ObjectKey, func() error) error { return errors.New("etcd is on fire") }
	if err := w.bindTo(p, "a"); err == nil || !strings.Contains(err.Error(), "etcd is on fire") {
		t.Fatalf("error %v", err)
	}
	if c := w.card("a", 0); c.FreeCore != 100 {
		t.Fatalf("after the failure %v is free", c.FreeCore)
	}
	if get(w, p); p.Annotations["elasticgpu.io/assumed"] != "" || p.Spec.NodeName != "" {
		t.Fatalf("the pod carries traces: %v", p.Annotations)
	}
	w.onBind = nil
	w.mustBind(p, "a")
}

// A write whose answer was lost is a bind all the same.
func TestLostAnswerIsLookedUp(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 60)
	w.add(node("a", 1), p)
	w.onBind = func(_ client.ObjectKey, write func() error) error {
		return errors.Join(write(), context.DeadlineExceeded)
	}
	w.mustBind(p, "a")
	if c := w.card("a", 0); c.FreeCore != 40 || c.Allocations[0].Reserved {
		t.Fatalf("card %+v", c)
	}
}

// A Binding whose answer did not come in time may still be on its way: when its cards are given to
// another pod, it must not arrive any more.
func TestBindOnItsWayIsTooLate(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p, other := share("p", 60), share("other", 60)
	w.add(node("a", 1), p, other)
	var arrive func() error
	w.onBind = func(_ client.ObjectKey, write func() error) error {
		arrive = write
		return context.DeadlineExceeded
	}
	if err := w.bindTo(p, "a"); err == nil {
		t.Fatal("a bind without an answer succeeded")
	}
	w.onBind = nil
	w.mustBind(other, "a")
	if err := arrive(); err == nil {
		t.Error("two pods have 60 of one card")
	}
}

func TestPodDeletedWhileItIsBound(t *testing.T) {
	w := newWorld(t, placement.Options{})
	p := share("p", 60)
	w.add(node("a", 1), p)
	w.onBind = func(_ client.ObjectKey, write func() error) error {
		err := write()
		w.Feed(true, p) // the watch is faster than the answer
		return err
	}
	w.mustBind(p, "a")
	if c := w.card("a", 0); c.FreeCore != 100 {
		t.Fatalf("a pod that is gone holds cards: %+v", c)
	}
}

func TestCardsOfANodeDifferAndChange(t *testing.T) {
	w := newWorld(t, placement.Options{})
	big := pod("big", egpu.ResourceMemory, 40000)
	w.add(node("a", 2), big)
	if r := w.filter(big, "a"); r.FailedAndUnresolvableNodes["a"] == "" {
		t.Fatalf("40000 MiB on cards of 16000: %+v", r)
	}
	second := gpuObject("a", 1, "A100", 80000)
	w.add(gpuObject("a", 0, "T4", 16000), second)
	if r := w.filter(big, "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("with an A100: %+v", r)
	}
	w.mustBind(big, "a")
	if get(w, big); big.Annotations["elasticgpu.io/container-main"] != "1" {
		t.Fatalf("40000 MiB went to card %s", big.Annotations["elasticgpu.io/container-main"])
	}
	other := pod("other", egpu.ResourceMemory, 20000)
	second.Status.State, second.Status.Message = egpu.GPUUnhealthy, "fell off the bus"
	w.Feed(false, second)
	if r := w.filter(other, "a"); r.FailedAndUnresolvableNodes["a"] != "cards are unhealthy" {
		t.Fatalf("with an unhealthy A100: %+v", r)
	}
	second.Status = egpu.GPUStatus{}
	w.Feed(false, second)
	if r := w.filter(other, "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("healthy again: %+v", r)
	}
}

func TestCoreAndMemoryOfOneContainerAreOnOneCard(t *testing.T) {
	w := newWorld(t, placement.Options{})
	memory, core, both := pod("memory", egpu.ResourceMemory, 15000), share("core", 90), share("both", 20)
	both.Spec.Containers[0].Resources.Limits[egpu.ResourceMemory] = quantity(4000)
	w.add(node("a", 1), memory, core, both)
	w.mustBind(memory, "a")
	w.mustBind(core, "a") // one card has memory left, and no core; a second one the reverse
	w.Feed(false, node("a", 2))
	if r := w.filter(both, "a"); len(*r.NodeNames) != 1 {
		t.Fatalf("a free card: %+v", r)
	}
	w.mustBind(both, "a")
	if c := w.card("a", 1); c.FreeCore != 80 || c.FreeMemory != 12000 {
		t.Fatalf("card %+v", c)
	}
}
