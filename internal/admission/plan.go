package admission

import "time"

// Plan is what Decide wants done. Its slices belong to the engine and are
// valid until the next call of Decide. What an Admission points to lasts, and is
// shared among equals: it must not be changed.
type Plan struct {
	Admit   []Admit
	Evict   []Evict
	Pending []Pending
	// Panics are defects that workloads brought to light. They wait as misconfigured; whoever runs the
	// queue should hear of it.
	Panics []Panic
	// Evaluated is how many workloads were looked at.
	Evaluated int64
	// NextAt is the earliest time at which deciding again could matter although
	// no event came: a backoff or a maximum execution time ends. Zero: never.
	NextAt time.Time
}

// Admit reserves a pending workload's quota. The engine assumes it at once.
type Admit struct {
	Workload  Key
	UID       string
	Admission *Admission
	Borrows   bool // uses quota beyond its queue's nominal quota
	Partial   bool // some pod set got fewer pods than it asked for
	Backfill  bool // passed a blocked head that it cannot delay
}

// Evict asks for a workload's quota back. It counts as reserved until an event shows the workload without it.
type Evict struct {
	Workload Key
	UID      string
	Queue    string
	Reason   Reason // Preempted, ClusterQueueStopped, Deactivated, ...
	Message  string
	// For Preempted: which rule allowed it and for whom.
	Preempted    Reason
	Preemptor    Key
	PreemptorUID string
}

// Pending says why a pending workload waits, where that reason changed. Workloads of one equivalence class
// share it.
type Pending struct {
	Workload Key
	UID      string
	Reason   Reason
	Message  string
	// Blocked: it is not considered, because of its queues or of what it refers to.
	Blocked bool
	// Again: it was told this reason before, and the message is another now.
	Again bool
}

// Awaits says that the workload waits for others to end.
func (p Pending) Awaits() bool {
	return p.Reason == ReasonDependency || p.Reason == ReasonDependencyNeverSatisfied
}

// Reason is one of Kueue's tokens, or of Slurm's where Kueue has none.
type Reason string

// Why a workload has no quota reserved.
const (
	ReasonPending                      Reason = "Pending"
	ReasonMisconfigured                Reason = "Misconfigured"
	ReasonNoMatchingFlavor             Reason = "NoMatchingFlavor"
	ReasonExceedsMaxQuota              Reason = "ExceedsMaxQuota"
	ReasonWaitingForQuota              Reason = "WaitingForQuota"
	ReasonWaitingForPreemptedWorkloads Reason = "WaitingForPreemptedWorkloads"
	ReasonWaitingForPodsReady          Reason = "WaitingForPodsReady"
	ReasonTopologyPlacementFailed      Reason = "TopologyPlacementFailed"
	ReasonWaitingForBudget             Reason = "WaitingForBudget"
	ReasonReservedForOthers            Reason = "ReservedForOthers"
	ReasonSuspended                    Reason = "Suspended"
	ReasonAdmissionGated               Reason = "AdmissionGated"
	ReasonPreemptionGated              Reason = "PreemptionGated"
	ReasonDependency                   Reason = "Dependency"
	ReasonDependencyNeverSatisfied     Reason = "DependencyNeverSatisfied"
)

// Why a workload is evicted.
const (
	ReasonPreempted            Reason = "Preempted"
	ReasonClusterQueueStopped  Reason = "ClusterQueueStopped"
	ReasonLocalQueueStopped    Reason = "LocalQueueStopped"
	ReasonDeactivated          Reason = "Deactivated"
	ReasonMaxExecutionExceeded Reason = "MaximumExecutionTimeExceeded"
	ReasonBudgetSpent          Reason = "BudgetSpent"
)

// Which rule allowed a preemption.
const (
	ReasonInClusterQueue                Reason = "InClusterQueue"
	ReasonInCohortReclamation           Reason = "InCohortReclamation"
	ReasonInCohortFairSharing           Reason = "InCohortFairSharing"
	ReasonInCohortReclaimWhileBorrowing Reason = "InCohortReclaimWhileBorrowing"
	ReasonDefragmentation               Reason = "Defragmentation"
)
