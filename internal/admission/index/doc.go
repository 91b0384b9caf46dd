// Package index has the ordered containers that keep a decision from looking at everything that
// waits: a Heap whose items know their place, and a List in chunks that a search can skip.
//
// Words: docs/design/glossary.md.
package index
