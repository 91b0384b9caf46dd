// Package placer answers the admission engine's question, "do all these pods
// fit on real nodes and cards at once?", with the placement engine.
//
// A workload is a gang there. An admitted workload has a reservation, and its
// pods, which carry the workload's name, take it placement by placement as they
// are bound. Pods of no workload count for themselves.
//
//	file                     what is there
//	placer.go                Place, Find, Hold, Remove, Checkpoint, Rollback
//	watch_events.go          nodes, GPUs, pods and topologies into the engine
//	reservations.go          what is reserved for workloads, and their bound pods
//	leaving_pods.go          pods that are being deleted
//	waiting_pods.go          pods of admitted workloads for which nothing is reserved
//	restore.go               reservations of workloads admitted before a restart
//	node_replacement.go      other nodes for pods whose node is lost
//	topology_assignment.go   placements as status.admission writes them
//	node_placements.go       placements as explanations show them
//
// Words: docs/design/glossary.md.
package placer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Placer is an admission.Placer. Like the engines it is for one goroutine.
type Placer struct {
	engine     *placement.Engine
	topologies map[string][]string
	options    Options

	open         []*placement.Txn // what-ifs under way
	nodes        *inventory.Nodes
	pods         map[string]bound        // bound pods
	leaving      map[string]time.Time    // those that are being deleted, and when they should have ended; zero: they should
	released     map[string]time.Time    // gangs that have pods and nothing reserved, and when those should have ended; zero: not known yet
	reservations map[string]*reservation // by gang
	// followers are gangs whose pods are those of another by now.
	followers map[string]string
	jobs      map[types.UID]owner    // of pods that do not name their workload
	owned     map[string][]types.UID // the same by gang
	affected  map[string]bool        // gangs that may have lost a node
	// asked is what pods ask for that count with something else, by gang.
	asked map[string]map[string]map[string]int64
	// waiting are gangs with pods for which nothing could be reserved; outdated are those whose reservations may
	// have gone to other pods.
	waiting, outdated map[string]bool
	known             map[*admission.PodSet]placement.Pod           // pod sets that were asked for, which nobody changes
	sets              map[*admission.PlacePodSet][]placement.PodSet // the same of requests, by their first pod set
	freed             bool                                          // there may be capacity for those that wait
	counted           int                                           // the what-if in which they are on nodes, from 1; 0: none
}

var _ admission.Placer = (*Placer)(nil)

// Options of New.
type Options struct {
	// TopologyOnly looks at nodes only where a flavor names a topology, as Kueue
	// does.
	TopologyOnly bool
	// FewHosts gives pods that may be anywhere in a topology as few hosts as
	// possible, rather than those with the least free capacity.
	FewHosts bool
	// IgnoreAnnotated leaves pods out that have a topology annotation and name no workload.
	IgnoreAnnotated bool
	// AsAdmitted counts pods in a topology with what their workload was given, whatever they ask for themselves.
	AsAdmitted bool
	// DomainsOnly does not ask which nodes a pod can be on in a topology that does not go down to hosts.
	DomainsOnly bool
	// ReplaceAnywhere does not look near the rest first for the pods of a lost node, where that is preferred.
	ReplaceAnywhere bool
	// Balanced spreads pods that prefer a level of a topology evenly.
	Balanced bool
	// Policy of placement; empty: the engine's default.
	Policy string
	// Encoding of the assignments in statuses.
	Encoding workload.Encoding
}

// New makes a Placer that knows no nodes yet.
func New(options Options) (*Placer, error) {
	topologies := map[string][]string{}
	engine, err := placement.New(placement.Options{Topologies: topologies, Policy: options.Policy})
	if err != nil {
		return nil, err
	}
	return &Placer{
		engine: engine, topologies: topologies, options: options,
		nodes: inventory.NewNodes(describeNode), pods: map[string]bound{}, leaving: map[string]time.Time{}, released: map[string]time.Time{},
		reservations: map[string]*reservation{}, followers: map[string]string{}, jobs: map[types.UID]owner{}, owned: map[string][]types.UID{}, affected: map[string]bool{}, asked: map[string]map[string]map[string]int64{},
		waiting: map[string]bool{}, outdated: map[string]bool{}, known: map[*admission.PodSet]placement.Pod{}, sets: map[*admission.PlacePodSet][]placement.PodSet{},
	}, nil
}

