package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// An admission that names hosts holds only as long as they do. When one is lost,
// its pods' successors are sent to others, near the rest; where there are none, or
// more than one host is lost at once, the workload makes a new start.

// replaceNodes looks at the workloads that may have lost a host.
func (s *Shell) replaceNodes() {
	if !s.gates.replaceNodes {
		return
	}
	for _, key := range s.options.Placer.AffectedWorkloads() {
		s.nodesToCheck[key] = true
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.nodesToCheck), func(a, b admission.Key) int { return strings.Compare(a.String(), b.String()) }) {
		t := s.workloads[key]
		if t != nil && (t.writing != nil || t.outdated) {
			continue // when it is known what became of that
		}
		if t == nil || !s.replaceLostNode(t) {
			delete(s.nodesToCheck, key)
		}
	}
}

// searches does what a workload needs, and reports whether it has to be looked at
// again, as it still has a host to replace.
func (s *Shell) replaceLostNode(t *tracked) bool {
	wl := t.object
	if !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) || wl.DeletionTimestamp != nil {
		return false
	}
	if s.gates.skipReassignment && workload.IsSinglePod(wl) {
		return false // no other pod comes that could go elsewhere
	}
	named := assignedTopologies(wl)
	if len(named) == 0 {
		return false
	}
	w := s.forEngine(wl)
	request := s.placeRequest(&w, wl)
	lost := s.options.Placer.Lost(request, named)
	switch {
	case len(lost) == 0:
		s.setUnhealthyNodes(t, nil)
		return false
	case len(lost) > 1:
		s.evictFromNodes(t, "Workload eviction triggered due to multiple TAS assigned node failures, including: "+strings.Join(lost, ", "))
		return false
	}
	if found := s.options.Placer.Replace(request, named, lost[0]); found != nil {
		s.startWrite(t, s.replaceNode(lost[0], found))
		return false
	}
	if s.gates.failFast {
		s.evictFromNodes(t, "Workload was evicted as there was no replacement for unhealthy node(s): "+lost[0])
		return false
	}
	s.setUnhealthyNodes(t, lost)
	return true
}

func (s *Shell) evictFromNodes(t *tracked, message string) {
	s.startWrite(t, s.step(workload.Step{Action: workload.EvictNow, Reason: kueue.WorkloadEvictedDueToNodeFailures, Message: message}))
}

// replace writes where pods go from now on.
func (s *Shell) replaceNode(lost string, found map[string]*kueue.TopologyAssignment) *change {
	return &change{
		apply: func(wl *kueue.Workload, _ time.Time) bool {
			workload.SetTopologyAssignments(wl, found)
			wl.Status.UnhealthyNodes = nil
			return true
		},
		done: func(wl *kueue.Workload) {
			s.unplaced = append(s.unplaced, s.workloads[workload.KeyOf(wl)])
			s.recordEvent(wl, corev1.EventTypeNormal, "NodeReplaced", "Node %s is lost; its pods go to %s", lost, hostsIn(found))
		},
	}
}

func hostsIn(found map[string]*kueue.TopologyAssignment) string {
	pods := map[string]int{}
	for _, a := range found {
		for _, d := range workload.Domains(a) {
			pods[d.Values[len(d.Values)-1]] += d.Count
		}
	}
	var out []string
	for _, host := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, fmt.Sprintf("%s (%d)", host, pods[host]))
	}
	return strings.Join(out, ", ")
}

// markLost says in the status which hosts others are looked for, if that is news.
func (s *Shell) setUnhealthyNodes(t *tracked, hosts []string) {
	var nodes []kueue.UnhealthyNode
	for _, host := range hosts {
		nodes = append(nodes, kueue.UnhealthyNode{Name: host})
	}
	if slices.Equal(nodes, t.object.Status.UnhealthyNodes) {
		return
	}
	s.startWrite(t, &change{apply: func(wl *kueue.Workload, _ time.Time) bool {
		wl.Status.UnhealthyNodes = nodes
		return true
	}})
}
