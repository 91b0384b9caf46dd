// Package budget counts what workloads use of budgets, so that nothing is counted twice or lost: not when the process dies
// between two writes, not when a workload is deleted while no leader runs, not when clocks differ. It is a pure function
// of objects.
//
// A run is a time in which a workload had quota: from when to when, and what of which flavors. A workload's object tells
// of its last run. Before it can tell of another, or is gone, that run is added to the account of its LocalQueue, which is
// stored in one write with the run's name; only when that is written is the workload let go (Next). So the sum of an
// account, and of the last runs that it does not name, is what was used, whatever was written last.
//
// An account counts units of resources times seconds, by ClusterQueue and flavor. What they cost is applied when they are
// read, so that a changed weight or rate counts for the whole period. What nodes of clouds cost is another matter: a run has
// it as an amount of Money, at the price of its time.
//
// Words: docs/design/glossary.md.
package budget