// Place reserves nodes and cards for all pods of a workload.
func (p *Placer) Place(r admission.PlaceRequest) (any, *admission.Refusal) {
	placed, refusal := p.place(r, func(gang *placement.Gang) placement.Answer {
		txn := p.engine.Begin()
		defer txn.Commit(time.Time{})
		return txn.Place(gang)
	})
	if placed == nil {
		return nil, refusal
	}
	if len(p.open) == 0 {
		p.reserve(placed)
	}
	return placed, nil
}

// Find finds them in the what-if under way, which is rolled back next.
func (p *Placer) Find(r admission.PlaceRequest) (any, *admission.Refusal) {
	placed, refusal := p.place(r, p.open[len(p.open)-1].Find)
	if placed == nil {
		return nil, refusal
	}
	return placed, nil
}

// place asks the engine; without a refusal, nil means that quota alone decides.
func (p *Placer) place(r admission.PlaceRequest, ask func(*placement.Gang) placement.Answer) (*reservation, *admission.Refusal) {
	if p.quotaDecides(r) {
		return nil, nil
	}
	gang, refusal := p.gangOf(r)
	if refusal != nil {
		return nil, refusal
	}
	p.countWaiting(gang.Key)
	answer := ask(&gang)
	if answer.Fits {
		return newReservation(gang, answer), nil
	}
	return nil, &admission.Refusal{
		PodSet: short(answer),
		Reason: answer.Refusal,
		// Where only another node or card could help, no eviction does.
		NeverFits: answer.Refusal.RetryOn&placement.OnPodGone == 0,
	}
}

// quotaDecides says that quota alone decides: no flavor names a topology, and either
// nodes are not to be looked at or there are none yet, as in a cluster that makes
// them when pods wait. The same holds where all pods get their nodes later.
func (p *Placer) quotaDecides(r admission.PlaceRequest) bool {
	for _, set := range r.PodSets {
		for _, flavor := range set.Flavors {
			if flavor.Topology != "" {
				return false
			}
		}
	}
	return p.options.TopologyOnly || p.nodes.Len() == 0 || len(r.PodSets) == 0
}

// short names the first pod set that did not fit.
func short(answer placement.Answer) string {
	for _, set := range answer.PodSets {
		if set.Fit < set.Count {
			return set.Name
		}
	}
	return ""
}

// Hold reserves what a workload was given, whatever else is there.
func (p *Placer) Hold(key admission.Key, held any) {
	txn := p.engine.Begin()
	defer txn.Commit(time.Time{})
	r, ok := held.(*reservation)
	if !ok {
		r = newReservation(placement.Gang{Key: gangKey(key)}, placement.Answer{}) // its bound pods say where it is
	}
	if len(p.open) == 0 {
		p.reserve(r)
	}
	if err := txn.Hold(&r.gang, &r.answer); err != nil {
		panic(fmt.Sprintf("placer: a gang that was placed cannot be held: %v", err))
	}
}

// Remove ends a workload's reservation. Its bound pods stay in the engine until
// they end; in a what-if they are removed with it.
func (p *Placer) Remove(key admission.Key) {
	gang := gangKey(key)
	if len(p.open) == 0 {
		p.engine.Release(gang)
		if r := p.reservations[gang]; r != nil && r.hasPods() {
			p.released[gang] = time.Time{}
		}
		p.countAllAsAsked(gang)
		delete(p.reservations, gang)
		delete(p.waiting, gang)
		p.freed = true
		maps.DeleteFunc(p.followers, func(_, by string) bool { return by == gang })
		for _, job := range p.owned[gang] {
			delete(p.jobs, job)
		}
		delete(p.owned, gang)
		return
	}
	txn := p.engine.Begin()
	defer txn.Commit(time.Time{})
	txn.RemoveGang(gang)
}

