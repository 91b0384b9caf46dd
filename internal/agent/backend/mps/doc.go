// Package mps holds containers to their share by NVIDIA's Multi-Process Service: a daemon for each card,
// through which its programs run side by side, each with a part of its processors and of its memory.
//
// The limits are in the container's environment, where its pod cannot change them. A program that takes
// them out of its own environment is not held: give such tenants a MIG instance.
//
// Words: docs/design/glossary.md.
package mps
