// Package engineview is the cluster as the admission engine sees it: API objects in, engine events
// and options out.
//
// Objects has the newest version of queues and of what they refer to. events.go translates an object
// into the engine's event; active.go says whether a ClusterQueue can admit at all, which both the
// engine and the queue's status need. delayed_placement.go and implied_topology.go are rules that
// follow from several objects at once: flavors whose nodes come with an admission check, and what
// flavors with a topology mean for pods that ask for none. options.go reads the configuration.
//
// A single Workload is translated in package workload, below this one.
//
// Words: docs/design/glossary.md.
package engineview
