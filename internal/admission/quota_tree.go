package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// treeNode is a queue or a cohort with what the engine notes of it.
type treeNode struct {
	*quota.Node
	queue   *queue // nil for a cohort
	top     *treeNode
	below   []*treeNode // as Children
	tree    *tree       // at the root only
	changed bool        // since the trees were linked

	contender contender   // fair sharing: the entry this subtree sends up
	openIn    uint64      // fair sharing: search in which there are candidates below
	share     quota.Share // fair sharing: in a search, ...
	shareAt   uint64      // ... Engine.searchSteps as of which it holds
	closedIn  uint64      // fair sharing: pass in which no more victims are found below
}

func newTreeNode(name string, q *queue) *treeNode {
	n := &treeNode{Node: &quota.Node{Name: name, Leaf: q != nil, Weight: 1}, queue: q}
	n.Root, n.top = n.Node, n
	return n
}

// tree is the decision state of one connected tree of cohorts and queues. Trees share no quota, so
// each is decided on its own.
type tree struct {
	root   *treeNode
	nodes  []*treeNode // by ID
	queues []*queue    // by name
	policy CapacityPolicy
	cyclic bool
	listed bool // in Engine.work
	// prepared: its nominations were rebuilt with those of all other trees, and it was not decided since.
	prepared bool

	// Counters of changes; Engine says what each makes void.
	version      uint64
	usageChanges uint64
	improvements uint64
	admittedIn   uint64 // the last decision that admitted a workload

	// Changes since queues were told of them.
	freed         []bool  // by flavor-resource: some usage went down
	anyFreed      bool    // freed has a set entry
	newlyBorrowed []int32 // flavor-resources that some node began to borrow: reclaim may find victims
	usageFreed    bool    // usage went down: a nominated workload may fit
	borrowIndex   []borrowIndex

	nominated   []*workload // in queueOrder
	toNominate  []*workload // pending workloads with victims, not nominated yet
	nominatedAt uint64      // usageChanges when nominations were rebuilt last; 0: nodes or flavors changed since

	reservations []*equivClass // classes with a reservation
	revoked      []*workload   // admissions of this decision that were revoked, to be tried again at its end

	choice     bool // some queue has a resource in more than one flavor
	unreclaims bool // some queue may not reclaim its nominal quota from all others

	needs      nominalNeeds  // as of the last search for what a queue can have without yielding
	yielding   bool          // borrowers yield in this part of the decision
	yieldedFRs []int32       // flavor-resources for which one did
	unreported []*equivClass // classes that yielded before they were told why they wait

	awaitsMinRuntime bool      // some class waits for minimum runtimes to end
	minRuntimeAt     time.Time // when the next one does
	minRuntimeSince  time.Time // as of when that was known

	minRuntimeLongest time.Duration // of its queues and LocalQueues
	minRuntimeKnown   bool          // and that is up to date
}

// newTree counts from where no other tree does: queues move from one tree to another with what they
// noted there. No counter is ever 0.
func (e *Engine) newTree(root *treeNode) *tree {
	e.treesMade++
	from := e.treesMade << 32
	root.ID = 0
	return &tree{root: root, nodes: []*treeNode{root}, version: from, improvements: from, usageChanges: from}
}

// at is the engine's side of a node.
func (t *tree) at(n *quota.Node) *treeNode { return t.nodes[n.ID] }

// setQuotas compiles a node's own quotas into its cells.
func (e *Engine) setQuotas(n *treeNode, groups []ResourceGroup) {
	n.ClearQuotas()
	for _, g := range groups {
		for _, f := range g.Flavors {
			for res, q := range f.Quotas {
				fr := e.intern(f.Flavor, res)
				n.Grow(len(e.frs))
				n.Cells[fr].SetQuota(q.Nominal, q.BorrowingLimit, q.LendingLimit)
			}
		}
	}
	n.changed, e.relink = true, true
}

// cohort returns the cohort of that name, made up if nobody described it yet.
func (e *Engine) cohort(name string) *treeNode {
	n := e.cohorts[name]
	if n == nil {
		n = newTreeNode(name, nil)
		n.changed = true
		e.cohorts[name] = n
	}
	return n
}

// rebuild links the trees anew after cohorts or queues changed, and requeues everything pending in
// the trees that were or are concerned.
func (e *Engine) rebuild() {
	if !e.relink {
		return
	}
	e.relink = false
	nodes := e.allNodes()
	stale := map[*treeNode]bool{}
	for _, n := range nodes {
		if n.changed {
			stale[n.top] = true
		}
	}
	for _, t := range e.trees {
		if stale[t.root] {
			t.dropNominations(e)
		}
	}
	for _, n := range nodes {
		n.changed = n.changed || stale[n.top]
		n.Grow(len(e.frs))
	}
	e.link(nodes)
	for _, n := range nodes {
		n.top.changed = n.top.changed || n.changed
	}
	for _, t := range e.trees {
		e.settleTree(t)
	}
	e.byUsage, e.sampled, e.notesAt = e.byUsage[:0], e.sampled[:0], time.Time{}
	for _, n := range nodes {
		n.changed = false
		if n.queue != nil && n.queue.spec.UsageFairSharing {
			e.byUsage = append(e.byUsage, n.queue)
		}
		if n.queue != nil && e.samplesUsage(n.queue) {
			e.sampled = append(e.sampled, n.queue)
		}
	}
}

