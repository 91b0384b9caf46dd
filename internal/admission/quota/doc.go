// Package quota is the arithmetic of cohorts and ClusterQueues: who may use how much of which
// flavor-resource, what is borrowed, and what a fair share is.
//
// Cohorts and queues form trees of Nodes. Each Node has one Cell per flavor-resource with its own
// quota, the quantities derived from it, and the usage:
//
//	nominal quota  ──Settle──>  subtree quota, guaranteed quota, maximum
//	usage of queues  ──Add──>   usage of cohorts (what exceeds guaranteed quota, level by level)
//
// Usage is counted in two views. Now counts every workload with quota reserved, those being
// evicted included. Future leaves out those being evicted and counts the nominated workloads that
// wait for their quota. An admission must fit in both.
//
// Usage at a cohort is a function of its children's usage, so adding and subtracting in any order
// is exact. A Txn relies on that: it notes tentative changes and takes them back to a checkpoint.
//
// The package knows no workloads, priorities or preemption rules; the engine above does.
//
// Words: docs/design/glossary.md.
package quota
