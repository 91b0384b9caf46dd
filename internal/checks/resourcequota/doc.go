// Package resourcequota is an admission check: a workload is admitted only if the ResourceQuotas of
// its namespace would let all its pods be created now. A cluster that still uses ResourceQuotas can
// move to queues one namespace at a time, and no job starts whose pods the API server would reject.
//
//	apiVersion: kueue.x-k8s.io/v1beta2
//	kind: AdmissionCheck
//	metadata: {name: resource-quota}
//	spec: {controllerName: elasticai.io/resource-quota}
//
// A workload that does not fit gives its quota back and tries again after a while, so that others
// need not wait for it. free_quota.go has the arithmetic, controller.go reads and writes the objects.
//
// Words: docs/design/glossary.md.
package resourcequota
