package placer

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/placement"
)

// reservation is what is reserved for a workload: the Placement of an admission.
// Its pods take it one by one as they are bound.
type reservation struct {
	gang   placement.Gang
	answer placement.Answer
	free   map[place]int  // not taken by a pod yet; nil: see places
	bound  map[string]int // pods on nodes, by pod set; nil: none
	lacks  map[string]int // pods for which nothing is reserved, by pod set
}

// place is a node for pods of a set.
type place struct{ podSet, node string }

// hasPods: some of its pods are on nodes.
func (r *reservation) hasPods() bool {
	for _, n := range r.bound {
		if n > 0 {
			return true
		}
	}
	return false
}

func newReservation(gang placement.Gang, answer placement.Answer) *reservation {
	return &reservation{gang: gang, answer: answer}
}

// move the part of the reservation that no pod has taken.
func (r *reservation) move(answer placement.Answer) {
	r.answer, r.free = answer, nil
}

// places that no pod has taken yet. They are counted when they are first asked for: most placements end as a what-if.
func (r *reservation) places() map[place]int {
	if r.free == nil {
		r.free = map[place]int{}
		for _, set := range r.answer.PodSets {
			for _, placed := range set.Placed {
				r.free[place{set.Name, placed.Node}] += placed.Count
			}
		}
	}
	return r.free
}

// count pods of a set that came to nodes, or left.
func (r *reservation) count(podSet string, pods int) {
	if r.bound == nil {
		r.bound = map[string]int{}
	}
	r.bound[podSet] += pods
}

// take counts a bound pod and reports whether its node was reserved for it.
func (r *reservation) take(podSet, node string) bool {
	r.count(podSet, 1)
	at, free := place{podSet, node}, r.places()
	if free[at] == 0 {
		return false
	}
	free[at]--
	return true
}

// join takes in a pod that nothing was reserved for: it came with the workload
// that this one replaced.
func (r *reservation) join(podSet string) {
	r.gang.PodSets = slices.Clone(r.gang.PodSets) // those of others like it are the same
	for i := range r.gang.PodSets {
		if r.gang.PodSets[i].Name == podSet {
			r.gang.PodSets[i].Count++
			r.count(podSet, 1)
		}
	}
}

// bound is a pod on a node, as the engine has it.
type bound struct {
	pod    placement.Pod
	gang   string    // the one its annotation names, or its job
	job    types.UID // what controls it
	node   string
	grants []placement.Grant
}

// bind enters a pod that is on a node into the engine. One that does not say
// which cards it has is counted on those reserved for it, or on any that are free.
// It reports whether it may have left a node or a card that was reserved for it.
func (p *Placer) bind(pod placement.Pod, job types.UID, node string, grants []placement.Grant, said bool) (left bool) {
	if owner, known := p.jobs[job]; known && pod.Gang == "" {
		pod.Gang, pod.PodSet = owner.gang, owner.podSet
	}
	gang := pod.Gang
	if follower, followed := p.followers[gang]; followed {
		pod.Gang = follower
	}
	if r := p.reservations[pod.Gang]; r != nil && pod.PodSet == "" && len(r.gang.PodSets) == 1 {
		pod.PodSet = r.gang.PodSets[0].Name // which other could it be?
	}
	p.countAsAdmitted(&pod, p.reservations[pod.Gang])
	if len(pod.Containers) > 0 && !said {
		cards := pod
		cards.Resources = nil // it is there: only cards are in question
		if assigned, err := p.engine.Assign(&cards, node, time.Time{}); err == nil {
			grants = assigned.Grants
		}
	}
	p.pods[pod.Key] = bound{pod: pod, gang: gang, job: job, node: node, grants: grants}
	p.apply(placement.PodBound{Pod: pod, Node: node, Grants: grants})
	for _, gang := range p.engine.Crowded(node) {
		p.outdated[gang] = true
	}
	r := p.reservations[pod.Gang]
	if r == nil {
		return false
	}
	if !r.take(pod.PodSet, node) {
		if r.lacks[pod.PodSet] > 0 {
			r.lacks[pod.PodSet]-- // it waited for this
			p.noteWaiting(r)
		} else {
			p.reserveAgain(r)
		}
		return true
	}
	return len(pod.Containers) > 0 && said // on this node, but maybe on other cards
}

