// Package simulated has shares that nothing holds: for nodes with cards that are not there. What a
// container would have is in a file, and in its environment.
//
// Words: docs/design/glossary.md.
package simulated
