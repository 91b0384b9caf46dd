package admission

// heldBack says why a workload is not even considered.
func (e *Engine) heldBack(w *workload, q *queue) (Reason, string) {
	s := &w.spec
	switch {
	case s.Inactive:
		return ReasonSuspended, "The workload is deactivated"
	case s.Gated:
		return ReasonAdmissionGated, "The workload has a closed admission gate"
	case s.Refused != "":
		return ReasonMisconfigured, s.Refused
	case s.Unready != "":
		return ReasonPending, s.Unready
	case !w.local.exists:
		return ReasonMisconfigured, "LocalQueue " + s.LocalQueue + " doesn't exist"
	case w.local.spec.Stop != StopNone:
		return ReasonSuspended, "LocalQueue " + s.LocalQueue + " is inactive"
	case !q.exists:
		return ReasonMisconfigured, "ClusterQueue " + q.name + " doesn't exist"
	case q.spec.Stop != StopNone:
		return ReasonSuspended, "ClusterQueue " + q.name + " is inactive"
	case q.spec.Inactive:
		return ReasonSuspended, "ClusterQueue " + q.name + " is inactive"
	case q.spec.NamespaceSelector == nil || !q.spec.NamespaceSelector.Matches(e.namespaces[s.Namespace]):
		return ReasonMisconfigured, "Workload namespace doesn't match ClusterQueue selector"
	case s.RequeueAt.After(e.at):
		return ReasonPending, "The workload is requeued after its backoff ends"
	}
	return "", ""
}
