// Package explain answers why a job waits, and whether one would start. The
// answers come from elastic-queue's engine through the Kubernetes API
// (visibility.elasticai.io): nobody else knows the whole line, and the API
// server sees to it that only those are told who may be. What a job's pods
// meet after its admission is added here.
package explain
