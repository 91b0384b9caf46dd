// Package quotarules says what the nominal quotas of a ClusterQueue are where a QueuePolicy says so: a share of what the nodes
// of its flavors have, others at other times. It is a pure function of objects and time: elastic-queue's controller and the
// simulator ask it.
//
// rule.go is what policies ask at a time, capacity.go what nodes have. record.go is what is stored of a quota between two
// looks, in an annotation of the ClusterQueue: what was declared, and the most that nodes had within the grace. plan.go is
// the ClusterQueue as it should be.
//
// Words: docs/design/glossary.md.
package quotarules
