// Package program is what Elastic's daemons have in common: a command with help, version and a strict
// configuration file, structured logs, health and metrics endpoints, leader election, and a graceful
// stop.
//
// A daemon is a value of Program and one function, Run, that blocks until its context ends:
//
//	func main() {
//		program.Main(program.Program[*v1alpha1.QueueConfiguration]{
//			Name: "elastic-queue", Defaults: v1alpha1.NewQueueConfiguration, Run: queue.Run,
//		})
//	}
//
// Words: docs/design/glossary.md.
package program
