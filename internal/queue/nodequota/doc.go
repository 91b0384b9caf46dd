// Package nodequota keeps the nominal quotas of ClusterQueues at a share of what the nodes of their flavors have, where a
// QueuePolicy asks for it (quota.shareOfNodes).
//
// capacity.go counts what nodes have. record.go is what is stored of a quota between two looks, in an annotation of the
// ClusterQueue, and the rule that a quota is the most that nodes had within the grace. plan.go is the ClusterQueue as it
// should be, a pure function of objects and time; controller.go writes it.
//
// Words: docs/design/glossary.md.
package nodequota
