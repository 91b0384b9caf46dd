package policy

import "testing"

func TestScarceCapacityIsDear(t *testing.T) {
	d := NewDemand([]Ask{{Cards: 1, Core: Whole, Exclusive: true, Weight: 6}, {Cards: 2, Core: Whole, Exclusive: true, Weight: 1}})
	pair := &d.Classes[1] // a quarter of all that is asked of cards
	idle := func() *Node {
		return &Node{Free: []int64{0}, Cards: []Card{{Core: Whole, FreeCore: Whole, Usable: true}, {Core: Whole, FreeCore: Whole, Usable: true}}}
	}
	half := func() *Node {
		n := idle()
		n.Cards[0].FreeCore, n.Cards[0].Shares = 0, 1
		return n
	}
	reprice := func(nodes []*Node) bool {
		free := make([]*Capacity, len(nodes))
		for i, n := range nodes {
			free[i] = &Capacity{}
			d.Measure(n, free[i])
		}
		return d.Reprice(free)
	}
	nodes := []*Node{idle(), idle(), idle(), idle()}
	// 8 cards of capacity, 2 of which will be wanted: four times as much.
	if !reprice(nodes) || prices[pair.price] != 1.5 {
		t.Fatalf("price %v, want 1.5", prices[pair.price])
	}
	if reprice(nodes) {
		t.Fatal("moved without a reason")
	}
	// 2 cards of capacity of 5 that are free: 1.6 times as much.
	scarce := []*Node{idle(), half(), half(), half()}
	if !reprice(scarce) || prices[pair.price] != 4 {
		t.Fatalf("price %v, want 4", prices[pair.price])
	}
	// Three and a half times as much: past the mark of three, but not by far enough to get cheaper again.
	if reprice([]*Node{idle(), idle(), idle(), idle(), idle(), idle(), idle(), half(), half()}) {
		t.Fatalf("price %v moved within the slack", prices[pair.price])
	}
	if !reprice(nodes) || prices[pair.price] != 1.5 {
		t.Fatalf("price %v, want 1.5 again", prices[pair.price])
	}
}
