// Package extender answers kube-scheduler over HTTP, as its extenders do: which nodes can take a pod,
// how good each of them is, what preemption would bring, and binding.
//
//	POST /scheduler/filter, /scheduler/priorities, /scheduler/preempt, /scheduler/bind
//	GET  /scheduler/status, /version
//
// It answers those alone who have its client's certificate: who may ask may bind pods and hold cards.
// Requests carry node names (nodeCacheCapable), or a few whole nodes. A replica that does not lead passes
// requests on to the one that does.
//
// Words: docs/design/glossary.md.
package extender
