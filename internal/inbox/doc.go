// Package inbox stands between a cluster's watches and a loop that owns its state: objects that
// changed wait here, each once, until the loop takes them.
//
// Words: docs/design/glossary.md.
package inbox
