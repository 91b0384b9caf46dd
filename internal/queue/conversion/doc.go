// Package conversion serves the API server's requests to convert objects between the versions of
// kueue.x-k8s.io. The conversions come with the types.
//
// Words: docs/design/glossary.md.
package conversion
