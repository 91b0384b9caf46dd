package placement

import (
	"cmp"
	"slices"
	"strings"
)

// clone of a node, to try changes on.
func (n *node) clone() *node {
	c := &node{name: n.name, known: n.known, desc: n.desc, view: n.view}
	c.view.Cards = slices.Clone(n.view.Cards)
	c.view.Free = slices.Clone(n.view.Free)
	return c
}

// tried is a copy of a node to try changes on, until the next.
func (e *Engine) tried(n *node) *node {
	cards, free := append(e.try.view.Cards[:0], n.view.Cards...), append(e.try.view.Free[:0], n.view.Free...)
	e.try = node{name: n.name, known: n.known, desc: n.desc, view: n.view}
	e.try.view.Cards, e.try.view.Free = cards, free
	return &e.try
}

// clearing is which pods would have to leave a node so that another fits.
type clearing struct {
	node  *node
	leave []*holding
	// What it costs: the highest priority among the pods that leave, and their core.
	priority int32
	core     int64
	// What moves with them, and what that costs (Defragment).
	units []string
	cost  int64
}

// clearNode finds the pods that must leave the node for the request shape: of those that may, as few and
// of as low priority as possible. nil means that even without all of them it would not fit.
func (e *Engine) clearNode(s *shape, n *node, may func(*holding) bool) *clearing {
	if !n.known || matches(&s.pod, &n.desc) != Fits {
		return nil
	}
	var can []*holding
	for _, h := range n.holdings {
		if may(h) {
			can = append(can, h)
		}
	}
	if len(can) == 0 {
		return nil
	}
	scratch := e.tried(n)
	for _, h := range can {
		h.charge(&scratch.view, -1)
	}
	if e.pick.run(e, s, scratch, 0) != Fits {
		return nil
	}
	// Pods that can stay do, those of high priority first, then the large.
	slices.SortFunc(can, func(a, b *holding) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), cmp.Compare(b.shape.request.Core, a.shape.request.Core),
			strings.Compare(a.key, b.key))
	})
	c := &clearing{node: n}
	for _, h := range can {
		h.charge(&scratch.view, 1)
		if e.pick.run(e, s, scratch, 0) == Fits {
			continue
		}
		h.charge(&scratch.view, -1)
		if len(c.leave) == 0 || h.pod.Priority > c.priority {
			c.priority = h.pod.Priority
		}
		c.leave = append(c.leave, h)
		c.core += h.shape.request.Core
	}
	return c
}

// Move of a pod, or of a gang, to another place.
type Move struct {
	Key  string // of the gang, or of a pod of none
	From string // the node that it leaves for another's sake
	To   []string
}

// DefragmentOptions bound a plan of moves.
type DefragmentOptions struct {
	// Most gangs move; a pod of none counts as one.
	Most int
	// Cost of moving a gang, or a pod of none; below 0 it stays. All together cost at most MostCost. nil: moves cost nothing.
	Cost     func(key string) int64
	MostCost int64
	// Whole is a gang as it was asked for, and is placed again; nil: its pods are placed one by one.
	Whole func(key string) *Gang
}

// mostTried nodes are cleared in the search for a plan, those with the least to move first.
const mostTried = 64

// Defragment plans moves after which the gang fits: as few as possible, and of those the cheapest, each into capacity
// that is free then. Pinned pods, and reservations of no gang, stay where they are. Pod sets with a topology get no plan.
// Without one the error is a *Refusal. Nothing changes.
func (e *Engine) Defragment(g *Gang, o DefragmentOptions) ([]Move, Answer, error) {
	m := &mover{e: e, gang: g, opts: o, txn: e.Begin(), tries: mostTried, from: map[string]string{}, left: map[string][]*holding{}, cleared: map[*shape][]cleared{}}
	defer m.txn.Rollback()
	for i := range g.PodSets {
		set := &g.PodSets[i]
		pod := set.Pod
		pod.Gang, pod.PodSet = g.Key, set.Name
		s, err := e.shapeOf(&pod)
		if err != nil {
			return nil, Answer{}, err
		}
		if set.Topology != nil || e.tooMany(set) != nil {
			return nil, Answer{}, e.refuse(s, nil)
		}
		for n := range set.Count {
			pod.Key = placeholderKey(g.Key, set.Name, n)
			m.pods = append(m.pods, moverPod{pod, s})
		}
	}
	if len(m.pods) == 0 || !m.enough() || !m.place(0) {
		return nil, Answer{}, m.refusal()
	}
	return m.moves, m.answer(), nil
}

