package admission

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Quantities saturate here, so sums of "unlimited" quotas never wrap.
const unlimited = math.MaxInt64 / 4

const noLimit = -1

// Usage is kept twice. Now counts everything that holds quota, workloads on
// their way out included. Future counts what will hold quota once those have
// left: without them, and with the room claimed by those who wait for it.
// Whoever is admitted must fit in both.
const (
	now    = 0
	future = 1
)

// cell is one resource in one flavor at one node.
type cell struct {
	nominal, borrow, lend int64 // borrow and lend may be noLimit
	subtree               int64 // own quota plus what children lend
	local                 int64 // part of subtree that the parent never sees
	max                   int64 // most that could ever be used from here
	use                   [2]int64
	side                  int8  // of tree.balance: 1 has quota of its own left, -1 borrows
	place                 int32 // in that list
}

// node is a queue or a cohort in the quota tree.
type node struct {
	name     string
	queue    *queue // nil for a cohort
	parent   *node
	children []*node // by name, queues after cohorts
	root     *node
	tree     *tree // at the root only
	height   int   // longest way down to a queue; 0 for a queue
	weight   float64

	cells    []cell  // by flavor-resource index
	lendable []int64 // by resource index: what children could at most get here
	changed  bool    // since the last rebuild

	cand     contender // fair sharing: the entry this subtree sends up
	closedIn uint64    // fair sharing: hunt in which nothing more can be taken below
}

// amount is a quantity of one flavor-resource.
type amount struct {
	fr int32
	v  int64
}

func amountOf(list []amount, fr int32) int64 {
	for _, u := range list {
		if u.fr == fr {
			return u.v
		}
	}
	return 0
}

func satAdd(a, b int64) int64 { return min(a+b, unlimited) }

// localFree is guaranteed quota that is unused; it is invisible to the parent.
func (c *cell) localFree(k int) int64 { return max(0, c.local-c.use[k]) }

// unused is what will be left of the node's own quota; negative when it borrows.
func (c *cell) unused() int64 { return c.nominal - c.use[future] }

// limit is how much more the node may take out of its parent.
func (c *cell) limit(k int) int64 {
	if c.borrow == noLimit {
		return unlimited
	}
	stored := c.subtree - c.local
	used := max(0, c.use[k]-c.local)
	return stored - used + c.borrow
}

// add changes the usage of fr at a queue and lets what exceeds guaranteed
// quota bubble up. v may be negative: usage at a parent is a function of its
// children's, so adding and taking back in any order is exact.
func (n *node) add(fr int32, v int64, k int) {
	for ; n != nil && v != 0; n = n.parent {
		c := &n.cells[fr]
		before := max(0, c.use[k]-c.local)
		c.use[k] += v
		v = max(0, c.use[k]-c.local) - before
	}
}

// blocked returns the first node on the way up whose quota or borrowing limit
// has less than v left, and how much is missing there; nil when v fits.
func (n *node) blocked(fr int32, v int64, k int) (*node, int64) {
	for ; ; n = n.parent {
		c := &n.cells[fr]
		if n.parent == nil {
			if free := c.subtree - c.use[k]; v > free {
				return n, v - free
			}
			return nil, 0
		}
		v -= c.localFree(k)
		if lim := c.limit(k); v > lim {
			return n, v - lim
		}
	}
}

func (n *node) fits(fr int32, v int64, k int) bool {
	b, _ := n.blocked(fr, v, k)
	return b == nil
}

// available is the largest v that fits; negative when more is used than there is.
func (n *node) available(fr int32, k int) int64 {
	c := &n.cells[fr]
	if n.parent == nil {
		return c.subtree - c.use[k]
	}
	return c.localFree(k) + min(c.limit(k), n.parent.available(fr, k))
}

// borrowing says whether the node uses, with v more, beyond its subtree's quota.
func (n *node) borrowing(fr int32, v int64, k int) bool {
	c := &n.cells[fr]
	return c.use[k]+v > c.subtree
}

// borrowLevel is the height of the lowest subtree whose quota covers v more:
// 0 when the queue's own does. inside reports whether something lies above
// that subtree, so that quota may be taken back from there.
func (n *node) borrowLevel(fr int32, v int64, k int) (level int, inside bool) {
	for m := n; ; m = m.parent {
		if m.parent == nil {
			return m.height, false
		}
		if !m.borrowing(fr, v, k) {
			return m.height, true
		}
		v -= m.cells[fr].localFree(k)
	}
}

// withinNominal: the node will borrow none of frs.
func (n *node) withinNominal(frs []int32) bool {
	for _, fr := range frs {
		if n.borrowing(fr, 0, future) {
			return false
		}
	}
	return true
}