// Follow makes pods that carry one workload's name those of another, which has
// replaced it.
func (p *Placer) Follow(name, by admission.Key) {
	from, to := gangKey(name), gangKey(by)
	p.followers[from] = to
	reserved, joined := p.reservations[to], false
	for key, b := range p.pods {
		if _, leaves := p.leaving[key]; leaves || b.gang != from || b.pod.Gang == to {
			continue
		}
		p.apply(placement.PodGone{Key: key})
		p.countAsAsked(b.pod.Gang, &b.pod)
		b.pod.Gang = to
		p.countAsAdmitted(&b.pod, reserved)
		p.pods[key] = b
		p.apply(placement.PodBound{Pod: b.pod, Node: b.node, Grants: b.grants})
		if reserved != nil {
			reserved.join(b.pod.PodSet)
			joined = true
		}
	}
	if joined {
		p.reserveAgain(reserved) // they took what was reserved for those to come
	}
}

// Checkpoint begins a what-if.
func (p *Placer) Checkpoint() int {
	p.open = append(p.open, p.engine.Begin())
	return len(p.open) - 1
}

// Rollback ends the what-ifs since the mark.
func (p *Placer) Rollback(mark int) {
	for len(p.open) > mark {
		last := len(p.open) - 1
		p.open[last].Rollback()
		p.open = p.open[:last]
	}
	if p.counted > mark {
		p.counted = 0
	}
}

func gangKey(key admission.Key) string { return key.String() }

// gangOf is a request in the placement engine's types. Those who share a request share its pod sets, unless topologies,
// which change, or nodes to avoid have a part in them.
func (p *Placer) gangOf(r admission.PlaceRequest) (placement.Gang, *admission.Refusal) {
	if len(r.PodSets) > 0 && len(r.AvoidNodes) == 0 {
		if sets, known := p.sets[&r.PodSets[0]]; known && len(sets) == len(r.PodSets) {
			return placement.Gang{Key: gangKey(r.Workload), PodSets: sets}, nil
		}
	}
	gang, refusal := p.newGang(r)
	if refusal == nil && len(r.PodSets) > 0 && len(r.AvoidNodes) == 0 && !slices.ContainsFunc(gang.PodSets, func(s placement.PodSet) bool { return s.Topology != nil }) {
		if len(p.sets) >= mostKnown {
			clear(p.sets)
		}
		p.sets[&r.PodSets[0]] = gang.PodSets
	}
	return gang, refusal
}

func (p *Placer) newGang(r admission.PlaceRequest) (placement.Gang, *admission.Refusal) {
	gang := placement.Gang{Key: gangKey(r.Workload), PodSets: make([]placement.PodSet, len(r.PodSets))}
	for i := range r.PodSets {
		set := &r.PodSets[i]
		pod, err := p.podOf(set.Spec)
		if err != nil {
			return gang, &admission.Refusal{PodSet: set.Spec.Name, Reason: err, NeverFits: true}
		}
		topology, in := "", []string(nil)
		for _, flavor := range set.Flavors {
			if len(flavor.NodeLabels) > 0 {
				pod.Selector = maps.Clone(pod.Selector)
				maps.Copy(pod.Selector, flavor.NodeLabels)
			}
			pod.Tolerations = append(slices.Clip(pod.Tolerations), flavor.Tolerations...)
			if flavor.Topology != "" {
				topology, in = flavor.Topology, append(in, flavor.Name)
			}
		}
		if len(in) > 1 && set.Spec.Topology != nil {
			return gang, &admission.Refusal{PodSet: set.Spec.Name, Reason: errors.New("more than one TAS flavor assigned: " + strings.Join(in, ", ")), NeverFits: true}
		}
		request := p.topologyOf(set.Spec, topology)
		if p.options.DomainsOnly && request != nil && !namesHosts(p.topologies[topology]) {
			pod, request.Preferences = anywhere(pod, set.Flavors), nil
		}
		if labels := p.beside(set.Spec, request); len(labels) > 0 {
			pod.Selector = maps.Clone(pod.Selector)
			maps.Copy(pod.Selector, labels)
		}
		if len(r.AvoidNodes) > 0 {
			pod.Affinity = avoid(pod.Affinity, placement.Requirement{Key: nodeName, Operator: "NotIn", Values: r.AvoidNodes})
		}
		gang.PodSets[i] = placement.PodSet{Name: set.Spec.Name, Count: inSlices(int(set.Count), request), Pod: pod, Topology: request}
	}
	return gang, nil
}

