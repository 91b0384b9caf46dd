// Package policy holds the rules that choose among nodes and among the cards of a node.
//
// A rule looks at plain numbers: a node before and after the pod would be on it, the cards it would
// take, and what pods in this cluster usually request. It answers with a score from 0 to 1, higher is
// better, so that rules can be mixed by weight. Rules have no state; the placement engine calls them
// again only for nodes that changed. One file per rule, one line in the registry.
//
// Words: docs/design/glossary.md.
package policy

// The resources every node has; further ones get the next numbers from the engine.
const (
	CPU    = 0 // thousandths of a core
	Memory = 1 // bytes
	Pods   = 2
)

// Whole is the core of one card: shares are thousandths of it.
const Whole = 1000

// Card is one card as the rules see it.
type Card struct {
	Core, FreeCore     int64 // thousandths
	Memory, FreeMemory int64 // MiB; 0 where the card does not report it
	Shares             int32 // how many containers have a part of it
	InSpace            int32 // how many of those run at once rather than in turns
	Model              int32
	NUMA               int32
	Usable             bool // healthy, and in the node's present description
	Busy, MemoryBusy   float32
}

// Idle says whether no container has a part of the card.
func (c *Card) Idle() bool { return c.Shares == 0 }

// Takes says whether the card can be shared in this way: nobody has it, or all that do have it so.
func (c *Card) Takes(space bool) bool {
	return c.Shares == 0 || c.InSpace == 0 && !space || c.InSpace == c.Shares && space
}

// Left is how much of the card can still be given out, in thousandths: the scarcer of core and memory decides.
func (c *Card) Left() int64 {
	if !c.Usable || c.FreeCore <= 0 {
		return 0
	}
	left := c.FreeCore
	if c.Memory > 0 {
		left = min(left, c.FreeMemory*Whole/c.Memory)
	}
	return max(left, 0)
}

// Node is one node as the rules see it.
type Node struct {
	Cards       []Card
	Free, Total []int64   // by resource number
	Links       []float32 // bandwidth between cards a and b at a*len(Cards)+b, GB/s; empty where unknown
	Kinds       [Kinds]int32
}

// Kinds of pods by the cards they take: 0 for a share, n for n whole cards.
const Kinds = 18

// Take is what a pod takes from one card.
type Take struct {
	Card, Unit   int32
	Core, Memory int64
}

// Amount is a quantity of a resource.
type Amount struct {
	Resource int
	Value    int64
}

// Request is the part of a pod that rules care about.
type Request struct {
	Need []Amount
	// Cards is the number of cards, Core the thousandths requested of all of them together.
	Cards int
	Core  int64
	// Kind is the index into Node.Kinds, -1 for a pod without cards.
	Kind int
	// Linked says that the pod's cards talk to each other, so links matter.
	Linked bool
}

// Amount of a resource the request needs.
func (r *Request) Amount(resource int) int64 {
	for i := range r.Need {
		if r.Need[i].Resource == resource {
			return r.Need[i].Value
		}
	}
	return 0
}

// Case is one question: this pod on this node.
type Case struct {
	Before  *Node // as it is
	After   *Node // with the pod's resources and Takes off
	Request *Request
	Takes   []Take
	Demand  *Demand
	Salt    uint64 // changes from pod to pod; for the random rule
}

// Rule scores from 0 to 1, higher is better.
type Rule interface {
	Name() string
	// Node scores the node, given the cards in Takes.
	Node(*Case) float64
	// Card scores giving the pod this card next.
	Card(*Case, Take) float64
}

// Chooser is a Rule that picks a set of n equal cards at once, among those in the bit set. It returns the chosen set.
type Chooser interface {
	Choose(c *Case, candidates uint64, n int) uint64
}

// Shuffler is a Rule among whose equals a lot decides instead of the name.
type Shuffler interface {
	Shuffle()
}

// DemandBound is a Rule that reads Case.Demand: its scores age when demand moves.
type DemandBound interface {
	ReadsDemand()
}

// Neighbourly is a Rule whose score of a card depends on other cards of the node, or on which were given before.
type Neighbourly interface {
	ReadsOtherCards()
}
