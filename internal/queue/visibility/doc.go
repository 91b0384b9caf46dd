// Package visibility is elastic-queue's own part of the Kubernetes API: answers
// from the engine, never stored. The API server passes requests on to it (an
// APIService says so), after it has found out who asks; whether they may is
// asked back (a SubjectAccessReview), so that ordinary roles rule.
//
// It is served beside the webhooks, under their certificate. Who is at the
// other end of the connection is checked by the API server's client certificate
// (front.go); a resource is one row of a table (server.go).
package visibility
