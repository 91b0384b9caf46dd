// Package dra is the second allocation path to a node's cards: a DRA driver (resource.k8s.io/v1). What a ResourceClaim
// was allocated becomes a share, and goes the way of every share: a backend makes it, slots writes it down for the
// container runtime.
//
//	devices.go  cards and their MIG partitions as devices of ResourceSlices
//	claim.go    an allocated claim as shares
//	driver.go   the kubelet's calls
//
// A card is a device that many claims take a part of, in core (percent) and memory. Its MIG partitions are devices of
// their own; shared counters separate the two, and partitions that overlap.
//
// Words: docs/design/glossary.md.
package dra
