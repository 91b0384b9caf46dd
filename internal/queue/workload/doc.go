// Package workload is the Workload object between its two readers: what the admission engine sees of
// it (engine_view.go), and what its status says to people and other controllers (status.go).
//
// The status has two writers, and server-side apply separates them. The queue owns the admission and
// the conditions about it, as the field manager "kueue-admission"; the job controller owns what the
// job reports: Finished, PodsReady, reclaimable pods.
//
// lifecycle.go says what comes next for a workload beside quota: admission after checks, eviction,
// requeueing, deactivation, deletion. It is a function of the object and its queues. What is counted
// in special ways has a file each: resource_transformations.go, elasticgpu_claims.go, and
// workload_slices.go for jobs that grow while they run.
//
// Words: docs/design/glossary.md.
package workload
