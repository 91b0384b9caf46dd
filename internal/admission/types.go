package admission

import (
	"maps"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
	"github.com/elastic-ai/elastic/internal/nodematch"
)

// Key names a workload (or a local queue) by namespace and name.
type Key struct {
	Namespace, Name string
}

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Requests maps a resource name to an amount in the unit Kueue counts it in:
// thousandths for cpu, whole units (bytes, cards, pods) for everything else.
type Requests map[string]int64

// CPU is the one resource counted in thousandths; Pods is counted by the engine itself.
const (
	CPU  = "cpu"
	Pods = "pods"
)

// Workload is everything the engine wants to know of one workload. The zero
// state is "pending and active"; Admission, Evicting and Finished say otherwise.
type Workload struct {
	Key
	UID        string
	LocalQueue string // name of a LocalQueue in the workload's namespace

	// Priority is the effective one: the class's value plus any boost.
	Priority int64
	Created  time.Time
	// EvictedAt and EvictedBy tell of the last eviction (zero: never evicted).
	// Options.RequeueByCreation says which of them move the workload back in its queue.
	EvictedAt time.Time
	EvictedBy string
	// EvictedFor is the UID of the preemptor, if it is being evicted for one.
	EvictedFor string
	// Nominated: it was told to wait for quota that others free (WaitingForPreemptedWorkloads).
	Nominated bool
	// Moving: it is evicted, or was, to start again on other nodes with the quota that it had, and was told of no reason to
	// wait since.
	Moving bool
	// AwaitsPods: it was told to wait until the pods of others are ready (WaitingForPodsReady).
	AwaitsPods bool
	// PreemptedByOthers: the last eviction was for another queue's workload.
	PreemptedByOthers bool

	PodSets []PodSet

	Inactive bool   // spec.active is false: not considered; evicted if it holds quota
	Gated    bool   // an admission gate is closed: not considered yet
	Refused  string // what is wrong with it, in words for its user: not considered; "": nothing
	Unready  string // what it lacks before it is considered, in words for its user; "": nothing
	// Awaits are the workloads that have to end before it is considered, in words for its user; "": none. AwaitsInVain
	// says that as things are they never will, or not as it asks.
	Awaits       string
	AwaitsInVain bool
	RequeueAt    time.Time // not considered before this time (backoff)

	// Admission is the quota reserved for the workload; nil while pending.
	Admission *Admission
	// Evicting: it still has its Admission, and is being evicted.
	Evicting bool
	Finished bool
	// PodsReady matters with Options.BlockUntilReady only.
	PodsReady bool

	MaxRunTime      time.Duration // maximum execution time; 0: unlimited
	RanBefore       time.Duration // execution time used up in earlier admissions
	ExpectedRunTime time.Duration // declared or learned, for the forecast; 0: unknown
	StartedAt       time.Time     // when it was admitted (all checks ready); zero: not yet

	// NeverPreempt: it asks not to be preempted, and its queue's policy honours that. Then it does not borrow either.
	NeverPreempt bool
	// PreemptionGated: a preemption gate is closed. It takes free quota, and preempts nobody.
	PreemptionGated bool
	// Extra: pods that an elastic job has beyond its minimum. They are for idle quota: they preempt nobody and reserve
	// nothing, and are asked for before anyone else is preempted.
	Extra bool
	// Stays: when it is preempted it is swapped, so that it loses no work, and cannot start again on other nodes.
	Stays bool
	// AdvanceReservation is the one that is for this workload, where one is for some of a LocalQueue's alone; "": none.
	AdvanceReservation string
	// CheckpointedAt is when it says that it last saved its work; zero: never.
	CheckpointedAt time.Time
	// CheckpointInterval is how often it says that it saves its work; 0: never.
	CheckpointInterval time.Duration
	// DelayPrice is what an hour until its end is worth to it, in what flavors' prices are; 0: it does not say.
	DelayPrice float64
	// Waits: it says how long it may wait, so it may wait for spot nodes that cannot be had now. HandedOver: it has waited long enough, and
	// the check of such nodes has given its quota back, so that it gets others.
	Waits, HandedOver bool
	// Input is what it reads when it starts; zero: it does not say.
	Input Input
}

// Input is data, and where it lies.
type Input struct {
	Cloud, Region string
	GiB           float64
}

