// Package queues has the administrator's commands: queues, the tree of cohorts,
// flavors, and what they use.
//
// Words: docs/design/glossary.md.
package queues
