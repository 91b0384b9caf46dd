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

// An admission whose topology assignment names hosts depends on them. When one of them is lost, its
// pods are assigned to another host near the rest; if there is none, or if more than one host is lost
// at once, the workload is evicted.

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
			continue // after the write
		}
		if t == nil || !s.replaceLostNode(t) {
			delete(s.nodesToCheck, key)
		}
	}
}

// replaceLostNode replaces a workload's lost host, or evicts it, and reports whether to try again
// later.
func (s *Shell) replaceLostNode(t *tracked) bool {
	wl := t.object
	if !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) || wl.DeletionTimestamp != nil {
		return false
	}
	if s.gates.skipReassignment && workload.IsSinglePod(wl) {
		return false // its pod is not recreated
	}
	assigned := assignedTopologies(wl)
	if len(assigned) == 0 {
		return false
	}
	w := s.forEngine(wl)
	request := s.placeRequest(&w, wl)
	lost := s.options.Placer.Lost(request, assigned)
	switch {
	case len(lost) == 0:
		s.setUnhealthyNodes(t, nil)
		return false
	case len(lost) > 1:
		s.evictFromNodes(t, "Workload eviction triggered due to multiple TAS assigned node failures, including: "+strings.Join(lost, ", "))
		return false
	}
	if found := s.options.Placer.Replace(request, assigned, lost[0]); found != nil {
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

// replaceNode writes the new assignment.
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

// setUnhealthyNodes writes the hosts that are still to be replaced, if they changed.
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
