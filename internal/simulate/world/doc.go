// Package world runs a whole cluster on a virtual clock: jobs of a trace are submitted, wait, start, are evicted and
// end, and what is decided is decided by the engines that run in production, joined as elastic-queue joins them.
//
//	trace      ReadTrace: jobs from CSV, sacct or what "elastic record" wrote
//	cluster    Cluster: queues, cohorts, flavors and nodes; ReadShape, Pool, Partitions make one
//	what-if    Set: settings of a cluster changed
//	found      FromObjects, Trace.With: what runs and waits in a cluster now
//	world      Run: feeds events to the engine and carries out its plans
//	faults     Faults: nodes that are lost, spot nodes, stock-outs
//	report     Report: completion times, delays, utilisation, evictions, fairness
//
// A run has no randomness of its own: the same trace, cluster and seed of faults give the same report.
//
// Words: docs/design/glossary.md.
package world
