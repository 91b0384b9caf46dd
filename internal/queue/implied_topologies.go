package queue

import (
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// updateImpliedTopologies finds what each queue's flavors mean for pods that ask for no topology,
// and applies the pending workloads again of queues where that has changed.
func (s *Shell) updateImpliedTopologies() {
	if !s.flavorsChanged || !s.gates.topology {
		return
	}
	s.flavorsChanged = false
	now := map[string]engineview.ImpliedTopology{}
	for name, cq := range s.objects.ClusterQueues {
		if implied := s.objects.ImpliedTopology(cq); implied.Applies() {
			now[name] = implied
		}
	}
	had := len(s.impliedTopologies)
	if s.impliedTopologies = now; had+len(now) == 0 {
		return
	}
	for _, t := range s.workloads {
		implied := now[s.objects.ClusterQueueOf(t.object)]
		if implied.Equal(t.impliedTopology) {
			continue
		}
		if t.impliedTopology = implied; !workload.HasReservation(t.object) {
			s.reapply(t)
		}
	}
}
