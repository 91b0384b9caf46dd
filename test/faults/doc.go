// Package faults runs whole programs, with the engines and shells that are shipped, through faults on
// purpose: over an API server in memory, with a virtual clock, in an order that a seed chooses.
//
//	                    ┌──> elastic-queue: queue.Shell, the reconciler of Jobs ──┐
//	schedule ──> World ─┼──> elastic-gpu-scheduler: gpu.Shell ────────────────────┼──> memapi.Server
//	 (a seed)           └──> the cluster around them: users, nodes, kubelets,  ───┘         │
//	                         Job controller, kube-scheduler                          invariants, each step
//
// Every request of a program and every change that a watch delivers waits until the schedule lets it
// through, late, twice, or not at all. Programs run as they are, in goroutines of a testing/synctest
// bubble: when all of them wait, the next action of the schedule is taken, and the invariants are
// checked. So an order is the schedule's alone, and a seed replays it.
//
//	schedule.go     actions, and what a seed chooses next
//	world.go        takes actions: one world from its first to its last step
//	process.go      the programs: start, requests on their way, kill
//	cluster.go      what is around them: Job controller, kubelet, kube-scheduler, garbage collector
//	setting.go      queues, nodes and jobs of a world
//	invariants.go   what must hold after each step, at rest, and in the end
//	shrink.go       a failing schedule, as short as it gets
//
// docs/design/faults.md says what is simulated and what is not.
package faults
