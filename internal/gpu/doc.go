// Package gpu is the shell of the placement engine: it feeds the engine what the cluster says and
// carries out what it decides.
//
// One goroutine, the loop, owns the engine. Informers put nodes, pods, GPU objects and ElasticGPUs
// into an inbox; front ends (the scheduler's extender, the claims' controller) put questions there and
// wait for the answer. Every replica keeps its books that way, so that a new leader knows all at once;
// only the leader binds.
//
//	kube-scheduler ──> extender ──┐                        ┌──> Binding, with the cards in it
//	claims' controller ───────────┼──> inbox ──> engine ───┤
//	nodes, pods, GPUs, eGPUs ─────┘                        └──> ElasticGPU objects
//
// The API server is the only memory: which cards a pod has is in its annotations, written by the same
// request that binds it, and what a claim has is in its ElasticGPU. On a node without GPU objects the
// cards are those that its labels and allocatable resources describe.
package gpu
