// Package agent is the node side of Elastic GPU: it finds the cards
// (discovery) and keeps a GPU object true for each of them (publisher.go).
//
// How a container gets its share is built of four parts that the program does
// not run yet: share reads what the scheduler chose, a backend makes it real,
// slots writes it down for the container runtime, and kubelet is the device
// plugin in front of them.
//
// An agent serves the node it runs on. Told to simulate, it serves the
// sandbox's simulated nodes instead, all of them at once.
package agent
