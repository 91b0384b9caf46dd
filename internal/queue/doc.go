// Package queue is the shell around the admission engine: informers in, writes out.
//
//	informers ──> inbox ──> Apply ─┐
//	                               engine ──> Decide ──> plan ──> writers ──> API server
//	write results ────────> Apply ─┘                                              │
//	      ^───────────────────────────────────────────────────────────────────────┘
//
// One goroutine, the loop (shell.go), owns the engine. A turn of the loop drains the inbox and
// applies the messages (inbox_handlers.go, workload_tracking.go), asks the engine for a decision, and
// hands the plan to the writers (apply_plan.go). The engine assumes that its plan is carried out;
// while a workload's status is being written, newer versions of it from the informers wait, so an old
// view never undoes a new decision. A write that fails goes back into the engine as an event.
//
// Beside quota, a turn takes the steps of workloads' lifecycle (lifecycle.go, timers.go): admission
// after checks, eviction, requeueing, deactivation, deletion. Workloads whose nodes come with a check
// are placed in a second pass (second_pass.go); after a restart placements are rebuilt from pods and
// statuses (restore_placements.go); lost nodes are replaced (node_replacement.go).
//
// Decisions are made no faster than they can be written (decision_pacing.go), and writes that only
// inform have a budget: why a workload waits (pending_reasons.go), events (events.go), and the
// queues' statuses.
//
// Work that may take long runs in goroutines of its own and comes back through the inbox: the
// selectors of ResourceClaims are programs that tenants write (device_counting.go).
//
// A panic while one object is handled, evaluated or written sets that object aside and lets the
// others go on (panics.go); any other panic ends the process, so that another replica takes over.
//
// The API server is the only database: a new leader replays the informers' caches into an empty
// engine and continues.
//
// Packages below, from the loop down:
//
//	metrics     counters, and gauges computed at each scrape
//	status      statuses of ClusterQueues, LocalQueues and Cohorts
//	engineview  API objects as engine events; engine options from the configuration
//	writes      patches, and the budget of writes that only inform
//	placer      joins the placement engine to admission
//	devices     what ResourceClaims count as
//	workload    the Workload object, between engine and status
//
// visibility serves what the loop explains; webhook, conversion, topology, stream and kueueconfig
// stand beside the loop.
//
// Words: docs/design/glossary.md.
package queue
