// Package kueueconfig reads Kueue's Configuration file as it is, with Kueue's
// defaults, into elastic-queue's own configuration.
//
// A table says of every field what becomes of it: it is honoured, or setting it
// is an error that says what to do instead. A field that the table does not
// name is an error too, so nothing a person wrote is ever ignored in silence.
package kueueconfig
