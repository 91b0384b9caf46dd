package quota

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawTree draws a tree with two flavor-resources and usage within or beyond its quota.
func drawTree(t *rapid.T) (nodes, queues []*Node) {
	frs := []FlavorResource{{0, 0}, {1, 0}}
	for i := range rapid.IntRange(1, 4).Draw(t, "cohorts") {
		n := &Node{Name: fmt.Sprint("c", i), Weight: 1}
		if i > 0 {
			n.Parent = nodes[rapid.IntRange(0, i-1).Draw(t, "parent")]
		}
		nodes = append(nodes, n)
	}
	cohorts := nodes
	for i := range rapid.IntRange(1, 5).Draw(t, "queues") {
		n := &Node{Name: fmt.Sprint("q", i), Leaf: true, Weight: 1, Parent: rapid.SampledFrom(cohorts).Draw(t, "cohort")}
		nodes, queues = append(nodes, n), append(queues, n)
	}
	for _, n := range nodes {
		if n.Parent != nil {
			n.Parent.Children = append(n.Parent.Children, n)
		}
		n.Grow(len(frs))
		for fr := range n.Cells {
			n.Cells[fr].SetQuota(rapid.Int64Range(0, 6).Draw(t, "nominal"), drawLimit(t, "borrowing limit"), drawLimit(t, "lending limit"))
			if n.Leaf {
				n.Cells[fr].Use = [2]int64{rapid.Int64Range(0, 8).Draw(t, "now"), rapid.Int64Range(0, 8).Draw(t, "future")}
			}
		}
	}
	nodes[0].Settle(frs, 1)
	return nodes, queues
}

func drawLimit(t *rapid.T, label string) *int64 {
	if v := rapid.Int64Range(-1, 4).Draw(t, label); v >= 0 {
		return &v
	}
	return nil
}

// cards is a Rollbacker: a list that grows.
type cards []int

func (c *cards) Checkpoint() int   { return len(*c) }
func (c *cards) Rollback(mark int) { *c = (*c)[:mark] }

// state is what a rollback has to bring back.
type state struct {
	mark  int
	use   [][2]int64
	cards cards
}

func stateOf(txn *Txn, nodes []*Node) state {
	s := state{mark: txn.Checkpoint(), cards: slices.Clone(*txn.Nodes.(*cards))}
	for _, n := range nodes {
		for _, c := range n.Cells {
			s.use = append(s.use, c.Use)
		}
	}
	return s
}

// After any changes and nested rollbacks, usage and cards are what they were at the checkpoint; and at
// any time a cohort's usage is what its children need from it.
func TestRollbackRestoresUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, queues := drawTree(t)
		txn := &Txn{Nodes: &cards{}}
		stack := []state{stateOf(txn, nodes)}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			q := rapid.SampledFrom(queues).Draw(t, "queue")
			view := View(rapid.IntRange(0, 1).Draw(t, "view"))
			amounts := []Amount{{rapid.Int32Range(0, 1).Draw(t, "flavor"), rapid.Int64Range(1, 5).Draw(t, "amount")}}
			switch rapid.SampledFrom([]string{"add", "sub", "cards", "checkpoint", "rollback"}).Draw(t, "step") {
			case "add":
				txn.Add(q, amounts, view)
			case "sub":
				txn.Sub(q, amounts, view)
			case "cards":
				txn.ChangeNodes()
				*txn.Nodes.(*cards) = append(*txn.Nodes.(*cards), i)
			case "checkpoint":
				stack = append(stack, stateOf(txn, nodes))
			case "rollback":
				to := rapid.IntRange(0, len(stack)-1).Draw(t, "checkpoint")
				checkRollback(t, txn, nodes, stack[to])
				stack = stack[:to+1]
			}
			checkSums(t, nodes)
		}
		checkRollback(t, txn, nodes, stack[0])
	})
}

func checkRollback(t *rapid.T, txn *Txn, nodes []*Node, want state) {
	txn.Rollback(want.mark)
	if got := stateOf(txn, nodes); got.mark != want.mark || !slices.Equal(got.use, want.use) || !slices.Equal(got.cards, want.cards) {
		t.Fatalf("rolled back to\n%v, at the checkpoint it was\n%v", got, want)
	}
}

