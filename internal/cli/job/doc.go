// Package job has the commands for jobs, in arena's words: submit, list, get,
// logs, attach, delete, suspend, resume, wait, prune, cron, data, scalein,
// scaleout.
//
// A job is any object of a kind that the queue knows (jobs.Table and the
// cluster's JobKinds), seen with its Workload and its pods (find.go). What it
// says of itself is one value, Info, that tables and JSON are made from
// (info.go). Submit writes manifests from flags by one table of forms
// (forms.go).
package job
