// Package workload is the Workload object seen from its two sides: what the
// admission engine wants to know of it (translate.go), and what its status
// says to people and to other controllers (status.go).
//
// The status has two writers, and server-side apply keeps them apart. The
// queue owns the admission and the conditions that tell of it, as the field
// manager "kueue-admission"; the job controller owns what the job reports:
// Finished, PodsReady, reclaimable pods.
package workload
