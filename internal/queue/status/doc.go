// Package status computes the statuses of ClusterQueues, LocalQueues and Cohorts and decides when
// to write them.
//
//	Usage.Move ──> QueueUsage ─┐
//	                           Publisher.Publish ──> what differs ──> write ──> Written
//	engine ────────────────────┘
//
// Usage counts workloads and quota as the API objects say; pending workloads, quota by flavor and
// fair shares come from the engine. Statuses only inform, so they have a budget: decisions are
// written first.
//
// Words: docs/design/glossary.md.
package status
