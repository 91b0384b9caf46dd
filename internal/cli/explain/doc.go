// Package explain answers why a job waits, and whether one would start. The
// answers come from elastic-queue's engine through the Kubernetes API
// (visibility.elasticai.io): only the engine knows all pending workloads, and the
// API server checks who may ask. What a job's pods meet after its admission is
// added here.
//
// Words: docs/design/glossary.md.
package explain
