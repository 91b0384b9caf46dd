// Package propose turns the ResourceQuotas of a cluster into queues: for every namespace with
// ResourceQuotas a ClusterQueue with the same quota, and a LocalQueue that leads to it.
//
// Words: docs/design/glossary.md.
package propose
