// Package agent is the node side of Elastic GPU. It finds the cards (discovery) and keeps a GPU object
// true for each of them (publisher.go), with what the node offers for them (capacity.go).
//
// A container gets its share so: share reads what the scheduler chose, a backend makes it real, slots
// writes it down for the container runtime, and kubelet is the device plugin in front of them; plugin.go
// puts them together. dra is the other door, for ResourceClaims; doors.go says which card is behind which.
// exporter tells what is used, swap.go moves memory to the host and back, greeter.go tells processes what
// they cannot know.
//
// An agent serves the node it runs on. Told to simulate, it serves the sandbox's simulated nodes instead,
// all of them at once.
package agent
