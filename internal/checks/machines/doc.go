// Package machines is the admission check elasticai.io/machines: it buys the nodes of a workload with quota reserved. It
// chooses a place among those that the CloudOffer of the workload's flavor sells, makes the Karpenter NodeClaims that all
// its pods need there, waits until all are registered, and sends the pods to these nodes.
//
//	workload, CloudOffers, NodeClaims, now ──> decide ──> observations, NodeClaims to make and to let go, the check's state
//
// gang.go says how many nodes of an offer the pods need; decide.go is the decision, a pure function, and idle_nodes.go
// the part of it about nodes that wait for the next workload; back_to_spot.go the one about workloads that run on demand
// and move to spot nodes; nodeclaims.go reads and makes NodeClaims; controller.go carries a decision out; setup.go starts all of it once the cluster has NodeClaims.
//
// # What is written where
//
// Nothing is remembered but in the API server. NodeClaims have the workload's UID and the attempt in their names: what was
// made is found again, and not made twice. Each has a finalizer of this check until what came of it was counted in the
// CloudOffer's status, so that no stock-out and no loss is missed, also across a restart. Whatever has lost its workload is
// let go: the finalizer is removed first, and a NodeClaim without it is deleted whenever it is seen.
//
// A tenant chooses none of it: the class of nodes, places and prices come from the CloudOffer, the number of nodes from the
// pods' requests, and at most mostNodes are made for a workload.
//
// Words: docs/design/glossary.md. Design: docs/design/clouds.md.
package machines
