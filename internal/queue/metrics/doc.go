// Package metrics has the metrics of elastic-queue: Kueue's names and labels where Kueue has the
// metric.
//
// definitions.go lists all of them, and docs/reference/metrics.md is made from that list.
// transitions.go counts what became of a workload between two versions of it; collect.go computes
// the gauges at each scrape, in the loop, from a View of its state.
//
// Words: docs/design/glossary.md.
package metrics
