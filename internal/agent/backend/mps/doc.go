// Package mps runs NVIDIA's Multi-Process Service: a daemon for each card that is shared so, through which its programs
// run side by side, each with a part of its processors.
//
// Daemons are for whichever backend shares cards in space. Backend is the one that has MPS alone, without the library: it
// holds memory by MPS, too. Its limits are in the container's environment, where its pod cannot change them. A program
// that takes them out of its own environment is not held: give such tenants a MIG instance.
//
// Words: docs/design/glossary.md.
package mps
