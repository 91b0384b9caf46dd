package inventory

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// apply describes a node as a shell does, and reports whether there was news and how many cards it has.
func apply(n *Nodes, name string) (changed bool, cards int) {
	e, now, changed := n.Describe(name)
	if e.Applied = now; now != nil {
		cards = len(now.Cards)
	}
	return changed, cards
}

func TestNodesFollowObjectsInAnyOrder(t *testing.T) {
	nodes := NewNodes(Node)
	steps := []struct {
		name    string
		set     func()
		changed bool
		cards   int
		len     int
	}{
		{"a card before its node", func() { nodes.SetGPU(card(0, "H100", 80000), false) }, false, 0, 1},
		{"its node", func() { nodes.SetNode(node(nil), false) }, true, 1, 1},
		{"the same again", func() { nodes.SetNode(node(nil), false) }, false, 1, 1},
		{"another card", func() { nodes.SetGPU(card(1, "H100", 80000), false) }, true, 2, 1},
		{"allocatable memory", func() { nodes.SetNode(node(map[corev1.ResourceName]int64{"memory": 1}), false) }, true, 2, 1},
		{"a card is gone", func() { nodes.SetGPU(card(1, "H100", 80000), true) }, true, 1, 1},
		{"the node is gone", func() { nodes.SetNode(node(nil), true) }, true, 0, 1},
		{"the last card is gone", func() { nodes.SetGPU(card(0, "H100", 80000), true) }, false, 0, 0},
	}
	for _, step := range steps {
		step.set()
		if changed, cards := apply(nodes, "n"); changed != step.changed || cards != step.cards {
			t.Fatalf("%s: changed %v, %d cards", step.name, changed, cards)
		}
		if nodes.Len() != step.len {
			t.Fatalf("%s: %d nodes are known", step.name, nodes.Len())
		}
	}
}

func TestNodesMoveCards(t *testing.T) {
	nodes := NewNodes(Node)
	moved := card(0, "H100", 80000)
	nodes.SetGPU(moved, false)
	moved = moved.DeepCopy()
	moved.Spec.NodeName = "m"
	if left, on := nodes.SetGPU(moved, false); left != "n" || on != "m" {
		t.Fatalf("it left %q for %q", left, on)
	}
	if on, known := nodes.NodeOf(moved.Name); !known || on != "m" {
		t.Fatalf("it is on %q", on)
	}
	if len(nodes.Get("n").GPUs) != 0 || len(nodes.Get("m").GPUs) != 1 {
		t.Fatal("the card is not where it says")
	}
	if left, on := nodes.SetGPU(moved, true); left != "m" || on != "" {
		t.Fatalf("it left %q for %q", left, on)
	}
}
