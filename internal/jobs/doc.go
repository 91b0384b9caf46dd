// Package jobs makes every framework's job wait and start the same way: one
// generic controller, and a table with a row per kind.
//
// A row (kinds.yaml, in the words of api/jobs/v1alpha1) says where in an object
// things are: the flag that holds it back, the pod templates and their counts,
// and how its end, its readiness and its activity are read. Fields that are
// written are named by paths (path.go), everything that is read is a CEL
// expression (expr.go). A row that a user declares is held against the kind's
// CRD first (check.go).
//
//	webhook   holds a job back as it is created, before its operator sees it
//	registry  starts a controller for a row when its CRD comes, ends it when that goes
//	controller  keeps one Workload per job: starts the job when that is admitted,
//	          stops it when it is evicted, reports its end
//	object    a job with a suspend flag, seen through its row
//	podGroup  a job without one: its pods are held by a scheduling gate
//
// The controller knows no kind by name. The few kinds whose pods cannot be
// found by paths have a file of their own: trainjob.go, appwrapper.go, and
// spark.go for how Spark counts memory.
package jobs
