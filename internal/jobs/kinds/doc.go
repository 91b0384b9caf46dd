// Package kinds is the table of job kinds, and a job as its row describes it.
//
// A row (kinds.yaml, in the words of api/jobs/v1alpha1) says where in an object things are: the
// flag that suspends it, the pod templates and their counts, and how to read its end, its readiness
// and its activity. Fields that are written are named by paths (field_path.go); everything that is
// only read is a CEL expression (expressions.go). A row that a user declares is checked against the
// kind's CRD first (crd_check.go).
//
//	Kind             a row, compiled
//	Object           a job with a suspend flag: its pod sets, how to start, stop and restore it
//	WorkloadBuilder  the Workload that describes a job
//	InUse            the rows that can be used in this cluster
//
// No code knows a kind by name, with three exceptions: trainjob.go and appwrapper.go for kinds whose
// pods cannot be found by paths, and spark_memory.go for how Spark computes memory.
//
// How jobs are named and counted, where Kueue's gates or settings of ours decide, is the same for all
// of a program, which says so once (rules.go).
//
// The package imports no controllers, so that the CLI reads jobs exactly as the controller does.
//
// Words: docs/design/glossary.md.
package kinds
