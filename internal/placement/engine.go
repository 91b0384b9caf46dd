package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Options of an engine. The zero value is a working one.
type Options struct {
	// Policy of the cluster, as policy.Parse reads it; empty means DefaultPolicy.
	Policy string
	// Policies are further ones by the names under which pods choose them.
	Policies map[string]string
	// Topologies are lists of node label keys, from the widest level to the narrowest.
	Topologies map[string][]string
	// Ratings are TFLOPS by card model, beside the built-in table.
	Ratings map[string]float64
	// Demand is what pods usually request. Empty means that the engine learns it from the pods it has.
	Demand []Demand
	// Seed of the random policy.
	Seed uint64
}

// Demand is a kind of pod with how often it comes.
type Demand struct {
	Pod    Pod
	Weight float64
}

// DefaultPolicy leaves free capacity that is most useful to later pods.
const DefaultPolicy = "fragmentation"

// Engine holds the state. See the package comment.
type Engine struct {
	opts     Options
	policies map[string]policy.Policy // "" is the cluster's

	nodes     []*node // by pos; nil where free
	free      []int32 // free positions
	byName    map[string]*node
	unhealthy map[*node]bool // nodes with unhealthy cards

	resources map[string]int // resource numbers
	models    map[string]int32
	named     map[int32]string

	pods   map[string]*holding // without placeholders, which nobody asks for by key
	gangs  map[string]*gang
	shapes map[uint64][]*shape
	// indexed request shapes have scores of all nodes; the least recently used is dropped when there are too many.
	indexed []*shape
	asked   uint64

	labels uint64 // moves when nodes come, go or are labelled anew
	trees  map[string]*tree

	rev, described uint64
	changes        []int32 // positions of nodes in the order they changed
	base           int     // number of changes forgotten

	journal []change
	marks   []int

	demand demandTracker
	pick   picker
	try    node     // a node to try changes on
	seen   []uint64 // by pos: the round in which a refresh met it
	round  uint64
	scored int // nodes scored so far: what decisions cost
}

// node is a node with what is on it.
type node struct {
	pos      int32
	name     string
	lot      uint64 // of the name; for drawing lots
	known    bool   // described; otherwise pods were only said to be there
	desc     Node
	gen      uint64 // of its description, not of its usage; no two descriptions of any nodes have the same
	rev      uint64 // changes with both
	sort     uint64 // hash of what the description says of resources and cards
	state    uint64 // hash of that and of what is left of them ...
	stateAt  uint64 // ... when rev was this
	view     policy.Node
	holdings []*holding
}

// holding is what a pod has of a node and its cards, reserved or bound.
type holding struct {
	key   string
	pod   Pod
	shape *shape
	node  *node
	at    int   // position in node.holdings
	gang  *gang // while it is on its node
	takes []take
	gen   uint64 // of the node, when the takes were found
	bound bool
	// placeholder: reserved for a gang's pod that is not known yet, the one with this number in its set.
	placeholder bool
	number      int
	until       time.Time
}

// gang is what there is of one, sorted by key: its pods, and placeholders no pod has taken yet.
type gang struct {
	holdings []*holding
	one      [1]*holding // most have one
}

// take is a piece of one card.
type take struct {
	index     int // the card's device index
	container int
	need      *need // nil: the amounts are given
	core, mem int64
	space     bool
}

// change of the holdings, so that it can be undone.
type change struct {
	h     *holding
	added bool
}

// New engine. An error means that the options make no sense.
func New(opts Options) (*Engine, error) {
	e := &Engine{
		opts:      opts,
		policies:  map[string]policy.Policy{},
		byName:    map[string]*node{},
		resources: map[string]int{"cpu": policy.CPU, "memory": policy.Memory, "pods": policy.Pods},
		models:    map[string]int32{},
		named:     map[int32]string{},
		pods:      map[string]*holding{},
		gangs:     map[string]*gang{},
		unhealthy: map[*node]bool{},
		shapes:    map[uint64][]*shape{},
		trees:     map[string]*tree{},
	}
	if opts.Policy == "" {
		opts.Policy = DefaultPolicy
	}
	if err := e.addPolicy("", opts.Policy); err != nil {
		return nil, err
	}
	for name, text := range opts.Policies {
		if err := e.addPolicy(name, text); err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
	}
	for name, levels := range opts.Topologies {
		if len(levels) == 0 {
			return nil, fmt.Errorf("topology %s has no levels", name)
		}
	}
	return e, e.demand.init(e, opts.Demand)
}

