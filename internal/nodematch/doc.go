// Package nodematch has the rules by which Kubernetes matches pods with nodes: label requirements,
// taints and tolerations. Both engines use it, so that quota and placement never disagree on what a
// node lets in. It is plain Go, knows no Kubernetes types and allocates nothing.
//
// Words: docs/design/glossary.md.
package nodematch
