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
	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// An admission whose topology assignment names hosts depends on them. A host that is lost is noted in the workload's
// status, and a moment later its pods are assigned to another one near the rest; if there is none, or if a second host
// is lost meanwhile, the workload is evicted.

// replaceAfter is how long a host has to come back before it is replaced.
const replaceAfter = time.Second

// nodeCheck is about a workload that may have lost a host.
type nodeCheck struct {
	replaceAt time.Time // zero: no host is noted as lost
	again     time.Time // when to look again although nothing changes; zero: never
}

// replaceNodes looks at the workloads that may have lost a host. It returns when to look again although nothing
// changes; zero: never.
func (s *Shell) replaceNodes() (again time.Time) {
	if !s.gates.replaceNodes {
		return again
	}
	for _, key := range s.options.Placer.AffectedWorkloads() {
		s.checkNodes(key)
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.nodesToCheck), func(a, b admission.Key) int { return strings.Compare(a.String(), b.String()) }) {
		t, check := s.workloads[key], s.nodesToCheck[key]
		if t != nil && (t.writing != nil || t.outdated) {
			continue // after the write
		}
		if t == nil || !s.replaceLostNode(t, check) {
			delete(s.nodesToCheck, key)
			continue
		}
		again = inbox.Earlier(again, check.again)
	}
	return again
}

// checkNodes notes a workload that may have lost a host.
func (s *Shell) checkNodes(key admission.Key) {
	if s.nodesToCheck[key] == nil {
		s.nodesToCheck[key] = &nodeCheck{}
	}
}

// replaceLostNode replaces a workload's lost host, or evicts it, and reports whether to look at it again later.
func (s *Shell) replaceLostNode(t *tracked, check *nodeCheck) bool {
	wl := t.object
	if s.isParent(wl) || !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) || wl.DeletionTimestamp != nil {
		return false
	}
	if s.gates.skipReassignment && workload.IsSinglePod(s.asCounted(wl)) {
		return false // its pod is not recreated
	}
	now := s.now()
	var lost []string
	lost, check.again = s.lostNodes(wl, now)
	noted := unhealthyNodes(wl)
	more := slices.DeleteFunc(slices.Clone(lost), func(host string) bool { return slices.Contains(noted, host) })
	switch {
	case len(lost) > 1:
		there := slices.DeleteFunc(noted, func(host string) bool { return !slices.Contains(lost, host) })
		s.evictFromNodes(t, "Workload eviction triggered due to multiple TAS assigned node failures, including: "+strings.Join(append(there, more...), ", "))
		return true // until it is: the write may be too late
	case len(lost) == 0:
		check.replaceAt = time.Time{}
		s.setUnhealthyNodes(t, nil)
		return len(noted) > 0 || !check.again.IsZero()
	case len(more) > 0:
		check.replaceAt = now.Add(replaceAfter)
		s.setUnhealthyNodes(t, lost)
		return true
	}
	if check.replaceAt.IsZero() { // noted by another process
		check.replaceAt = now.Add(replaceAfter)
	}
	if now.Before(check.replaceAt) {
		check.again = inbox.Earlier(check.again, check.replaceAt)
		return true
	}
	s.replaceOrEvict(t, lost[0])
	return true
}

// replaceOrEvict starts a write that does either, or tries again later. A write may be too late: whether it was done is seen
// after it.
func (s *Shell) replaceOrEvict(t *tracked, lost string) {
	w := s.forEngine(t.object)
	request := s.placeRequest(&w, t.object)
	request.AvoidNodes = append(slices.Clip(request.AvoidNodes), s.engine.AvoidNodes(w.Key, s.now())...) // others may have reserved since
	if found := s.options.Placer.Replace(request, assignedTopologies(t.object), lost); found != nil {
		s.startWrite(t, s.replaceNode(lost, found))
	} else if s.gates.failFast {
		s.evictFromNodes(t, "Workload was evicted as there was no replacement for unhealthy node(s): "+lost)
	}
}

// lostNodes are the hosts of an admission that are to be replaced, and when there may be more although nothing changes.
func (s *Shell) lostNodes(wl *kueue.Workload, now time.Time) (lost []string, again time.Time) {
	for _, a := range assignedTopologies(wl) {
		for _, host := range workload.Hosts(a) {
			tolerations, err := s.flavors().TolerationsOn(wl, host)
			if err != nil {
				continue // its flavor is gone: nothing is known of its nodes
			}
			node := s.options.Placer.Node(host)
			health, then := s.options.NodeRules.Health(node, tolerations, now)
			again = inbox.Earlier(again, then)
			if health == workload.NodeLost || health == workload.NodeLeaving && !s.options.Placer.Runs(workload.KeyOf(wl), node.Name) {
				lost = append(lost, host)
			}
		}
	}
	slices.Sort(lost)
	return slices.Compact(lost), again
}

// flavors finds those that the loop knows.
func (s *Shell) flavors() workload.Flavors {
	return func(name kueue.ResourceFlavorReference) (*kueue.ResourceFlavor, error) {
		if flavor := s.objects.Flavors[string(name)]; flavor != nil {
			return flavor, nil
		}
		return nil, fmt.Errorf("there is no flavor %s", name)
	}
}

func unhealthyNodes(wl *kueue.Workload) []string {
	var names []string
	for _, node := range wl.Status.UnhealthyNodes {
		names = append(names, node.Name)
	}
	return names
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

// setUnhealthyNodes writes the hosts that are to be replaced, if they changed.
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