// under says whether the node lies in the subtree of top (or is it).
func (n *node) under(top *node) bool {
	for ; n != nil; n = n.parent {
		if n == top {
			return true
		}
	}
	return false
}

// path names the node from the root down.
func (n *node) path() string {
	if n.parent == nil {
		return "/" + n.name
	}
	return n.parent.path() + "/" + n.name
}

// tree is the decision state of one connected tree of cohorts and queues.
// Trees share no quota, so each is decided on its own.
type tree struct {
	root   *node
	queues []*queue // by name
	policy CapacityPolicy
	cyclic bool

	listed           bool        // in Engine.work
	freed            []bool      // by flavor-resource: some usage went down since the last look
	newlyBorrowed    []int32     // flavor-resources some node started to borrow: reclaim may find victims
	anyFreed         bool        // freed has a set entry
	usageFreed       bool        // usage went down: a waiting claim may be complete
	nominated        []*workload // holders of claims, in the order of their turns
	toNominate       []*workload // who has no claim yet on the room that is made for it
	nominatedAt      [2]uint64   // shifts and Engine.capacity when claims were given last
	version          uint64      // counts usage changes
	admittedIn       uint64      // the last decision that admitted someone
	improvements     uint64      // counts those that may help someone
	usageChanges     uint64      // counts changes of usage, either way
	awaitsMinRuntime bool        // somebody waits for those who have only just started
	minRuntimeAt     time.Time   // when the next of them is not spared any more

	borrowIndex  []borrowIndex // by flavor-resource
	yielding     bool          // borrowers step back for who has quota of its own
	yieldedFRs   []int32       // flavor-resources for which someone did
	unreported   []*equivClass // of those, who has yet to hear why it waits
	revoked      []*workload   // admissions of this decision that were taken back, to be tried again at its end
	reservations []*equivClass // who keeps room from others while it waits
}

// newTree counts from where no other tree does: queues come from one to another with what they noted there. What was
// refused never is 0.
func (e *Engine) newTree(root *node) *tree {
	e.treesMade++
	from := e.treesMade << 32
	return &tree{root: root, version: from, improvements: from, usageChanges: from}
}

// setQuotas compiles a node's own quotas into its cells.
func (e *Engine) setQuotas(n *node, groups []ResourceGroup) {
	for i := range n.cells {
		c := &n.cells[i]
		c.nominal, c.borrow, c.lend = 0, noLimit, noLimit
	}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for res, q := range f.Quotas {
				fr := e.intern(f.Flavor, res)
				n.grow(len(e.frs))
				c := &n.cells[fr]
				c.nominal = clamp(q.Nominal)
				if q.BorrowingLimit != nil {
					c.borrow = clamp(*q.BorrowingLimit)
				}
				if q.LendingLimit != nil {
					c.lend = clamp(*q.LendingLimit)
				}
			}
		}
	}
}

func clamp(v int64) int64 { return min(max(v, 0), unlimited) }

func (n *node) grow(size int) {
	for len(n.cells) < size {
		n.cells = append(n.cells, cell{borrow: noLimit, lend: noLimit})
	}
}

// cohort returns the cohort of that name, made up if nobody described it yet.
func (e *Engine) cohort(name string) *node {
	n := e.cohorts[name]
	if n == nil {
		n = &node{name: name, weight: 1, changed: true}
		n.root = n
		e.cohorts[name] = n
	}
	return n
}

// rebuild links the trees anew after cohorts or queues changed, and wakes
// everything pending in the trees that were or are concerned.
func (e *Engine) rebuild() {
	if !e.relink {
		return
	}
	e.relink = false
	nodes := e.allNodes()
	stale := map[*node]bool{}
	for _, n := range nodes {
		if n.changed {
			stale[n.root] = true
		}
	}
	for _, t := range e.trees {
		if stale[t.root] {
			t.dropNominations(e)
		}
	}
	for _, n := range nodes {
		n.changed = n.changed || stale[n.root]
		n.grow(len(e.frs))
	}
	e.link(nodes)
	for _, n := range nodes {
		n.root.changed = n.root.changed || n.changed
	}
	for _, t := range e.trees {
		t.settle(e)
		t.resetBorrowing(len(e.frs))
		if t.root.changed {
			t.dropNominations(e) // of a tree that others joined
		}
		for _, q := range t.queues {
			q.lastHint.fr = -1
			q.reservedChanges++
			if t.root.changed {
				q.requeueAll(e)
			}
			e.ready(q)
		}
	}
	e.byUsage, e.notesAt = e.byUsage[:0], time.Time{}
	for _, n := range nodes {
		n.changed = false
		if n.queue != nil && n.queue.spec.UsageFairSharing {
			e.byUsage = append(e.byUsage, n.queue)
		}
	}
}

