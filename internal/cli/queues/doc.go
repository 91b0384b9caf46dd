// Package queues has the administrator's commands: queues, the tree of cohorts,
// flavors, and who uses what.
package queues
