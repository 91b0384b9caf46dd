package workload

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// IsPreemptionGated says that one of the workload's preemption gates is closed. One whose state nobody wrote is closed.
func IsPreemptionGated(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Spec.PreemptionGates, func(gate kueue.PreemptionGate) bool { return openedAt(wl, gate.Name).IsZero() })
}

// openedAt is when a preemption gate was opened; zero: it is closed.
func openedAt(wl *kueue.Workload, gate string) time.Time {
	for _, state := range wl.Status.PreemptionGates {
		if state.Name == gate && state.Position == kueue.PreemptionGatePositionOpen {
			return state.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func openPreemptionGate(wl *kueue.Workload, gate string, now time.Time) {
	states := slices.DeleteFunc(slices.Clone(wl.Status.PreemptionGates), func(state kueue.PreemptionGateState) bool { return state.Name == gate })
	wl.Status.PreemptionGates = append(states, kueue.PreemptionGateState{
		Name: gate, Position: kueue.PreemptionGatePositionOpen, LastTransitionTime: metav1.NewTime(now),
	})
}

// isBlockedOnGates says that the workload was found to need preemption while a gate was closed.
func isBlockedOnGates(wl *kueue.Workload) bool {
	return isTrue(wl, kueue.WorkloadBlockedOnPreemptionGates)
}
