package placement

import "github.com/elastic-ai/elastic/internal/nodematch"

// Node as the cluster describes it.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []Taint
	// Unschedulable nodes take no new pods; those they have stay.
	Unschedulable bool
	// Resources are allocatable amounts: cpu in thousandths, everything else in units (memory in bytes).
	// A node that does not say "pods" has no limit on them.
	Resources map[string]int64
	Cards     []Card
}

// Card is one physical card of a node. Cards of a node may differ.
type Card struct {
	Index  int // the device index containers see
	UUID   string
	Model  string
	Memory int64 // MiB
	// TFLOPS of the card; 0 means by Options.Ratings or the built-in table.
	TFLOPS float64
	NUMA   int
	Links  []Link
	// Unhealthy says what is wrong with the card; empty means healthy.
	Unhealthy string
	Load      Load
}

// Link between two cards of a node.
type Link struct {
	To        int     // the other card's Index
	Bandwidth float64 // GB/s
}

// Load is measured, not requested. Both are parts of the whole, 0 to 1.
type Load struct{ Core, Memory float64 }

// What a pod asks of nodes and what nodes refuse, in Kubernetes' words. In Pod.Affinity the key
// "metadata.name" of a requirement stands for the node's name.
type (
	Term        = nodematch.Term
	Requirement = nodematch.Requirement
	Preference  = nodematch.Preference
	Toleration  = nodematch.Toleration
	Taint       = nodematch.Taint
)

// Container of a pod. Init containers that ask for cards are containers like others here.
type Container struct {
	Name  string
	Cards CardRequest
}

// Arrange says how containers of one pod share cards.
type Arrange uint8

const (
	Anyhow   Arrange = iota // whatever fits best
	Together                // all on the same card or cards
	Apart                   // no two on one card
)

// Pod to be placed, or placed already.
type Pod struct {
	Key         string // namespace/name
	Priority    int32
	Resources   map[string]int64 // summed over containers, in the units of Node.Resources; one of "pods" is implied
	Containers  []Container
	Arrange     Arrange
	Selector    map[string]string
	Affinity    []Term // any of these
	Tolerations []Toleration
	// IgnoresTaints has the pod placed on nodes whose taints it does not tolerate. Those that take no pods at all take
	// none of these.
	IgnoresTaints bool
	// Policy is the name of one in Options.Policies, or a policy as policy.Parse reads it; empty means the cluster's.
	Policy string
	// Gang and PodSet tie the pod to what Txn.Commit reserved for its job.
	Gang, PodSet string
	// Pinned pods are not moved by a defragmentation plan.
	Pinned bool
}

// Grant is the cards one container gets.
type Grant struct {
	Container string
	Cards     []CardGrant
}

// CardGrant is a piece of one card. An exclusive card is granted in full.
type CardGrant struct {
	Index        int
	Core, Memory int64
}

// Assignment of a pod: the node and the cards of each container that asked for some.
type Assignment struct {
	Node   string
	Grants []Grant
}

// Gang is a job's pods: all are placed or none is.
type Gang struct {
	Key     string
	PodSets []PodSet
}

// PodSet is Count pods like Pod. Pod.Key, Gang and PodSet are filled in by the engine.
type PodSet struct {
	Name     string
	Count    int
	Pod      Pod
	Topology *TopologyRequest
}

// TopologyMode says how strongly pods want to be near each other.
type TopologyMode uint8

const (
	Unconstrained TopologyMode = iota // anywhere in the topology
	Preferred                         // in one domain of Level if possible, else of the next level up, else in few
	Required                          // in one domain of Level
)

// TopologyRequest of a pod set, with the meaning of Kueue's topology-aware scheduling.
type TopologyRequest struct {
	// Topology names a list of Options.Topologies.
	Topology string
	Mode     TopologyMode
	// Level is a label key of the topology.
	Level string
	// Slices are cut of the pods, from wide levels to narrow ones; each size is a multiple of the next.
	Slices []Slice
	// FullestFirst fills the domains with the least free capacity first, rather than use few domains.
	FullestFirst bool
	// Balanced spreads pods that prefer a level evenly over as few domains below it as possible, if it can.
	Balanced bool
	// Preferences take nodes, and domains with more of them, before others.
	Preferences []Preference
	// Group ties pod sets to one domain: those of the same group go to the same one.
	Group string
}

// Slice says that every Size pods stay in one domain of Level.
type Slice struct {
	Level string
	Size  int
}

// Placed is some pods of a set on one node.
type Placed struct {
	Node string
	// Domain is the node's label values along the topology's levels; empty without a topology.
	Domain []string
	Count  int
	// Cards of each of the Count pods.
	Cards [][]Grant
}

// PodSetAnswer is where the pods of one set go.
type PodSetAnswer struct {
	Name   string
	Placed []Placed
	// Fit is how many of Count fit.
	Fit, Count int
	// holds are the placeholders of Placed, in its order: held again they need not be made again.
	holds []*holding
}

// Answer to a gang.
type Answer struct {
	Fits    bool
	PodSets []PodSetAnswer
	// Refusal is set when not all pods fit.
	Refusal *Refusal
}
