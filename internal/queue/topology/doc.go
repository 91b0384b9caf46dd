// Package topology sends the pods of admitted workloads to the domains of their topology assignment.
// Such pods are created with a scheduling gate, which is removed together with adding the node labels
// of a domain that lacks a pod. Pods that know their rank go to the domain of that rank, so that
// neighbours in rank are neighbours in the topology. Pods that must not be on some nodes wait for their node affinity alike.
//
// Words: docs/design/glossary.md.
package topology
