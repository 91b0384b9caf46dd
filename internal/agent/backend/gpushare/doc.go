// Package gpushare holds containers to their share of a card with the library of native/cuda, which is
// preloaded into them. What it mounts, and the file of limits, are that library's contract
// (native/cuda/README.md).
//
// Words: docs/design/glossary.md.
package gpushare