func (e *Engine) allNodes() []*node {
	named := map[string]bool{}
	for name, c := range e.cohortSpecs {
		named[name], named[c.Parent] = true, true
	}
	for _, q := range e.queues {
		named[q.spec.Cohort] = true
	}
	nodes := make([]*node, 0, len(e.cohorts)+len(e.queues))
	for name, c := range e.cohorts {
		if named[name] {
			nodes = append(nodes, c)
		} else {
			delete(e.cohorts, name) // link does not find it any more
		}
	}
	for _, q := range e.queues {
		if q.exists {
			nodes = append(nodes, q.node)
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int {
		if (a.queue == nil) != (b.queue == nil) {
			if a.queue == nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	return nodes
}

// link sets parents, children and roots. Cohorts in a cycle become the roots
// of trees marked cyclic: nothing is admitted there until it is broken.
func (e *Engine) link(nodes []*node) {
	for _, n := range nodes {
		n.children = n.children[:0]
		n.parent = nil
	}
	for _, t := range e.trees {
		t.queues = t.queues[:0] // a tree that lost its root has nothing to decide
	}
	e.trees = e.trees[:0]
	for _, n := range nodes {
		parent := e.parentOf(n)
		if parent == "" {
			continue
		}
		if n.queue == nil && e.inCycle(n.name) {
			continue
		}
		n.parent = e.cohorts[parent]
		n.parent.children = append(n.parent.children, n)
	}
	for _, n := range nodes {
		if n.parent != nil {
			n.tree = nil
			continue
		}
		if n.tree == nil {
			n.tree = e.newTree(n)
		}
		t := n.tree
		t.queues = t.queues[:0]
		t.freed = append(t.freed, make([]bool, len(e.frs)-len(t.freed))...)
		t.cyclic = n.queue == nil && e.inCycle(n.name)
		t.policy = e.policyOf(n)
		e.trees = append(e.trees, t)
	}
	for _, n := range nodes {
		r := n
		for r.parent != nil {
			r = r.parent
		}
		n.root = r
		if n.queue != nil {
			r.tree.queues = append(r.tree.queues, n.queue)
		}
	}
}

func (e *Engine) parentOf(n *node) string {
	if n.queue != nil {
		return n.queue.spec.Cohort
	}
	return e.cohortSpecs[n.name].Parent
}

func (e *Engine) inCycle(name string) bool {
	at := name
	for range len(e.cohorts) {
		at = e.cohortSpecs[at].Parent
		if at == "" {
			return false
		}
		if at == name {
			return true
		}
	}
	return false
}

func (e *Engine) policyOf(root *node) CapacityPolicy {
	if root.queue == nil {
		if p := e.cohortSpecs[root.name].Policy; p != PolicyDefault {
			return p
		}
	}
	if e.opts.Policy != PolicyDefault {
		return e.opts.Policy
	}
	return PolicyFIFO
}

// settle computes the derived quantities of a tree from quotas and the
// queues' own usage.
func (t *tree) settle(e *Engine) {
	t.root.sumUp()
	t.root.spreadDown(e)
}

func (n *node) sumUp() {
	n.height = 0
	for _, ch := range n.children {
		ch.sumUp()
		n.height = max(n.height, ch.height+1)
	}
	for fr := range n.cells {
		c := &n.cells[fr]
		c.subtree = c.nominal
		if n.queue == nil {
			c.use = [2]int64{}
		}
		for _, ch := range n.children {
			cc := &ch.cells[fr]
			c.subtree = satAdd(c.subtree, cc.subtree-cc.local)
			c.use[now] += max(0, cc.use[now]-cc.local)
			c.use[future] += max(0, cc.use[future]-cc.local)
		}
		c.local = 0
		if c.lend != noLimit {
			c.local = max(0, c.subtree-c.lend)
		}
	}
}

func (n *node) spreadDown(e *Engine) {
	n.lendable = append(n.lendable[:0], make([]int64, len(e.resources))...)
	for fr := range n.cells {
		c := &n.cells[fr]
		c.max = c.subtree
		if n.parent != nil {
			c.max = satAdd(c.local, n.parent.cells[fr].max)
			if c.borrow != noLimit {
				c.max = min(c.max, satAdd(c.subtree, c.borrow))
			}
		}
		res := e.frs[fr].resource
		n.lendable[res] = satAdd(n.lendable[res], c.max)
	}
	for _, ch := range n.children {
		ch.spreadDown(e)
	}
}
