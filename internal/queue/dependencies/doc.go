// Package dependencies knows which workloads come after which: annotation elasticai.io/after. It is a function of the
// Workloads that it was shown, and answers without looking through all of them.
//
// index.go is what it knows, standing.go what that means for one workload, and cycles.go finds those that wait for
// themselves.
//
// Words: docs/design/glossary.md.
package dependencies
