// Package policy resolves QueuePolicies: which value of which policy is in force at each Cohort, ClusterQueue and
// LocalQueue, and what to tell a policy about itself. It is a pure function of the objects.
//
// fields.go is the table of fields; a new one is one row. resolve.go looks them up, nearest target first, and
// status.go words the answer.
//
// Words: docs/design/glossary.md.
package policy
