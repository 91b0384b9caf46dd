// Package backend says what a way to isolate shares of cards must do. One folder each; the folder
// conformance holds the tests that all of them pass.
//
// Words: docs/design/glossary.md.
package backend
