package admission

// hold is why a workload is not even considered.
type hold struct {
	reason  Reason
	message string
	// blocked: by its queues or by what it refers to, not for a time or by its own choice.
	blocked bool
	// counted: it is in its ClusterQueue all the same, and one of its pending workloads.
	counted bool
}

// heldBack says why a workload is not considered; the zero value if it is.
func (e *Engine) heldBack(w *workload, q *queue) hold {
	s := &w.spec
	switch {
	case s.Inactive:
		return hold{reason: ReasonDeactivated, message: "The workload is deactivated"}
	case s.Gated:
		return hold{reason: ReasonAdmissionGated, message: "The workload has a closed admission gate"}
	case s.Refused != "":
		return hold{reason: ReasonMisconfigured, message: s.Refused, blocked: true}
	case s.Unready != "":
		return hold{reason: ReasonPending, message: s.Unready}
	case !w.local.exists:
		return hold{reason: ReasonMisconfigured, message: "LocalQueue " + s.LocalQueue + " doesn't exist", blocked: true}
	case w.local.spec.Stop != StopNone:
		return hold{reason: ReasonSuspended, message: "LocalQueue " + s.LocalQueue + " is inactive", blocked: true}
	case !q.exists:
		return hold{reason: ReasonMisconfigured, message: "ClusterQueue " + q.name + " doesn't exist", blocked: true}
	case q.spec.Stop != StopNone || q.spec.Inactive:
		return hold{reason: ReasonSuspended, message: "ClusterQueue " + q.name + " is inactive", blocked: true, counted: true}
	case q.spec.NamespaceSelector == nil || !q.spec.NamespaceSelector.Matches(e.namespaces[s.Namespace]):
		return hold{reason: ReasonMisconfigured, message: "workload namespace doesn't match ClusterQueue selector", counted: true}
	case s.AwaitsInVain:
		return hold{reason: ReasonDependencyNeverSatisfied, message: s.Awaits, counted: true}
	case s.Awaits != "":
		return hold{reason: ReasonDependency, message: s.Awaits, counted: true}
	case s.RequeueAt.After(e.at):
		return hold{reason: ReasonPending, message: BackingOff, counted: true}
	}
	return hold{}
}
