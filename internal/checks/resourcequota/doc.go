// Package resourcequota is an admission check: a workload is admitted only if
// the ResourceQuotas of its namespace would let all its pods be created now.
// A cluster that still hands out ResourceQuotas can so move to queues one by
// one, and no job starts whose pods the API server would refuse.
//
//	apiVersion: kueue.x-k8s.io/v1beta2
//	kind: AdmissionCheck
//	metadata: {name: resource-quota}
//	spec: {controllerName: elasticai.io/resource-quota}
//
// What has no room gives its quota back and tries again after a while, so that
// others need not wait for it. room.go has the arithmetic, controller.go the
// objects.
package resourcequota