// PodSet is a number of equal pods.
type PodSet struct {
	Name        string
	Count       int32
	MinCount    int32    // partial admission may go down to this; 0: all or nothing
	Reclaimable int32    // pods that have finished for good
	Requests    Requests // quota for each pod
	// NodeRequests is what a pod asks of its node where quota counts something else
	// (resource transformations, excluded prefixes); nil: the same as Requests.
	NodeRequests Requests
	// Group: pod sets of one group get the same flavors and are placed together.
	Group string
	// Flavors are the only ones that will do, sorted; empty: any.
	Flavors []string
	// Elsewhere: what it asks for is not on the nodes of the workload's pods. It counts in quota alone, and is not placed.
	Elsewhere bool

	NodeSelector map[string]string
	Affinity     []Term       // required node affinity: any one term must match
	Preferences  []Preference // preferred node affinity, within a topology
	Tolerations  []Toleration
	Topology     *TopologyRequest
	Policy       string // placement policy of its pods; empty: the cluster's
}

// Left is how many pods have not finished for good.
func (ps *PodSet) Left() int32 { return max(0, ps.Count-ps.Reclaimable) }

// Asked is what the pods that are not done ask for of a resource, all together.
func (ps *PodSet) Asked(resource string) int64 { return quota.Times(ps.Requests[resource], ps.Left()) }

// OnNode is what one pod asks of its node.
func (ps *PodSet) OnNode() Requests {
	if ps.NodeRequests != nil {
		return ps.NodeRequests
	}
	return ps.Requests
}

// What a pod asks of nodes and what nodes refuse, in Kubernetes' words. In Affinity a pod needs one of
// the terms; a term needs all of its requirements.
type (
	Term        = nodematch.Term
	Requirement = nodematch.Requirement
	Preference  = nodematch.Preference
	Toleration  = nodematch.Toleration
	Taint       = nodematch.Taint
)

// TopologyMode says how strictly pods must be close together.
type TopologyMode uint8

// The topology modes of Kueue.
const (
	TopologyUnconstrained TopologyMode = iota
	TopologyPreferred
	TopologyRequired
)

// TopologyRequest asks for pods close together in a flavor's topology.
type TopologyRequest struct {
	Mode   TopologyMode
	Level  string          // node label of the level; empty for unconstrained
	Slices []TopologySlice // from wide levels to narrow ones
	Beside *TopologyDomain // where other pods are that these are to join at a required level; nil: there are none
}

// TopologyDomain is a place in a topology.
type TopologyDomain struct{ Levels, Values []string }

// TopologySlice keeps every Size pods within one domain of a level.
type TopologySlice struct {
	Level string
	Size  int32
}

// Admission is the quota reserved for a workload (or, in a plan, to be reserved).
type Admission struct {
	Queue      string // ClusterQueue
	PodSets    []PodSetAssignment
	ReservedAt time.Time
	Placement  any // the Placer's answer, untouched
	// AvoidNodes are reserved ahead of time for others, and the workload could still run then: its pods must not be on them.
	AvoidNodes []string
}

// PodSetAssignment is one pod set's share of an Admission.
type PodSetAssignment struct {
	Name    string
	Count   int32
	Flavors map[string]string // resource to flavor
	// Usage is the quota reserved per resource. In a plan it is filled by the engine;
	// in an event it may be nil, and is then Count times the pod set's requests.
	Usage Requests
	// Elsewhere are the resources, sorted, that its pods use from other nodes: the flavors of these say nothing of the pods' own.
	Elsewhere []string
}

// NodeFlavors are the flavors, by resource, of what is on the nodes of its pods.
func (a *PodSetAssignment) NodeFlavors() map[string]string {
	if len(a.Elsewhere) == 0 {
		return a.Flavors
	}
	flavors := maps.Clone(a.Flavors)
	maps.DeleteFunc(flavors, func(resource, _ string) bool { return slices.Contains(a.Elsewhere, resource) })
	return flavors
}

// Cohort is an inner node of the quota tree. A cohort that queues or cohorts
// name as their parent exists even when it was never described.
type Cohort struct {
	Name       string
	Parent     string
	Groups     []ResourceGroup
	FairWeight *float64       // nil: 1
	Policy     CapacityPolicy // counts at the root of a tree only; PolicyDefault: Options.Policy
}

