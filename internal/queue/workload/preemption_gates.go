package workload

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// IsPreemptionGated says that one of the workload's preemption gates is closed. One whose state nobody wrote is closed.
func IsPreemptionGated(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Spec.PreemptionGates, func(gate kueue.PreemptionGate) bool { return GateOpenedAt(wl, gate.Name).IsZero() })
}

// PreemptionTurn is how long one of several workloads that stand for the same job has to preempt others, before the next
// one may.
const PreemptionTurn = 5 * time.Minute

// GateOpenedAt is when a preemption gate was opened; zero: it is closed.
func GateOpenedAt(wl *kueue.Workload, gate string) time.Time {
	for _, state := range wl.Status.PreemptionGates {
		if state.Name == gate && state.Position == kueue.PreemptionGatePositionOpen {
			return state.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// OpenGate opens a preemption gate.
func OpenGate(wl *kueue.Workload, gate string, now time.Time) {
	states := slices.DeleteFunc(slices.Clone(wl.Status.PreemptionGates), func(state kueue.PreemptionGateState) bool { return state.Name == gate })
	wl.Status.PreemptionGates = append(states, kueue.PreemptionGateState{
		Name: gate, Position: kueue.PreemptionGatePositionOpen, LastTransitionTime: metav1.NewTime(now),
	})
}

// BlockedOnGatesSince is since when the workload is known to need preemption while a gate is closed; zero: it is not.
func BlockedOnGatesSince(wl *kueue.Workload) time.Time {
	if !isTrue(wl, kueue.WorkloadBlockedOnPreemptionGates) {
		return time.Time{}
	}
	return condition(wl, kueue.WorkloadBlockedOnPreemptionGates).LastTransitionTime.Time
}

// SetGates says in the status which preemption gates there are. Those whose state nobody wrote are closed.
func SetGates(wl *kueue.Workload, now time.Time) {
	var states []kueue.PreemptionGateState
	for _, gate := range wl.Spec.PreemptionGates {
		i := slices.IndexFunc(wl.Status.PreemptionGates, func(state kueue.PreemptionGateState) bool { return state.Name == gate.Name })
		if i >= 0 {
			states = append(states, wl.Status.PreemptionGates[i])
			continue
		}
		states = append(states, kueue.PreemptionGateState{Name: gate.Name, Position: kueue.PreemptionGatePositionClosed, LastTransitionTime: metav1.NewTime(now)})
	}
	wl.Status.PreemptionGates = states
}
