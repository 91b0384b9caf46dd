// Package stream reads watches of which much comes: of Workloads, where a busy queue sees several changes for each one
// it admits, and of all that the page shows. The API server sends a change as one line of JSON. The client library reads that line
// five times: for its end, its type, its kind, whether it is valid, and its content. This package
// reads it only for the last two, and skips the managed fields, which are often half of it.
//
// Words: docs/design/glossary.md.
package stream