// CapacityPolicy is how a tree of cohorts hands out what can be borrowed.
type CapacityPolicy uint8

// The capacity policies.
const (
	PolicyDefault CapacityPolicy = iota
	// PolicyFIFO borrows first come, first served (Kueue without fair sharing).
	PolicyFIFO
	// PolicyDRF orders and preempts by the weighted dominant resource share borrowed (Kueue's fair sharing).
	PolicyDRF
	// PolicyMaxMin compares the weighted share of what is used in all, entitlement included:
	// the poorest queue goes first, whether it borrows or not.
	PolicyMaxMin
)

// ResourceGroup is a list of resources that always come from one flavor.
type ResourceGroup struct {
	Resources []string
	Flavors   []FlavorQuotas
}

// FlavorQuotas is what one flavor offers, in the order flavors are tried.
type FlavorQuotas struct {
	Flavor string
	Quotas map[string]Quota // by resource
}

// Quota of one resource in one flavor at one node of the tree.
type Quota struct {
	Nominal        int64
	BorrowingLimit *int64 // nil: unlimited
	LendingLimit   *int64 // nil: everything
}

// StopPolicy stops a queue.
type StopPolicy uint8

// The stop policies of Kueue.
const (
	StopNone StopPolicy = iota
	StopHold
	StopHoldAndDrain
)

// Queue is a ClusterQueue.
type Queue struct {
	Name   string
	Cohort string // empty: on its own
	Groups []ResourceGroup
	// NamespaceSelector admits namespaces; nil admits none, an empty one all.
	NamespaceSelector *Term
	StrictFIFO        bool
	Stop              StopPolicy
	Inactive          bool // not usable for a reason the shell knows (missing check, terminating)
	Preemption        Preemption
	Fungibility       Fungibility
	FairWeight        *float64 // nil: 1
	// DelayedPlacement are flavors whose nodes come once quota is reserved: pods on them are not placed.
	DelayedPlacement []string
	// UsageFairSharing orders the queue by its local queues' decayed usage (admission fair sharing).
	UsageFairSharing bool
	// Backfill lets a workload whose run time is known pass the blocked head of a StrictFIFO queue if it cannot delay it.
	Backfill bool
	// Defragmentation lets workloads of the queue move to other nodes for others, and others for them; nil: none moves.
	Defragmentation *Defragmentation
	// Order of pending workloads of one priority.
	Order  Order
	Timing *Timing // nil: as the options say
}

// PreemptionPolicy says whom a pending workload may preempt.
type PreemptionPolicy uint8

// The preemption policies of Kueue.
const (
	PreemptNever PreemptionPolicy = iota
	PreemptLowerPriority
	PreemptLowerOrNewerEqualPriority
	PreemptAny
)

// Preemption holds a queue's preemption settings.
type Preemption struct {
	WithinQueue         PreemptionPolicy
	ReclaimWithinCohort PreemptionPolicy
	// BorrowWithinCohort: it may preempt lower priorities in the cohort even while borrowing ...
	BorrowWithinCohort bool
	// ... up to this priority (nil: any lower one).
	BorrowMaxPriority *int64
}

// Fungibility says when to look at the next flavor although this one would do.
// The zero value is Kueue's default: take it when borrowing is enough, go on when preemption is needed.
type Fungibility struct {
	BorrowTryNext    bool // whenCanBorrow: TryNextFlavor
	PreemptStay      bool // whenCanPreempt: MayStopSearch (Preempt)
	PreferPreemption bool // preference: PreemptionOverBorrowing
}

// LocalQueue is how a namespace's workloads come to a ClusterQueue.
type LocalQueue struct {
	Key
	Queue      string // ClusterQueue
	Stop       StopPolicy
	FairWeight *float64 // nil: 1
	Timing     *Timing  // nil: its ClusterQueue's
	// Consumed seeds the decayed usage after a restart: amounts as of ConsumedAt.
	Consumed   map[string]float64
	ConsumedAt time.Time
}

// Flavor is a ResourceFlavor.
type Flavor struct {
	Name        string
	NodeLabels  map[string]string
	NodeTaints  []Taint
	Tolerations []Toleration
	Topology    string // name of a Topology; empty: none
}
