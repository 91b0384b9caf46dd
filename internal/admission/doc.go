// Package admission decides which workloads may run, on whose quota, and which are preempted for
// them. It knows cohorts, ClusterQueues, LocalQueues, flavors and workloads as plain data; it has no
// clock, client, goroutine, log or metric.
//
//	e := admission.New(admission.Options{})
//	e.Apply(admission.QueueChanged{...})   // the world as events, in any order
//	plan := e.Decide(now)                  // what is admitted, what is evicted, what waits and why
//	e.Explain(key, now)                    // the same evaluation, told in detail; it changes nothing
//
// # How it decides
//
// Cohorts and queues form trees; a tree shares no quota with another and is decided on its own.
// Usage is counted twice (package quota): as it is now, and in the future, without workloads that are
// being evicted and with nominated ones that wait for their quota. An admission must fit in both,
// so what victims free reaches the workload they were preempted for.
//
// Pending workloads of one request shape and priority in one queue form an equivalence class and
// share one answer. A decision goes through each tree that changed (decide.go):
//
//	rebuild nominations   each preemptor gets the quota its victims free; those that fit are admitted
//	rounds                each queue sends an entry: its first workload that can be helped;
//	                      entries are processed in order (or by share), each followed by the next of its queue
//	  evaluate            assign flavors, ask the Placer for nodes, search for victims, override nominations
//	  process             admit; or evict victims and nominate; or refuse
//	retry                 workloads that were revoked or that yielded, until nobody can be helped
//
// A class that is refused becomes inadmissible. It registers for what it lacked, and queueing hints
// requeue it when there may be enough (queueing_hints.go, queueing_hint_bounds.go). The refusal says which
// rules held it up (refusal.go, preempt_rules.go) and thus when to look again.
//
// Every what-if, in searches, explanations and forecasts, is a checkpoint and a rollback of one
// transaction over usage and nodes (Engine.tx). A workload is in one phase (workload_phase.go), and
// docs/design/admission.md draws how it moves between them.
//
// # Where to find what
//
//	types, events, plan, placer   what goes in and comes out; status, explain, forecast: questions
//	engine, queue_events,         state, and how events change it
//	workload_events, workload_phase, held_back
//	flavor_assignment,            which flavors a workload gets
//	flavor_combinations, flavor_prices, partial_admission, request_shape, flavor_match
//	preempt*, preempt_rules       who is preempted, under which rules
//	nominations*, reservations,   quota that is counted for workloads that wait
//	borrower_yields
//	budgets                       what may be used of cards in a period
//	equivalence_class,            pending workloads: their order, and when to look at them again
//	queue_order, attained_service, queueing_hint*, pending_demand, timers
//	quota, index, usage           packages below: the arithmetic, the containers, the usage history
//
// # What the caller owes the engine
//
// Events carry whole objects and may be repeated; what they point to must not change afterwards. A
// plan is assumed at once. For every Admit the caller later reports either the workload with its
// Admission (written), DecisionDropped, or WorkloadGone; until then events that still show the workload
// pending do not undo it. For every Evict it reports DecisionDropped or, once the pods are gone, the
// workload without Admission (or finished, or gone).
//
// Amounts are int64: thousandths of cpu, whole units of everything else. The resource "pods" is
// counted by the engine where a queue lists it.
//
// Words: docs/design/glossary.md.
package admission
