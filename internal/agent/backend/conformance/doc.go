// Package conformance holds the tests that every backend passes.
//
// Words: docs/design/glossary.md.
package conformance