func (e *Engine) addPolicy(name, text string) error {
	p, err := policy.Parse(text)
	if err != nil {
		return err
	}
	e.policies[name] = p
	return nil
}

// nodeNamed is the node, made if need be.
func (e *Engine) nodeNamed(name string) *node {
	if n := e.byName[name]; n != nil {
		return n
	}
	n := &node{name: name, lot: hashString(hashSeed, name)}
	if last := len(e.free) - 1; last >= 0 {
		n.pos, e.free = e.free[last], e.free[:last]
		e.nodes[n.pos] = n
	} else {
		n.pos = int32(len(e.nodes))
		e.nodes = append(e.nodes, n)
		e.seen = append(e.seen, 0)
	}
	e.byName[name] = n
	e.rebuild(n)
	return n
}

// forget a node that is neither described nor in use.
func (e *Engine) forget(n *node) {
	if n.known || len(n.holdings) > 0 {
		return
	}
	delete(e.byName, n.name)
	e.nodes[n.pos] = nil
	e.free = append(e.free, n.pos)
	e.touch(n)
}

// rebuild the view of a node from its description and its holdings.
func (e *Engine) rebuild(n *node) {
	e.described++
	n.gen = e.described
	delete(e.unhealthy, n)
	v := &n.view
	*v = policy.Node{Cards: make([]policy.Card, len(n.desc.Cards)), Total: e.amounts(n)}
	v.Free = slices.Clone(v.Total)
	for i := range n.desc.Cards {
		c := &n.desc.Cards[i]
		if c.Unhealthy != "" {
			e.unhealthy[n] = true
		}
		v.Cards[i] = policy.Card{
			Core: policy.Whole, FreeCore: policy.Whole, Memory: c.Memory, FreeMemory: c.Memory,
			Model: e.model(c.Model), NUMA: int32(c.NUMA), Usable: c.Unhealthy == "",
			Busy: float32(c.Load.Core), MemoryBusy: float32(c.Load.Memory),
		}
		for _, l := range c.Links {
			if to := n.at(l.To); to >= 0 && to != i {
				if v.Links == nil {
					v.Links = make([]float32, len(v.Cards)*len(v.Cards))
				}
				v.Links[i*len(v.Cards)+to] = float32(l.Bandwidth)
				v.Links[to*len(v.Cards)+i] = float32(l.Bandwidth)
			}
		}
	}
	n.sort = n.sortOf()
	for _, h := range n.holdings {
		e.resolve(h)
		h.charge(v, 1)
	}
	e.touch(n)
}

func (e *Engine) amounts(n *node) []int64 {
	for name := range n.desc.Resources {
		e.resource(name)
	}
	total := make([]int64, len(e.resources))
	total[policy.Pods] = math.MaxInt32
	for name, value := range n.desc.Resources {
		total[e.resources[name]] = value
	}
	return total
}

// resource is the number of a resource.
func (e *Engine) resource(name string) int {
	id, known := e.resources[name]
	if !known {
		id = len(e.resources)
		e.resources[name] = id
	}
	return id
}

// model is the number of a card model. It depends on the name alone: demand is sorted by it, and must
// not depend on which model came first.
func (e *Engine) model(name string) int32 {
	id, known := e.models[name]
	if !known {
		id = int32(hashString(hashSeed, name) >> 33)
		for e.named[id] != "" {
			id++ // another name with the same hash
		}
		e.models[name] = id
		e.named[id] = name
	}
	return id
}

// at is the position of the card with this device index, or -1.
func (n *node) at(index int) int {
	for i := range n.desc.Cards {
		if n.desc.Cards[i].Index == index {
			return i
		}
	}
	return -1
}

