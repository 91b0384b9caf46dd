// Package certs makes the certificate of the webhooks, renews it, and publishes its CA to the API
// server; and those of the extender and its one client.
//
// The certificate and its key live in one Secret, so that all replicas serve the same one; the
// first replica that finds it missing or close to its end makes a new one. The CA signs that one
// certificate and its key is thrown away: there is nothing to steal. Renewing means a new CA, which
// is published beside the old one until all replicas have moved on.
//
// Where a server must know its clients (mutual_tls.go), one Secret has a certificate for each side, and the
// CA of these two.
//
// Words: docs/design/glossary.md.
package certs
