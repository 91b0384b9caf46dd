// Package failurerecovery ends pods that are being deleted on nodes which cannot be reached. Kubernetes waits for the
// node's word there, for ever if need be, and the pod's job and its quota wait with it. A pod says by an annotation that
// it may be ended so: that it does no harm if it still runs where nobody can see it.
//
// It is Kueue's FailureRecoveryPolicy, and there with that feature gate alone.
//
// Words: docs/design/glossary.md.
package failurerecovery
