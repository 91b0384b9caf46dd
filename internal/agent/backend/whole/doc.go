// Package whole gives containers cards of their own: they see those and no others, and nothing is in
// between.
//
// Words: docs/design/glossary.md.
package whole
