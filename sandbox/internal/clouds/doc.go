// Package clouds plays clouds that sell machines: it fulfils NodeClaims of Karpenter whose class of nodes is a
// SimulatedCloud, as far as a person or a program beside the cluster can see.
//
//	NodeClaim, SimulatedCloud, Node, now ──> next ──> what to do now, and when to look again
//
// next.go is that decision, a pure function; provider.go watches and carries it out; objects.go has the objects as far as
// they are needed here, and crds/ serves them.
//
// Nothing is remembered but in the API server: after a restart, however the last run ended, it goes on from the conditions of
// the NodeClaims. Nothing is bought twice, since a machine has its NodeClaim's name.
//
// NodeClaims of other classes are left alone, and so are all fields of them that Karpenter has and nobody needs here: the
// kind is served without Karpenter's validation, and what is in an object is retained.
package clouds