// mover is a search for moves.
type mover struct {
	e     *Engine
	gang  *Gang
	opts  DefragmentOptions
	txn   *Txn
	pods  []moverPod
	tries int
	// Gangs that leave, in their order, and the node each leaves for the sake of another; what they cost.
	leave []string
	from  map[string]string
	left  map[string][]*holding
	cost  int64
	moves []Move
	// What clearing each node takes, by request shape and position, as the node was then.
	cleared map[*shape][]cleared
}

// cleared is the clearing of a node, nil if there is none, while it is as it was.
type cleared struct {
	rev uint64
	c   *clearing
}

type moverPod struct {
	pod   Pod
	shape *shape
}

func (m *mover) refusal() error {
	if len(m.pods) == 0 {
		return &Refusal{Detail: "there are no pods"}
	}
	return m.e.refuse(m.pods[0].shape, nil)
}

// enough says that the nodes have as much free as the pods take: moves leave that as it is. Cards that are given out beyond
// their capacity have nothing free.
func (m *mover) enough() bool {
	var free, need int64
	for i := range m.pods {
		need += m.pods[i].shape.request.Core
	}
	for _, n := range m.e.nodes {
		if n == nil || !n.known || n.desc.Unschedulable {
			continue
		}
		for i := range n.view.Cards {
			if card := &n.view.Cards[i]; card.Usable {
				free += max(0, card.FreeCore)
			}
		}
		if free >= need {
			return true
		}
	}
	return free >= need
}

// place puts the pods from the i-th on onto nodes, then those that left for them.
func (m *mover) place(i int) bool {
	if i == len(m.pods) {
		return m.placeAgain()
	}
	p := &m.pods[i]
	if n := m.e.best(p.shape, m.e.salt(p.pod.Key)); n != nil {
		return m.hold(p, n) && m.place(i+1)
	}
	for _, c := range m.clearings(p.shape) {
		if m.tries--; m.tries < 0 {
			return false
		}
		mark, left, cost := len(m.e.journal), len(m.leave), m.cost
		m.clear(c)
		if m.hold(p, c.node) && m.place(i+1) {
			return true
		}
		m.e.undo(mark)
		m.leave, m.cost, m.moves = m.leave[:left], cost, nil
	}
	return false
}

func (m *mover) hold(p *moverPod, n *node) bool {
	if m.e.pick.run(m.e, p.shape, n, 0) != Fits {
		return false
	}
	h := m.e.newHolding(&p.pod, p.shape, n)
	h.placeholder, h.takes = true, m.e.pick.takes()
	m.e.add(h)
	return true
}

// unitOf is what moves with a pod: its gang, or itself.
func unitOf(h *holding) string {
	if h.pod.Gang != "" {
		return h.pod.Gang
	}
	return h.key
}

// costOf is what it costs to move a pod's gang; below 0: it stays.
func (m *mover) costOf(h *holding) int64 {
	switch unit := unitOf(h); {
	case h.pod.Pinned || unit == m.gang.Key || h.pod.Gang == "" && !h.bound:
		return -1
	case m.opts.Cost == nil:
		return 0
	default:
		return m.opts.Cost(unit)
	}
}

// clearings are the nodes on which a pod fits once others have left, the fewest and cheapest first.
func (m *mover) clearings(s *shape) []*clearing {
	known := m.cleared[s]
	if known == nil {
		known = make([]cleared, len(m.e.nodes))
		m.cleared[s] = known
	}
	var list []*clearing
	for pos, n := range m.e.nodes {
		if n == nil {
			continue
		}
		if known[pos].rev != n.rev {
			known[pos] = cleared{n.rev, m.clearing(s, n)}
		}
		if c := known[pos].c; c != nil && m.afford(c) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *clearing) int {
		return cmp.Or(len(a.units)-len(b.units), cmp.Compare(a.cost, b.cost), cmp.Compare(a.core, b.core), strings.Compare(a.node.name, b.node.name))
	})
	return list
}

