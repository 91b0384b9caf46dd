// Package jobs makes every framework's job wait and start the same way: one generic controller,
// and a table with a row per kind of job.
//
//	kinds      the table, and a job as its row describes it. No controllers: the CLI uses it too
//	managed    which jobs are managed: by queue name, namespace and owner
//	podgroups  jobs without a suspend flag: pods held by a scheduling gate
//	remote     jobs that MultiKueue runs in another cluster
//	webhooks   suspend a job when it is created, and refuse updates that would bypass its queue
//	reconcile  the generic controller, and the registry that starts one for each row in use
//
// The way of a job: the defaulting webhook suspends it before its operator sees it; a controller
// creates its Workload; when that is admitted the controller adds the flavors' node labels and
// starts the job; when it is evicted the controller stops the job and releases its quota once no
// pod runs; when the job ends the controller finishes the Workload.
//
// Imports point one way, and only Setup in this package knows all of them:
//
//	kinds ← managed, podgroups, remote ← webhooks, reconcile ← jobs
//
// The package also makes the manifests that follow from the table: roles and webhooks.
//
// Words: docs/design/glossary.md.
package jobs
