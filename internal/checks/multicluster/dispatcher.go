package multicluster

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// round is how long the clusters nominated so far have before more are.
const round = 5 * time.Minute

// dispatcher nominates clusters.
type dispatcher struct {
	// name is one of Kueue's two dispatchers, or of an external one that writes the workload's
	// status.nominatedClusterNames.
	name string
	// step is how many more are nominated each round, sorted by name unless inOrder.
	step    int
	inOrder bool
}

// nominate is which clusters a workload is sent to now, and when there will be more (0: not by time
// alone). Clusters that do not answer are skipped.
func (d dispatcher) nominate(s *situation) (names []string, again time.Duration) {
	var usable []string
	for i := range s.remotes {
		if s.remotes[i].configured && s.remotes[i].lost.IsZero() {
			usable = append(usable, s.remotes[i].name)
		}
	}
	switch d.name {
	case kueueconfig.MultiKueueDispatcherModeAllAtOnce:
		return usable, 0
	case kueueconfig.MultiKueueDispatcherModeIncremental:
		return d.more(s, usable)
	}
	return s.local.Status.NominatedClusterNames, 0
}

// more are those nominated before, and as many of the usable ones as the rounds allow that have
// begun since the workload could be dispatched. That time comes from the workload alone, so a new
// leader counts the same.
func (d dispatcher) more(s *situation, usable []string) ([]string, time.Duration) {
	if !d.inOrder {
		slices.Sort(usable)
	}
	began := since(s.local, s.check.Name)
	rounds := 1 + int(max(0, s.now.Sub(began))/round)
	names := slices.Clone(s.local.Status.NominatedClusterNames)
	count := 0
	for _, name := range usable {
		known := slices.Contains(names, name)
		if !known && count >= rounds*d.step {
			return names, began.Add(time.Duration(rounds) * round).Sub(s.now)
		}
		if count++; !known {
			names = append(names, name)
		}
	}
	return names, 0
}

// since is when nothing but the check was left to wait for.
func since(wl *kueue.Workload, check kueue.AdmissionCheckReference) time.Time {
	var at time.Time
	if reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); reserved != nil {
		at = reserved.LastTransitionTime.Time
	}
	for _, other := range wl.Status.AdmissionChecks {
		if other.Name != check && other.LastTransitionTime.After(at) {
			at = other.LastTransitionTime.Time
		}
	}
	return at
}
