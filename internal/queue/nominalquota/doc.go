// Package nominalquota writes the nominal quotas of ClusterQueues where a QueuePolicy says what they are: a share of what
// the nodes of their flavors have, others at other times. What they are is quotarules' to say; controller.go asks it and
// writes.
//
// Words: docs/design/glossary.md.
package nominalquota
