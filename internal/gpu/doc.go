// Package gpu is the shell of the placement engine: it applies to the engine what the cluster's watches
// report and carries out what the engine decides.
//
// One goroutine, the loop, owns the engine. Informers put nodes, pods, GPU objects and ElasticGPUs
// into an inbox; front ends (the scheduler's extender or plugin, the claims' controller) put questions
// there and wait for the answer. Every replica fills its cache that way, so that a new leader has it at
// once; only the leader binds.
//
//	kube-scheduler ──> extender ──┐                        ┌──> Binding, with the cards in it
//	claims' controller ───────────┼──> inbox ──> engine ───┤
//	nodes, pods, GPUs, eGPUs ─────┘                        └──> ElasticGPU objects
//
// The API server is the only memory: which cards a pod has is in the status of GPU objects, by its UID, and
// what a claim has is in its ElasticGPU. The pod's annotations say it too, for people. On a node without GPU objects the
// cards are those that its labels and allocatable resources describe.
//
//	file                   what is there
//	shell.go               the loop, leadership; message.go is what the inbox carries
//	nodes.go               Node and GPU objects into the engine
//	pods.go                bound pods into the engine
//	grant_record.go        which cards a pod has that was bound before our time, or by someone else
//	elasticgpus.go         ElasticGPU objects into the engine: cards held for claims
//	pod_request.go         what a pod requests, with its claims and its gang
//	filter.go              Filter, Score, Preempt
//	gang.go                pods of a job, reserved for together
//	bind.go                Reserve and Bind
//	requeue.go             refused pods that kube-scheduler should try again
//	policy_webhook.go      scheduling policies over HTTP
//	allocation_status.go   which pods have what, in the status of GPU objects
//
// Words: docs/design/glossary.md.
package gpu
