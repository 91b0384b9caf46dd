// Package checks is what the controllers of admission checks have in common: which checks belong to a
// controller, whether they are active, and how a state is written into a workload's status. Each
// folder below is one check: resourcequota, provisioning (nodes by cluster-autoscaler), the purchase
// of nodes, and multicluster (jobs run by other clusters).
//
// Words: docs/design/glossary.md.
package checks