// nodeName is the key of node affinity that stands for a node's name.
const nodeName = "metadata.name"

// anywhere is a pod that goes wherever its flavors go: what it says of nodes itself, and their taints, do not count.
func anywhere(pod placement.Pod, flavors []*admission.Flavor) placement.Pod {
	pod.Selector, pod.Affinity, pod.Tolerations, pod.IgnoresTaints = map[string]string{}, nil, nil, true
	for _, flavor := range flavors {
		maps.Copy(pod.Selector, flavor.NodeLabels)
	}
	return pod
}

// inSlices is how many pods of a set get a place: as in Kueue, those beyond the last whole slice get none.
func inSlices(count int, request *placement.TopologyRequest) int {
	if request != nil && len(request.Slices) > 0 && request.Slices[0].Size > 0 && request.Slices[0].Size <= count {
		return count - count%request.Slices[0].Size
	}
	return count
}

// mostKnown bounds what is remembered of pod sets: those of admission's request shapes come again and again, others once.
const mostKnown = 4096

// podOf is one pod of a set; what it holds is shared with those who asked before.
func (p *Placer) podOf(spec *admission.PodSet) (placement.Pod, error) {
	if pod, known := p.known[spec]; known {
		return pod, nil
	}
	pod, err := describePod(spec)
	if err != nil {
		return pod, err
	}
	if len(p.known) >= mostKnown {
		clear(p.known)
	}
	p.known[spec] = pod
	return pod, nil
}

// describePod is one pod of a set. Quota counts what a pod requests in all, not by
// container: its cards are placed as if one container requested them.
func describePod(spec *admission.PodSet) (placement.Pod, error) {
	asks := corev1.Container{Name: "pod", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	pod := placement.Pod{
		Resources: map[string]int64{}, Selector: map[string]string{}, Affinity: spec.Affinity, Tolerations: slices.Clone(spec.Tolerations),
		Policy: spec.Policy,
	}
	for name, amount := range spec.OnNode() {
		if request.IsCard(corev1.ResourceName(name)) {
			asks.Resources.Requests[corev1.ResourceName(name)] = workload.Quantity(corev1.ResourceName(name), amount)
		} else if amount > 0 {
			pod.Resources[name] = amount
		}
	}
	cards, err := request.Container(&asks, nil)
	if err != nil {
		return pod, err
	}
	if cards.Count > 0 {
		pod.Containers = []placement.Container{{Name: asks.Name, Cards: cards}}
	}
	for key, value := range spec.NodeSelector {
		pod.Selector[key] = value
	}
	return pod, nil
}

func (p *Placer) topologyOf(spec *admission.PodSet, topology string) *placement.TopologyRequest {
	if spec.Topology == nil || topology == "" {
		return nil
	}
	request := &placement.TopologyRequest{
		Topology: topology,
		Mode: map[admission.TopologyMode]placement.TopologyMode{
			admission.TopologyUnconstrained: placement.Unconstrained,
			admission.TopologyPreferred:     placement.Preferred,
			admission.TopologyRequired:      placement.Required,
		}[spec.Topology.Mode],
		Level:        spec.Topology.Level,
		Balanced:     p.options.Balanced,
		Group:        spec.Group,
		Preferences:  spec.Preferences,
		FullestFirst: spec.Topology.Mode == admission.TopologyUnconstrained && !p.options.FewHosts,
	}
	for _, slice := range spec.Topology.Slices {
		request.Slices = append(request.Slices, placement.Slice{Level: slice.Level, Size: int(slice.Size)})
	}
	return request
}

// workloadOf is the workload that a pod's annotation names.
func workloadOf(pod *corev1.Pod) string {
	if name := pod.Annotations[kueue.WorkloadAnnotation]; name != "" {
		return gangKey(admission.Key{Namespace: pod.Namespace, Name: name})
	}
	return ""
}
