package quota

import "math"

// Unlimited is where quantities saturate, so that sums of unlimited quotas never wrap.
const Unlimited = math.MaxInt64 / 4

// NoLimit stands for an absent borrowing or lending limit.
const NoLimit = -1

// View says which usage is meant.
type View uint8

// The views of usage.
const (
	Now    View = iota // every workload with quota reserved
	Future             // without those being evicted, with those nominated
)

// FlavorResource is one resource in one flavor, both by index.
type FlavorResource struct {
	Flavor, Resource int32
}

// Cell is one flavor-resource at one node.
type Cell struct {
	Nominal                      int64
	BorrowingLimit, LendingLimit int64 // may be NoLimit
	Subtree                      int64 // nominal quota plus what the children lend
	Local                        int64 // guaranteed quota: the part of Subtree that the parent never sees
	Max                          int64 // the most that could ever be used from here
	Use                          [2]int64
}

// Node is a queue or a cohort in a tree of quotas.
type Node struct {
	Name     string
	ID       int  // its number in the tree
	Leaf     bool // a queue, whose usage is its own; a cohort's is that of its children
	Parent   *Node
	Children []*Node // by name, queues after cohorts
	Root     *Node
	Height   int // longest way down to a queue; 0 for a queue
	Weight   float64

	Cells    []Cell  // by flavor-resource
	Lendable []int64 // by resource: the most that children could get here
}

// Grow makes room for cells of size flavor-resources.
func (n *Node) Grow(size int) {
	for len(n.Cells) < size {
		n.Cells = append(n.Cells, Cell{BorrowingLimit: NoLimit, LendingLimit: NoLimit})
	}
}

// ClearQuotas takes away the node's own quotas; usage stays.
func (n *Node) ClearQuotas() {
	for i := range n.Cells {
		c := &n.Cells[i]
		c.Nominal, c.BorrowingLimit, c.LendingLimit = 0, NoLimit, NoLimit
	}
}

// SetQuota sets the cell's own quota; nil limits are absent ones.
func (c *Cell) SetQuota(nominal int64, borrowing, lending *int64) {
	c.Nominal = clamp(nominal)
	if borrowing != nil {
		c.BorrowingLimit = clamp(*borrowing)
	}
	if lending != nil {
		c.LendingLimit = clamp(*lending)
	}
}

func clamp(v int64) int64 { return min(max(v, 0), Unlimited) }

// LocalFree is unused guaranteed quota; the parent does not see it.
func (c *Cell) LocalFree(k View) int64 { return max(0, c.Local-c.Use[k]) }

// Unused is what will be left of nominal quota; negative when the node will borrow.
func (c *Cell) Unused() int64 { return c.Nominal - c.Use[Future] }

// limit is how much more the node may take out of its parent.
func (c *Cell) limit(k View) int64 {
	if c.BorrowingLimit == NoLimit {
		return Unlimited
	}
	stored := c.Subtree - c.Local
	used := max(0, c.Use[k]-c.Local)
	return stored - used + c.BorrowingLimit
}

// Add changes the usage of fr at a queue; what exceeds guaranteed quota counts at its parent too,
// and so on. v may be negative.
func (n *Node) Add(fr int32, v int64, k View) {
	for ; n != nil && v != 0; n = n.Parent {
		v = n.Cells[fr].add(v, k)
	}
}

// AddStep is Add for one level. It returns what is left to add at the parent.
func (n *Node) AddStep(fr int32, v int64, k View) int64 { return n.Cells[fr].add(v, k) }

func (c *Cell) add(v int64, k View) int64 {
	before := max(0, c.Use[k]-c.Local)
	c.Use[k] += v
	return max(0, c.Use[k]-c.Local) - before
}

// Blocked returns the first node on the way up whose quota or borrowing limit has less than v
// left, and how much is missing there; nil when v fits.
func (n *Node) Blocked(fr int32, v int64, k View) (*Node, int64) {
	for ; ; n = n.Parent {
		c := &n.Cells[fr]
		if n.Parent == nil {
			if free := c.Subtree - c.Use[k]; v > free {
				return n, v - free
			}
			return nil, 0
		}
		v -= c.LocalFree(k)
		if lim := c.limit(k); v > lim {
			return n, v - lim
		}
	}
}

// Fits says whether v more can be used.
func (n *Node) Fits(fr int32, v int64, k View) bool {
	b, _ := n.Blocked(fr, v, k)
	return b == nil
}

// Available is the largest v that fits; negative when more is used than there is.
func (n *Node) Available(fr int32, k View) int64 {
	c := &n.Cells[fr]
	if n.Parent == nil {
		return c.Subtree - c.Use[k]
	}
	return c.LocalFree(k) + min(c.limit(k), n.Parent.Available(fr, k))
}

// Borrowing says whether the node uses, with v more, beyond its subtree's quota.
func (n *Node) Borrowing(fr int32, v int64, k View) bool {
	c := &n.Cells[fr]
	return c.Use[k]+v > c.Subtree
}

// BorrowLevel is the height of the lowest subtree whose quota covers v more: 0 when the queue's own
// does. inside reports whether something lies above that subtree, so that quota may be reclaimed from there.
func (n *Node) BorrowLevel(fr int32, v int64, k View) (level int, inside bool) {
	for m := n; ; m = m.Parent {
		if m.Parent == nil {
			return m.Height, false
		}
		if !m.Borrowing(fr, v, k) {
			return m.Height, true
		}
		v -= m.Cells[fr].LocalFree(k)
	}
}

// WithinNominal says whether the node will borrow none of frs.
func (n *Node) WithinNominal(frs []int32) bool {
	for _, fr := range frs {
		if n.Borrowing(fr, 0, Future) {
			return false
		}
	}
	return true
}

// Used is how much the queues in the node's subtree use, guaranteed quota included.
func (n *Node) Used(fr int32, k View) int64 {
	if n.Leaf {
		return n.Cells[fr].Use[k]
	}
	used := int64(0)
	for _, child := range n.Children {
		used += child.Used(fr, k)
	}
	return used
}

// Under says whether the node lies in the subtree of top (or is it).
func (n *Node) Under(top *Node) bool {
	for ; n != nil; n = n.Parent {
		if n == top {
			return true
		}
	}
	return false
}

// Path names the node from the root down.
func (n *Node) Path() string {
	if n.Parent == nil {
		return "/" + n.Name
	}
	return n.Parent.Path() + "/" + n.Name
}