// resolve the amounts of a holding's takes against the cards as they are described now.
func (e *Engine) resolve(h *holding) {
	for i := range h.takes {
		t := &h.takes[i]
		if at := h.node.at(t.index); t.need != nil && at >= 0 {
			t.core, t.mem, _ = t.need.of(e, &h.node.desc.Cards[at], h.node.desc.Cards[at].Memory)
		}
	}
}

// charge puts a holding on a node's numbers (sign 1) or takes it off (-1).
func (h *holding) charge(v *policy.Node, sign int64) {
	for _, a := range h.shape.request.Need {
		if a.Resource < len(v.Free) {
			v.Free[a.Resource] -= sign * a.Value
		}
	}
	for i := range h.takes {
		t := &h.takes[i]
		at := h.node.at(t.index)
		if at < 0 {
			continue
		}
		card := &v.Cards[at]
		card.FreeCore -= sign * t.core
		card.FreeMemory -= sign * t.mem
		card.Shares += int32(sign)
		if t.space {
			card.InSpace += int32(sign)
		}
	}
	if kind := h.shape.request.Kind; kind >= 0 {
		v.Kinds[kind] += int32(sign)
	}
}

// touch logs that the node's state changed.
func (e *Engine) touch(n *node) {
	// Request shapes that lag behind by more than this re-score everything anyway.
	if limit := 4*len(e.nodes) + 1024; len(e.changes) > limit {
		e.base += limit / 2
		e.changes = append(e.changes[:0], e.changes[limit/2:]...)
	}
	e.changes = append(e.changes, n.pos)
	e.rev++
	n.rev = e.rev
}

func (e *Engine) newHolding(pod *Pod, s *shape, n *node) *holding {
	return &holding{key: pod.Key, pod: *pod, shape: s, node: n, gen: n.gen}
}

// add a holding to its node, its gang and the journal.
func (e *Engine) add(h *holding) {
	e.resolve(h)
	h.at = len(h.node.holdings)
	h.node.holdings = append(h.node.holdings, h)
	h.charge(&h.node.view, 1)
	if !h.placeholder {
		e.pods[h.key] = h
	}
	h.shape.refs++
	if h.pod.Gang != "" {
		e.joinGang(h)
	}
	e.touch(h.node)
	e.note(h, true)
}

// remove undoes add.
func (e *Engine) remove(h *holding) {
	list := h.node.holdings
	last := len(list) - 1
	list[h.at] = list[last]
	list[h.at].at = h.at
	list[last] = nil
	h.node.holdings = list[:last]
	h.charge(&h.node.view, -1)
	if !h.placeholder {
		delete(e.pods, h.key)
	}
	h.shape.refs--
	if h.pod.Gang != "" {
		e.leaveGang(h)
	}
	e.touch(h.node)
	e.note(h, false)
	e.unlearn(h.shape)
}

// joinGang inserts by key, so that which placeholder a pod takes does not depend on history.
func (e *Engine) joinGang(h *holding) {
	g := e.gangs[h.pod.Gang]
	if g == nil {
		g = &gang{}
		g.holdings = g.one[:0]
		e.gangs[h.pod.Gang] = g
	}
	g.holdings = slices.Insert(g.holdings, g.find(h), h)
	h.gang = g
}

func (e *Engine) leaveGang(h *holding) {
	g, i := h.gang, h.gang.find(h)
	h.gang = nil
	if g.holdings = slices.Delete(g.holdings, i, i+1); len(g.holdings) == 0 {
		delete(e.gangs, h.pod.Gang)
	}
}

// find is where a holding is, or would be.
func (g *gang) find(h *holding) int {
	i, _ := slices.BinarySearchFunc(g.holdings, h.key, func(o *holding, key string) int { return strings.Compare(o.key, key) })
	return i
}

// gangOf is what there is of a gang; it changes as they come and go.
func (e *Engine) gangOf(key string) []*holding {
	if g := e.gangs[key]; g != nil {
		return g.holdings
	}
	return nil
}

func (e *Engine) note(h *holding, added bool) {
	if len(e.marks) > 0 {
		e.journal = append(e.journal, change{h, added})
		return
	}
	e.demand.count(e, h, added)
}
