// Package memapi is an API server in memory, as far as the programs use one: objects with resource
// versions, UIDs, generations, finalizers and owners; merge, JSON and apply patches; the status and
// binding subresources; and for each kind a log of changes, from which watches are served late, again
// or after a new list, as their reader chooses.
//
// Nothing here runs by itself. A client's calls go through a gate, and a cache's watches move when they
// are asked to, so whoever has the gate and the caches decides what happens in which order.
//
//	server.go   objects and the log of changes
//	patches.go  merge patch, JSON patch, apply
//	client.go   controller-runtime's client: writes go through the gate, reads come from the cache
//	cache.go    controller-runtime's cache: what the watches of one program have delivered
package memapi
