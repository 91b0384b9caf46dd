// Package agent is the node side of Elastic GPU: it makes true on a node what the schedulers have decided.
//
//	publisher.go         a GPU object for each card that discovery finds, up to date
//	node_capacity.go     what the node offers for its cards
//	node.go              puts the parts of a node together
//	allocation_paths.go  which cards the GPU scheduler allocates, and which ResourceClaims
//	pod_swap.go          moves the card memory of pods to the host and back
//	card_processes.go    what runs on each card, for its GPU object
//	pid_reporter.go      reports to processes under which pid the driver knows them
//
// A container gets its share in four steps: the kubelet asks for a slot (package kubelet, or dra for a ResourceClaim),
// share reads what the scheduler chose for the container, a backend makes it real, and slots writes it down for the
// container runtime. exporter reports what is used.
//
// An agent serves the node it runs on. With simulate, it serves the sandbox's simulated nodes instead, all of them
// at once.
//
// Words: docs/design/glossary.md.
package agent
