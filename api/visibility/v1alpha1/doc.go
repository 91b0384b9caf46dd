// Package v1alpha1 is what elastic-queue serves in the API group visibility.elasticai.io: why a
// workload waits, and whether one would start. Nothing of it is stored.
//
//	GET  /apis/visibility.elasticai.io/v1alpha1/namespaces/NS/explanations/WORKLOAD
//	POST /apis/visibility.elasticai.io/v1alpha1/namespaces/NS/plans
//	POST /apis/visibility.elasticai.io/v1alpha1/quotaplans
//
// Words: docs/design/glossary.md.
package v1alpha1