// clearing of a node, with what leaves with it.
func (m *mover) clearing(s *shape, n *node) *clearing {
	if !slices.ContainsFunc(n.holdings, m.affordable) {
		return nil
	}
	c := m.e.clearNode(s, n, func(h *holding) bool { return m.costOf(h) >= 0 })
	if c == nil {
		return nil
	}
	for _, h := range c.leave {
		if unit := unitOf(h); !slices.Contains(c.units, unit) {
			c.units = append(c.units, unit)
			c.cost += m.costOf(h)
		}
	}
	return c
}

// affordable says whether a pod may move, as far as its own cost goes.
func (m *mover) affordable(h *holding) bool {
	cost := m.costOf(h)
	return cost >= 0 && (m.opts.Cost == nil || cost <= m.opts.MostCost)
}

// afford says whether a clearing is within bounds.
func (m *mover) afford(c *clearing) bool {
	return len(m.leave)+len(c.units) <= m.opts.Most && (m.opts.Cost == nil || m.cost+c.cost <= m.opts.MostCost)
}

// clear takes all pods off their nodes that move with those of a clearing.
func (m *mover) clear(c *clearing) {
	for _, h := range c.leave {
		if h.pod.Gang == "" {
			m.left[h.key] = []*holding{h}
		}
	}
	for _, unit := range c.units {
		if gang := m.e.gangOf(unit); len(gang) > 0 {
			m.left[unit] = slices.Clone(gang)
		}
		for _, h := range m.left[unit] {
			m.e.remove(h)
		}
		m.from[unit] = c.node.name
	}
	m.leave, m.cost = append(m.leave, c.units...), m.cost+c.cost
}

// placeAgain finds other places for those that left.
func (m *mover) placeAgain() bool {
	m.moves = nil
	if slices.ContainsFunc(m.leave, m.fitsNowhere) {
		return false
	}
	for _, unit := range m.leave {
		to, ok := m.placeUnit(unit)
		if !ok {
			return false
		}
		m.moves = append(m.moves, Move{Key: unit, From: m.from[unit], To: to})
	}
	return true
}

// fitsNowhere says that a pod of a unit fits on no node as they are: then it need not be placed to see that.
func (m *mover) fitsNowhere(unit string) bool {
	if m.opts.Whole != nil {
		if whole := m.opts.Whole(unit); whole != nil {
			return slices.ContainsFunc(whole.PodSets, func(set PodSet) bool {
				pod := set.Pod
				pod.Gang, pod.PodSet = whole.Key, set.Name
				s, err := m.e.shapeOf(&pod)
				return err == nil && set.Count > 0 && !m.e.fitsSomewhere(s)
			})
		}
	}
	return slices.ContainsFunc(m.left[unit], func(h *holding) bool { return !m.e.fitsSomewhere(h.shape) })
}

// placeUnit places a gang, or a pod of none, and says on which nodes.
func (m *mover) placeUnit(unit string) (to []string, ok bool) {
	if m.opts.Whole != nil {
		if whole := m.opts.Whole(unit); whole != nil {
			answer := m.txn.Place(whole)
			for _, set := range answer.PodSets {
				for _, at := range set.Placed {
					to = append(to, at.Node)
				}
			}
			return to, answer.Fits
		}
	}
	for _, h := range m.left[unit] {
		n := m.e.best(h.shape, m.e.salt(h.key))
		if n == nil || m.e.pick.run(m.e, h.shape, n, 0) != Fits {
			return nil, false
		}
		moved := m.e.newHolding(&h.pod, h.shape, n)
		moved.bound, moved.placeholder, moved.takes = h.bound, h.placeholder, m.e.pick.takes()
		m.e.add(moved)
		to = append(to, n.name)
	}
	return to, true
}

// answer is where the gang's pods go.
func (m *mover) answer() Answer {
	a := Answer{Fits: true}
	for i := range m.gang.PodSets {
		set := &m.gang.PodSets[i]
		var holds []*holding
		for _, h := range m.e.gangOf(m.gang.Key) {
			if h.pod.PodSet == set.Name {
				holds = append(holds, h)
			}
		}
		at, _ := placed(holds, nil)
		a.PodSets = append(a.PodSets, PodSetAnswer{Name: set.Name, Count: set.Count, Fit: len(holds), Placed: at})
	}
	return a
}