// settleTree computes what a tree derives, and requeues its workloads if it changed.
func (e *Engine) settleTree(t *tree) {
	t.root.Settle(e.frs, len(e.resources))
	t.resetBorrowing(len(e.frs))
	if t.minRuntimeKnown = false; t.root.changed {
		t.dropNominations(e)         // of a tree that others joined
		t.minRuntimeAt = time.Time{} // minimum runtimes may be others now
	}
	t.choice, t.unreclaims, t.needs.fr = false, false, -1
	for _, q := range t.queues {
		t.choice = t.choice || q.choice
		t.unreclaims = t.unreclaims || q.spec.Preemption.ReclaimWithinCohort != PreemptAny
		q.lastHint.fr = -1
		q.reservedChanges++
		if t.root.changed {
			q.requeueAll(e)
			q.outdateVerdicts()
		}
		e.ready(q)
	}
}

// allNodes lists cohorts that somebody names, by name, then queues.
func (e *Engine) allNodes() []*treeNode {
	named := map[string]bool{}
	for name, c := range e.cohortSpecs {
		named[name], named[c.Parent] = true, true
	}
	for _, q := range e.queues {
		named[q.spec.Cohort] = true
	}
	nodes := make([]*treeNode, 0, len(e.cohorts)+len(e.queues))
	for name, c := range e.cohorts {
		if named[name] {
			nodes = append(nodes, c)
		} else {
			delete(e.cohorts, name) // link does not find it any more
		}
	}
	for _, q := range e.queues {
		if q.exists {
			nodes = append(nodes, q.at)
		}
	}
	slices.SortFunc(nodes, func(a, b *treeNode) int {
		if (a.queue == nil) != (b.queue == nil) {
			if a.queue == nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return nodes
}

// link sets parents, children and roots. Cohorts in a cycle become the roots of trees marked
// cyclic: nothing is admitted there until it is broken.
func (e *Engine) link(nodes []*treeNode) {
	for _, n := range nodes {
		n.Children, n.below = n.Children[:0], n.below[:0]
		n.Parent = nil
	}
	for _, t := range e.trees {
		t.queues, t.nodes = t.queues[:0], t.nodes[:0] // a tree that lost its root has nothing to decide
	}
	e.trees = e.trees[:0]
	for _, n := range nodes {
		parent := e.parentOf(n)
		if parent == "" || n.queue == nil && e.inCycle(n.Name) {
			continue
		}
		above := e.cohorts[parent]
		n.Parent = above.Node
		above.Children, above.below = append(above.Children, n.Node), append(above.below, n)
	}
	for _, n := range nodes {
		if n.Parent != nil {
			n.tree = nil
		} else {
			e.trees = append(e.trees, e.rootTree(n))
		}
	}
	for _, n := range nodes {
		e.joinTree(n)
	}
}

// rootTree is the tree of a root, emptied.
func (e *Engine) rootTree(n *treeNode) *tree {
	if n.tree == nil {
		n.tree = e.newTree(n)
	}
	t := n.tree
	t.queues, t.nodes = t.queues[:0], t.nodes[:0]
	t.freed = append(t.freed, make([]bool, len(e.frs)-len(t.freed))...)
	t.cyclic = n.queue == nil && e.inCycle(n.Name)
	t.policy = e.policyOf(n)
	return t
}

// joinTree puts a linked node into the tree of its root.
func (e *Engine) joinTree(n *treeNode) {
	root, top := n.Node, n
	for root.Parent != nil {
		root = root.Parent
	}
	if root != n.Node {
		top = e.cohorts[root.Name]
	}
	t := top.tree
	n.Root, n.top, n.ID = root, top, len(t.nodes)
	t.nodes = append(t.nodes, n)
	if n.queue != nil {
		n.queue.tree = t
		t.queues = append(t.queues, n.queue)
	}
}

func (e *Engine) parentOf(n *treeNode) string {
	if n.queue != nil {
		return n.queue.spec.Cohort
	}
	return e.cohortSpecs[n.Name].Parent
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

func (e *Engine) policyOf(root *treeNode) CapacityPolicy {
	if root.queue == nil {
		if p := e.cohortSpecs[root.Name].Policy; p != PolicyDefault {
			return p
		}
	}
	if e.opts.Policy != PolicyDefault {
		return e.opts.Policy
	}
	return PolicyFIFO
}
