// Package kueueconfig reads Kueue's Configuration file unchanged, with Kueue's defaults, into
// elastic-queue's own configuration.
//
// A table says for every field whether it is honoured, or that setting it is an error that says what
// to do instead. A field that the table does not name is an error too, so nothing a person wrote is
// silently ignored.
//
// Words: docs/design/glossary.md.
package kueueconfig
