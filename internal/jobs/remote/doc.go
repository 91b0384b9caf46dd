// Package remote is jobs that MultiKueue runs in another cluster. An Adapter, one for each kind,
// makes the copy that is created there, writes the copy's status back onto the job, and forwards
// the changes a running job may make. The admission check in internal/checks/multicluster decides
// when to do so.
//
// Words: docs/design/glossary.md.
package remote
