// Package writes has the queue's writes to the API server: the patches themselves, and the budget
// of those that only inform and must not hold up decisions.
//
// Words: docs/design/glossary.md.
package writes
