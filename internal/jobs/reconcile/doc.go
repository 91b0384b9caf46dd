// Package reconcile brings jobs and their Workloads together.
//
//	kind_registry, kind_candidates, kind_controllers
//	                  start a controller for a row when its CRD is installed, and stop it when the CRD
//	                  is removed; JobKind objects are rows too
//	object_reconciler, pod_reconciler
//	                  find the job of a request: an object with a suspend flag, or pods
//	controller        the one step that comes next for a job: create its Workload, start it when that
//	                  is admitted, stop it when it is evicted, report its end
//	workload_*        create, update, delete and report on the Workload
//	workload_slices   jobs that change their size while they run
//	prebuilt_workload jobs that name a Workload somebody else makes
//	swap_on_preemption jobs that stay on their nodes, without cards, while preempted
//	multikueue_jobs   jobs that another cluster runs
//
// A controller remembers nothing: each reconciliation reads the job and its Workload and does one
// thing, so a new leader continues where the last one stopped.
//
// Words: docs/design/glossary.md.
package reconcile
