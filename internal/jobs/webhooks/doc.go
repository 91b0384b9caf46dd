// Package webhooks is what the API server asks about jobs.
//
//	defaulting.go, pod_gates.go          a new job is suspended, or its pods are gated, before its
//	                                     operator or the scheduler sees them
//	update_validation.go, update_rules.go  an update is refused by which a job would bypass its queue
//	configuration.go, declared_kinds.go  which requests the API server sends
//
// Words: docs/design/glossary.md.
package webhooks