func checkSums(t *rapid.T, nodes []*Node) {
	for _, n := range nodes {
		for fr, c := range n.Cells {
			var need [2]int64
			for _, ch := range n.Children {
				for k, use := range ch.Cells[fr].Use {
					need[k] += max(0, use-ch.Cells[fr].Local)
				}
			}
			if !n.Leaf && c.Use != need {
				t.Fatalf("cohort %s uses %v, its children need %v", n.Name, c.Use, need)
			}
		}
	}
}

// Available is the largest amount that fits: Fits, Blocked and Available agree. Adding that much takes
// no node beyond its quota and borrowing limit.
func TestAvailableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, queues := drawTree(t)
		q := rapid.SampledFrom(queues).Draw(t, "queue")
		most := q.Available(0, Now)
		if !q.Fits(0, most, Now) || q.Fits(0, most+1, Now) {
			t.Fatalf("%d are available to %s; that much fits: %t, one more: %t", most, q.Name, q.Fits(0, most, Now), q.Fits(0, most+1, Now))
		}
		if at, missing := q.Blocked(0, most+1, Now); at == nil || missing != 1 {
			t.Fatalf("one more than available is blocked at %v, where %d are missing", at, missing)
		}
		if most < 0 {
			return
		}
		for n, v := q, most; n != nil && v > 0; n = n.Parent { // as far up as usage changes
			v = n.AddStep(0, v, Now)
			if c := &n.Cells[0]; c.Use[Now] > limit(n) {
				t.Fatalf("%s uses %d, and may use %d", n.Name, c.Use[Now], limit(n))
			}
		}
		if left := q.Available(0, Now); left != 0 {
			t.Fatalf("%d are left to %s after it took all", left, q.Name)
		}
	})
}

// limit is what a node may use by its own quota and borrowing limit.
func limit(n *Node) int64 {
	switch c := &n.Cells[0]; {
	case n.Parent == nil:
		return c.Subtree
	case c.BorrowingLimit != NoLimit:
		return c.Subtree + c.BorrowingLimit
	}
	return Unlimited
}

// Amounts in a list stay sorted, one for each flavor-resource.
func TestAddAmount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []Amount
		want := map[int32]int64{}
		for range rapid.IntRange(1, 20).Draw(t, "amounts") {
			fr, v := rapid.Int32Range(0, 6).Draw(t, "flavor-resource"), rapid.Int64Range(-3, 3).Draw(t, "amount")
			list = AddAmount(list, fr, v)
			want[fr] += v
		}
		if len(list) != len(want) || !slices.IsSortedFunc(list, func(a, b Amount) int { return int(a.FR - b.FR) }) {
			t.Fatalf("the list is %v, the sums are %v", list, want)
		}
		for fr := range int32(8) {
			if got := AmountOf(list, fr); got != want[fr] {
				t.Fatalf("%d of %d, want %d", got, fr, want[fr])
			}
		}
	})
}

// Quotas so large that their sum is no number are as good as unlimited: one without any can borrow from them, and what
// is used of them is given back.
func TestQuotasBeyondCountingCanBeBorrowed(t *testing.T) {
	root := &Node{Name: "all", Weight: 1}
	for i := range 10 {
		q := &Node{Name: fmt.Sprint("q", i), Leaf: true, Weight: 1, Parent: root}
		q.Grow(1)
		if i > 0 {
			most := int64(math.MaxInt64)
			q.Cells[0].SetQuota(math.MaxInt64, &most, &most)
		}
		root.Children = append(root.Children, q)
	}
	root.Grow(1)
	root.Settle([]FlavorResource{{0, 0}}, 1)
	poor, rich := root.Children[0], root.Children[1]
	for _, n := range []*Node{root, poor, rich} {
		if c := n.Cells[0]; c.Max != Unlimited || n.Lendable[0] != Unlimited {
			t.Errorf("%s could get %d, and %d can be lent to it", n.Name, c.Max, n.Lendable[0])
		}
	}
	for _, q := range []*Node{poor, rich} {
		if !q.Fits(0, 1000, Now) || q.Available(0, Now) < 1000 {
			t.Errorf("1000 do not fit in %s, %d are available", q.Name, q.Available(0, Now))
		}
		q.Add(0, Unlimited/2, Now)
	}
	if poor.Fits(0, 2, Now) || root.Available(0, Now) != 1 { // Unlimited is odd
		t.Errorf("all is used, and %d are available", root.Available(0, Now))
	}
	rich.Add(0, -Unlimited/2, Now)
	if !poor.Fits(0, 1000, Now) {
		t.Error("what was given back does not fit")
	}
}
