// Package exporter reports to Prometheus what containers have of cards and what they use of it, and what
// cards have given out and what is used of them.
//
// Words: docs/design/glossary.md.
package exporter
