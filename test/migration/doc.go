// Package migration tests the way from Kueue to Elastic and back, in place, with
// a real Kueue: its manager, its chart, its webhooks and roles. What
// docs/operations/migrate-from-kueue.md says to type is what the test types.
//
// kueuectl, Kueue's command line, is typed at both, and must say the same.
//
// The manager is big and is built from its own module, so "make test-migration"
// builds it first and says where it is in ELASTIC_KUEUE.
package migration
