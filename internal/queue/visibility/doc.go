// Package visibility is elastic-queue's own part of the Kubernetes API: answers from the engine, never
// stored. The API server forwards requests to it (an APIService says so) after it has authenticated
// the user; whether the user is allowed is asked with a SubjectAccessReview, so ordinary roles apply.
//
// It is served beside the webhooks, under their certificate. That a connection comes from the API
// server is verified by its client certificate (authentication.go); each resource is one row of a
// table (server.go).
//
// Words: docs/design/glossary.md.
package visibility
