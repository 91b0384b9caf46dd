package quota

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs testdata/*.txt. Directives:
//
//	tree         its nodes, a cohort before its children; prints what Settle derives
//	               cohort|queue NAME [in=COHORT] [weight=W] [FLAVOR.RESOURCE=NOMINAL[/borrow:N][/lend:N]]...
//	add          QUEUE FLAVOR.RESOURCE=N... [now|future]: usage, in both views unless one is named
//	try          the same in a transaction
//	checkpoint, rollback   of that transaction; they nest
//	usage        of all nodes, now and in the future
//	available    to all nodes, now and in the future
//	fits         QUEUE FLAVOR.RESOURCE=N [now|future]: where it is blocked, and from how far up it borrows
//	shares       of all nodes; with "all", of all usage
//	pair         QUEUE QUEUE FLAVOR.RESOURCE: what the first can have beside the second
func TestScenarios(t *testing.T) {
	for _, path := range must(filepath.Glob("testdata/*.txt")) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &scenario{t: t}
			datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
				s.out.Reset()
				s.run(d)
				return s.out.String()
			})
		})
	}
}

type scenario struct {
	t         *testing.T
	out       strings.Builder
	nodes     []*Node // in the order they are described
	frs       []FlavorResource
	names     []string // of frs
	resources []string
	flavors   []string
	txn       Txn
	marks     []int
	shares    Shares
}

func (s *scenario) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *scenario) run(d *datadriven.TestData) {
	switch d.Cmd {
	case "tree":
		s.tree(strings.Split(d.Input, "\n"))
	case "add":
		s.change(d, func(n *Node, u Amount, k View) { n.Add(u.FR, u.V, k) })
	case "try":
		s.change(d, func(n *Node, u Amount, k View) { s.txn.Add(n, []Amount{u}, k) })
	case "checkpoint":
		s.marks = append(s.marks, s.txn.Checkpoint())
	case "rollback":
		last := len(s.marks) - 1
		s.txn.Rollback(s.marks[last])
		s.marks = s.marks[:last]
	case "usage":
		s.cells(func(n *Node, fr int32, k View) int64 { return n.Cells[fr].Use[k] })
	case "available":
		s.cells(func(n *Node, fr int32, k View) int64 { return n.Available(fr, k) })
	case "fits":
		s.change(d, s.fits)
	case "shares":
		for _, n := range s.nodes {
			share := s.shares.Of(n, s.frs, d.HasArg("all"), Future)
			s.printf("%s %.0f borrowing=%t", n.Path(), share.Value(), share.Borrowing)
		}
	case "pair":
		s.pair(d)
	default:
		d.Fatalf(s.t, "unknown directive %s", d.Cmd)
	}
}

// tree builds a tree of nodes, and forgets the one before.
func (s *scenario) tree(lines []string) {
	*s = scenario{t: s.t}
	for _, line := range lines {
		f := strings.Fields(line)
		n := &Node{Name: f[1], ID: len(s.nodes), Leaf: f[0] == "queue", Weight: 1}
		n.Root = n
		s.nodes = append(s.nodes, n)
		for _, arg := range f[2:] {
			k, v, _ := strings.Cut(arg, "=")
			switch k {
			case "in":
				n.Parent = s.node(v)
				n.Root = n.Parent.Root
				n.Parent.Children = append(n.Parent.Children, n)
			case "weight":
				n.Weight = must(strconv.ParseFloat(v, 64))
			default:
				s.quota(n, k, v)
			}
		}
	}
	for _, n := range s.nodes {
		n.Grow(len(s.frs))
	}
	s.nodes[0].Settle(s.frs, len(s.resources))
	for _, n := range s.nodes {
		for fr, c := range n.Cells {
			s.printf("%s height=%d %s subtree=%d guaranteed=%d max=%d", n.Path(), n.Height, s.names[fr], c.Subtree, c.Local, c.Max)
		}
	}
}

func (s *scenario) quota(n *Node, name, text string) {
	parts := strings.Split(text, "/")
	var limits [2]*int64
	for _, p := range parts[1:] {
		what, v, _ := strings.Cut(p, ":")
		limit := number(v)
		limits[slices.Index([]string{"borrow", "lend"}, what)] = &limit
	}
	fr := s.fr(name)
	n.Grow(len(s.frs))
	n.Cells[fr].SetQuota(number(parts[0]), limits[0], limits[1])
}

func (s *scenario) node(name string) *Node {
	for _, n := range s.nodes {
		if n.Name == name {
			return n
		}
	}
	s.t.Fatalf("no node %s", name)
	return nil
}

// fr is the index of a flavor-resource; a new name gets a new one.
func (s *scenario) fr(name string) int32 {
	if i := slices.Index(s.names, name); i >= 0 {
		return int32(i)
	}
	flavor, resource, _ := strings.Cut(name, ".")
	s.names = append(s.names, name)
	s.frs = append(s.frs, FlavorResource{indexOf(&s.flavors, flavor), indexOf(&s.resources, resource)})
	return int32(len(s.frs) - 1)
}

func indexOf(list *[]string, name string) int32 {
	if i := slices.Index(*list, name); i >= 0 {
		return int32(i)
	}
	*list = append(*list, name)
	return int32(len(*list) - 1)
}

// change calls apply with the amounts and views that a directive names.
func (s *scenario) change(d *datadriven.TestData, apply func(*Node, Amount, View)) {
	views := []View{Now, Future}
	switch {
	case d.HasArg("now"):
		views = []View{Now}
	case d.HasArg("future"):
		views = []View{Future}
	}
	for _, arg := range d.CmdArgs[1:] {
		for _, k := range views {
			if len(arg.Vals) == 1 {
				apply(s.node(d.CmdArgs[0].Key), Amount{s.fr(arg.Key), number(arg.Vals[0])}, k)
			}
		}
	}
}

func (s *scenario) cells(value func(n *Node, fr int32, k View) int64) {
	for _, n := range s.nodes {
		for fr := range n.Cells {
			now, future := value(n, int32(fr), Now), value(n, int32(fr), Future)
			s.printf("%s %s now=%d future=%d", n.Path(), s.names[fr], now, future)
		}
	}
}

func (s *scenario) fits(n *Node, u Amount, k View) {
	verdict := "fits"
	if at, missing := n.Blocked(u.FR, u.V, k); at != nil {
		verdict = fmt.Sprintf("%s lacks %d", at.Name, missing)
	}
	if n.Fits(u.FR, u.V, k) != (u.V <= n.Available(u.FR, k)) {
		s.t.Errorf("%s: Fits and Available disagree", n.Name)
	}
	level, inside := n.BorrowLevel(u.FR, u.V, k)
	s.printf("%s: %s; borrow level %d, inside=%t", []string{"now", "future"}[k], verdict, level, inside)
}

func (s *scenario) pair(d *datadriven.TestData) {
	a, b, fr := s.node(d.CmdArgs[0].Key), s.node(d.CmdArgs[1].Key), s.fr(d.CmdArgs[2].Key)
	x, y := Fork(a, b)
	s.printf("they part at %s and %s", x.Name, y.Name)
	s.printf("available to both: %d; to %s with nothing to reclaim: %d", a.AvailableTogether(b, fr), a.Name, a.AvailableUnborrowed(b, fr))
	s.printf("%s can reclaim from %s: %t", b.Name, a.Name, CanReclaim(b, a, fr))
}

func number(s string) int64 { return must(strconv.ParseInt(s, 10, 64)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
