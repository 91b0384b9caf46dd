// Package local runs Elastic on one machine: a sandbox cluster and the
// programs that work in it, started by "elastic up" and ended by "elastic
// down".
//
// A cluster is a folder (state.go). "up" holds the folder's lock, is the
// parent of everything it starts (process.go), and lets each child know by its
// standard input: a closed pipe means the parent is gone, however it went, so
// that not even kill -9 leaves anything running. "up --detach" starts an "up"
// in the background and shows its progress until it is ready (up.go).
//
// Words: docs/design/glossary.md.
package local
