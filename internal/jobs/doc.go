// Package jobs makes every framework's job wait and start the same way: one
// generic controller, and a table with a row per kind (table.go).
//
// A row says where in the object things are: the suspend flag, the pod
// templates and their counts, and how the end, the readiness and the activity
// of the job are read. The controller knows no kind by name; it reads and
// writes objects through their row (object.go), keeps one Workload per job,
// starts the job when that is admitted and stops it when it is evicted
// (controller.go). The webhook suspends jobs at creation, before their
// operators see them (webhook.go).
package jobs
