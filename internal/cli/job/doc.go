// Package job has the commands for jobs, named as arena's: submit, list, get, logs, attach, delete,
// suspend, resume, wait, prune, cron, data, scalein, scaleout.
//
// A job is any object of a kind that the queue knows (kinds.Table and the cluster's JobKinds), with
// its Workload and its pods (job_lookup.go). Its state is one value, Info, from which tables and
// JSON are made (job_info.go). Submit writes manifests from flags by one table of forms
// (submit_forms.go, submit_manifest.go).
//
// Words: docs/design/glossary.md.
package job
