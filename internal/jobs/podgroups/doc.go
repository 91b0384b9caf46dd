// Package podgroups is jobs without a suspend flag: a single pod, the pods of a group, or the pods
// of an object such as a LeaderWorkerSet. Each pod is created with a scheduling gate; starting the
// job removes the gates of as many pods as were admitted, stopping it deletes the pods that run.
//
// Words: docs/design/glossary.md.
package podgroups
