// Package admission decides which workloads may run, on whose quota, and who
// has to make room. It knows cohorts, ClusterQueues, LocalQueues, flavors and
// workloads as plain data; it has no clock, client, goroutine, log or metric.
//
//	e := admission.New(admission.Options{})
//	e.Apply(admission.QueueChanged{...})   // the world as events, in any order
//	plan := e.Decide(now)                  // who starts, who makes room, who waits and why
//	e.Explain(key, now)                    // the same code, told in detail
//
// # How it decides
//
// Cohorts and queues form trees; a tree shares no quota with another and is
// decided on its own. Usage is kept up to date by events, in slices indexed by
// small integers, twice: as it is now, and as it will be once those who were asked to leave
// have left and those who wait for their room have it. A new admission must fit in both,
// so freed room reaches the one it was freed for.
//
// Pending workloads of one shape in one queue form a class and share one answer.
// Each queue of a tree nominates the first workload that can be helped; they are settled by
// their rights, one after the other, until nobody can be helped. A class that
// cannot be is parked, and wakes when there is enough of what it lacked.
//
// # What the caller owes the engine
//
// Events carry whole objects and may be repeated; what they point to must not change afterwards. A plan is assumed at once. For every Admit
// the caller later reports either the workload with its Admission (written), DecisionDropped, or
// WorkloadGone; until then events that still show the workload pending do not undo it. For every
// Evict it reports DecisionDropped, or, once the pods are gone, the workload without Admission
// (or finished, or gone).
//
// Amounts are int64: thousandths of cpu, whole units of everything else.
// The resource "pods" is counted by the engine where a queue lists it.
//
// # Stability
//
// The names and fields in types.go, events.go, plan.go, placement.go, explain.go and status.go
// and New, Apply, Decide, Explain, Status, LocalStatus, CohortStatus, Pending and Line are what
// other packages use; they are extended, not renamed. The design is told in docs/design/admission.md.
package admission
