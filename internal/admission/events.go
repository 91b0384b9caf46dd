package admission

// Event is one change in the world. Events about objects carry the whole
// object, so a repeated or coalesced event does no harm.
type Event interface {
	apply(*Engine)
}

type (
	// CohortChanged describes a new or changed cohort.
	CohortChanged struct{ Cohort Cohort }
	// CohortGone takes a cohort's own quota and place in the tree away.
	CohortGone struct{ Name string }
	// QueueChanged describes a new or changed ClusterQueue.
	QueueChanged struct{ Queue Queue }
	// QueueGone says a ClusterQueue was deleted.
	QueueGone struct{ Name string }
	// LocalQueueChanged describes a new or changed LocalQueue.
	LocalQueueChanged struct{ LocalQueue LocalQueue }
	// LocalQueueGone says a LocalQueue was deleted.
	LocalQueueGone struct{ Key Key }
	// FlavorChanged describes a new or changed ResourceFlavor.
	FlavorChanged struct{ Flavor Flavor }
	// FlavorGone says a ResourceFlavor was deleted.
	FlavorGone struct{ Name string }
	// NamespaceChanged carries a namespace's labels, for the queues' selectors.
	NamespaceChanged struct {
		Name   string
		Labels map[string]string
	}
	// NamespaceGone forgets a namespace's labels.
	NamespaceGone struct{ Name string }
	// WorkloadChanged describes a new or changed workload in any state.
	WorkloadChanged struct{ Workload Workload }
	// WorkloadGone says a workload was deleted.
	WorkloadGone struct{ Key Key }
	// CapacityChanged says nodes or cards came or grew: placements refused before may
	// now succeed. Flavors limits it to those flavors; empty means all.
	CapacityChanged struct{ Flavors []string }
	// DecisionDropped says that a decision about the workload was not carried out: its write failed,
	// was superseded, or was not begun as too many are under way. What was assumed is forgotten
	// and decided anew.
	DecisionDropped struct{ Key Key }
)
