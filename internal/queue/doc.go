// Package queue is the shell around the admission engine: informers in, one
// writer out.
//
//	informers ──> inbox ──> Apply ─┐
//	                               engine ──> Decide ──> plan ──> writers ──> API server
//	write results ────────> Apply ─┘                                              │
//	      ^───────────────────────────────────────────────────────────────────────┘
//
// One goroutine owns the engine: it drains the inbox, applies what it finds,
// asks for a decision and hands the plan to the writers. The engine assumes
// its plan at once; while a workload's status is being written, what the
// informers say of it waits, so an old view never undoes a new decision. A
// write that fails goes back into the engine as an event.
//
// What may take long has a goroutine of its own and comes back through the inbox:
// selectors of ResourceClaims are programs that tenants write.
//
// The API server is the only database: a new leader replays the informers'
// caches into an empty engine and goes on.
package queue
