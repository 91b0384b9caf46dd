// Package remote is a client of backends outside this project, over a unix socket on the node (api/backend/v1alpha1).
//
// Words: docs/design/glossary.md.
package remote
