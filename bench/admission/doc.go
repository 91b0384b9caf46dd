// Command admission measures Elastic's admission engine against Kueue's
// scheduler, both real, on the same work in one process.
//
// A virtual clock creates workloads, and finishes them when their run time has
// passed since they were admitted. Each side gets the same arrivals and lives by the same
// rules: what it decides comes back to it as events, victims of preemption give their
// quota back after a grace period and are pending again. The run fails unless both sides bring
// every workload to its end within quota and are empty afterwards.
//
// What is charged to a side is the CPU time of the process during its
// run, garbage collection included, less what the harness itself takes, measured
// by driving the same decisions again without an engine. See docs/benchmarks.md for what
// each side does for its time.
//
//	go run ./admission                 print the figures
//	go run ./admission -docs ../docs   and write the tables and the plot
package main
