package multicluster

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// round is how long the clusters nominated so far have before more are.
const round = 5 * time.Minute

// dispatcher nominates clusters.
type dispatcher struct {
	// name is one of Kueue's two dispatchers, ours, or of an external one that writes the workload's
	// status.nominatedClusterNames.
	name string
	// step is how many more are nominated each round at most, sorted by name unless inOrder.
	step    int
	inOrder bool
}

// nominate is which clusters a workload is sent to now, and when there will be more (0: not by time
// alone).
func (d dispatcher) nominate(s *situation) (names []string, again time.Duration) {
	before := s.local.Status.NominatedClusterNames
	switch d.name {
	case kueueconfig.MultiKueueDispatcherModeAllAtOnce:
		return s.usable(), 0
	case kueueconfig.MultiKueueDispatcherModeIncremental:
		return s.more(before, slices.Collect(slices.Chunk(d.usable(s), d.step)))
	case v1alpha1.CheapestDispatcher:
		costs := s.costs(d.usable(s))
		return s.more(withPrice(before, costs), cheapestFirst(costs, d.step))
	}
	return before, 0
}

// usable are the clusters that answer, as they are configured.
func (s *situation) usable() (names []string) {
	for i := range s.remotes {
		if s.remotes[i].configured && s.remotes[i].lost.IsZero() {
			names = append(names, s.remotes[i].name)
		}
	}
	return names
}

// usable are the same in the order in which they are nominated.
func (d dispatcher) usable(s *situation) []string {
	names := s.usable()
	if !d.inOrder {
		slices.Sort(names)
	}
	return names
}

// more are those nominated before, and those of as many steps as rounds have begun since the
// workload could be dispatched. That time comes from the workload alone, so a new leader counts the
// same.
func (s *situation) more(before []string, steps [][]string) ([]string, time.Duration) {
	began := since(s.local, s.check.Name)
	rounds := 1 + int(max(0, s.now.Sub(began))/round)
	names := slices.Clone(before)
	for i, step := range steps {
		for _, name := range step {
			switch {
			case slices.Contains(names, name):
			case i >= rounds:
				return names, began.Add(time.Duration(rounds) * round).Sub(s.now)
			default:
				names = append(names, name)
			}
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
