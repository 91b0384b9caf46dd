// Package features knows Kueue's feature gates by name, and which of them can be switched here.
//
// A gate is one of four: it switches something here as well; what it gates always exists here; what
// it gates does not exist here; or it chooses how Kueue computes something, not what, and means
// nothing here.
//
// Words: docs/design/glossary.md.
package features
