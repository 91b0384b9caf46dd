// Package webhook rejects invalid queue objects, with Kueue's messages, and sets defaults on new ones.
// What the CRDs' own rules reject is not repeated here.
//
// The rules are functions from an object, and its old version, to a list of errors; setup.go
// registers them.
//
// Words: docs/design/glossary.md.
package webhook