// countAsAdmitted has a pod count with what its workload was given for it, where that is asked for.
func (p *Placer) countAsAdmitted(pod *placement.Pod, r *reservation) {
	if !p.options.AsAdmitted || r == nil {
		return
	}
	for i := range r.gang.PodSets {
		set := &r.gang.PodSets[i]
		if set.Name != pod.PodSet || set.Topology == nil {
			continue
		}
		if p.asked[pod.Gang] == nil {
			p.asked[pod.Gang] = map[string]map[string]int64{}
		}
		if _, noted := p.asked[pod.Gang][pod.Key]; !noted {
			p.asked[pod.Gang][pod.Key] = pod.Resources
		}
		pod.Resources = set.Pod.Resources
	}
}

// countAsAsked has a pod that is no longer its workload's count with what it asks for.
func (p *Placer) countAsAsked(gang string, pod *placement.Pod) {
	if asks, other := p.asked[gang][pod.Key]; other {
		pod.Resources = asks
		delete(p.asked[gang], pod.Key)
	}
}

// countAllAsAsked does so with the pods of a workload that has nothing reserved any more.
func (p *Placer) countAllAsAsked(gang string) {
	for key := range p.asked[gang] {
		if b, there := p.pods[key]; there && b.pod.Gang == gang {
			p.countAsAsked(gang, &b.pod)
			p.pods[key] = b
			p.apply(placement.PodBound{Pod: b.pod, Node: b.node, Grants: b.grants})
		}
	}
	delete(p.asked, gang)
}

// owner is the gang and pod set of a job's pods.
type owner struct{ gang, podSet string }

// Own says to which workload the pods of a job belong that do not say it themselves:
// Kueue writes it on pods only where it places them. Without it they would be
// counted beside what is reserved for them.
func (p *Placer) Own(job types.UID, workload admission.Key, podSet string) {
	gang := gangKey(workload)
	if p.jobs[job] == (owner{gang, podSet}) {
		return // its pods are known to be the workload's
	}
	p.jobs[job] = owner{gang, podSet}
	p.owned[gang] = append(p.owned[gang], job)
	for key, b := range p.pods {
		if _, leaves := p.leaving[key]; !leaves && b.job == job && b.pod.Gang == "" {
			p.apply(placement.PodGone{Key: key})
			p.bind(b.pod, job, b.node, b.grants, true)
		}
	}
}

// Reserves says that nodes were reserved for a workload's pods, rather than quota alone.
func (p *Placer) Reserves(workload admission.Key) bool {
	r := p.reservations[gangKey(workload)]
	return r != nil && len(r.gang.PodSets) > 0
}

// reserveAgain moves a workload's reservation after kube-scheduler put one of its
// pods elsewhere: it covers the pods that are still to come, no more. Where they
// do not fit, nothing is reserved for them until Outdated is asked for.
func (p *Placer) reserveAgain(r *reservation) {
	p.engine.Release(r.gang.Key)
	rest := placement.Gang{Key: r.gang.Key}
	for _, set := range r.gang.PodSets {
		if set.Count -= r.bound[set.Name]; set.Count > 0 {
			rest.PodSets = append(rest.PodSets, set)
		}
	}
	txn := p.engine.Begin()
	answer := txn.Place(&rest)
	if !answer.Fits {
		txn.Rollback()
		r.move(placement.Answer{})
		p.outdated[r.gang.Key] = true // some of them may fit
		return
	}
	txn.Commit(time.Time{})
	r.move(answer)
	clear(r.lacks)
	p.noteWaiting(r)
}
