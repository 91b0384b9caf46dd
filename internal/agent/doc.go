// Package agent is the node side of Elastic GPU: it finds the cards
// (discovery) and keeps a GPU object true for each of them (publisher.go).
//
// An agent serves the node it runs on. Told to simulate, it serves the
// sandbox's simulated nodes instead, all of them at once.
package agent
