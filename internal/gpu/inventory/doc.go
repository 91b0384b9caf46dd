// Package inventory describes nodes, their cards and pods, as Kubernetes and the GPU objects know them,
// in the placement engine's types. Nodes keeps track of a cluster's nodes and GPU objects and of the
// description the engine has of each; the scheduler's shell and the queue's placer both use it.
//
// Words: docs/design/glossary.md.
package inventory
