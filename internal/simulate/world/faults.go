package world

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Faults are nodes that are lost and come back, or come late.
type Faults struct {
	// Every is the mean time between losses of a node, over all nodes of the cluster before --set changes it, in seconds; 0: none
	// is lost. A node is lost as often however many others there are.
	Every int64
	// Down is how long a lost node is away.
	Down int64
	// Spot are nodes that their provider takes back.
	Spot []Spot
	// StockOuts are times in which no node comes: neither one that is away nor one that is new.
	StockOuts []StockOut
	// Seed of what is drawn, for each node by its name: nodes that two clusters share have the same faults.
	Seed uint64
}

// Spot nodes are taken back one by one, and replaced later. Times are seconds.
type Spot struct {
	Nodes string // as matches reads it
	Every int64  // how long a node stays, on average
	Down  int64  // until another one comes for it
}

// StockOut is a time in which a provider has no nodes to give.
type StockOut struct {
	Nodes    string // as matches reads it
	From, To int64
}

// matches says whether a node is one of those with this model or label, KEY=VALUE; all are those of "".
func (n *Node) matches(nodes string) bool {
	if key, value, ok := strings.Cut(nodes, "="); ok {
		has, _ := n.label(key)
		return has == value
	}
	return nodes == "" || n.Model == nodes
}

// schedule draws the first faults.
func (f *Faults) schedule(w *World) {
	for i, n := range w.order {
		if f.Every > 0 {
			n.random = f.random(n.node, "fault")
			w.drawFault(i)
		}
		if w.spotOf(n) != nil {
			n.spot = f.random(n.node, "spot")
		}
		if until := f.stockedOut(n.node, w.now); n.node.New && until > w.now {
			w.lose(i, until)
		} else {
			w.drawSpotLoss(i)
		}
	}
}

// random numbers of a node, of a kind.
func (f *Faults) random(n *Node, kind string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind + "/" + n.Name)) // a hash returns no error
	return rand.New(rand.NewPCG(f.Seed, h.Sum64()))
}

// stockedOut is when nodes like this one can be had again, if they cannot at a time.
func (f *Faults) stockedOut(n *Node, at int64) (until int64) {
	for _, s := range f.StockOuts {
		if n.matches(s.Nodes) && s.From <= at && at < s.To {
			until = max(until, s.To)
		}
	}
	return until
}

// drawFault draws when a node is lost next.
func (w *World) drawFault(i int) {
	n := w.order[i]
	mean := float64(w.settings.Faults.Every) * float64(cmp.Or(w.cluster.nodesBefore, len(w.order)))
	at := w.now + 1 + int64(n.random.ExpFloat64()*mean)
	w.events.push(event{at: at, kind: nodeFails, of: int32(i)})
}

// drawSpotLoss draws when a node is taken back that came just now.
func (w *World) drawSpotLoss(i int) {
	n := w.order[i]
	if s := w.spotOf(n); s != nil {
		at := w.now + 1 + int64(n.spot.ExpFloat64()*float64(s.Every))
		w.events.push(event{at: at, kind: nodeTaken, of: int32(i), run: n.life})
	}
}

func (w *World) spotOf(n *nodeState) *Spot {
	list := w.settings.Faults.Spot
	if i := slices.IndexFunc(list, func(s Spot) bool { return s.Every > 0 && n.node.matches(s.Nodes) }); i >= 0 {
		return &list[i]
	}
	return nil
}

// failNode loses a node by a fault.
func (w *World) failNode(i int) {
	if w.order[i].random != nil {
		w.drawFault(i)
	}
	if !w.order[i].down {
		w.figures.faults++
		w.lose(i, w.now+max(1, w.settings.Faults.Down))
	}
}

// takeNode loses a spot node, if it is still the one that was to be taken.
func (w *World) takeNode(i int, life int32) {
	if n := w.order[i]; !n.down && n.life == life {
		w.figures.taken++
		w.lose(i, w.now+max(1, w.spotOf(n).Down))
	}
}

// lose a node until a time: what runs there in part or in whole is evicted.
func (w *World) lose(i int, until int64) {
	n := w.order[i]
	n.cost = n.paid(w.now)
	w.setDown(n, true)
	w.lost++
	w.policies.nodesChanged()
	w.placer.Saw(n.node.object(false), false)
	for _, job := range slices.Clone(n.jobs) {
		w.requeue(job, Moment{At: w.now, Job: job, What: Evicted, By: -1})
	}
	w.events.push(event{at: until, kind: nodeReturns, of: int32(i)})
}

// returnNode brings a node back, or another one for it, once there is one to be had.
func (w *World) returnNode(i int) {
	n := w.order[i]
	if until := w.settings.Faults.stockedOut(n.node, w.now); until > w.now {
		w.events.push(event{at: until, kind: nodeReturns, of: int32(i)})
		return
	}
	w.setDown(n, false)
	n.since = w.now
	n.life++
	w.lost--
	w.policies.nodesChanged()
	w.drawSpotLoss(i)
	if w.placer.Saw(n.node.object(true), false) {
		w.engine.Apply(admission.CapacityChanged{})
	}
}
