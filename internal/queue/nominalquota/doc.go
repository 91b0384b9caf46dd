// Package nominalquota writes the nominal quotas of ClusterQueues where a QueuePolicy says what they are: a share of what
// the nodes of their flavors have, others at other times.
//
// rule.go is what policies ask at a time, capacity.go what nodes have. record.go is what is stored of a quota between two
// looks, in an annotation of the ClusterQueue: what was declared, and the most that nodes had within the grace. plan.go is
// the ClusterQueue as it should be, a pure function of objects and time; controller.go writes it.
//
// Words: docs/design/glossary.md.
package nominalquota
