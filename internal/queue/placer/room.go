package placer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/placement"
)

// room is what a workload holds: the Placement of an admission. Its pods take
// it place by place as they are bound.
type room struct {
	gang   placement.Gang
	answer placement.Answer
	free   map[place]int  // places nobody has taken yet
	bound  map[string]int // pods that have one, by pod set
}

type place struct{ podSet, node string }

func newRoom(gang placement.Gang, answer placement.Answer) *room {
	r := &room{gang: gang, bound: map[string]int{}}
	r.move(answer)
	return r
}

// move puts what is still to come of the workload elsewhere.
func (r *room) move(answer placement.Answer) {
	r.answer, r.free = answer, map[place]int{}
	for _, set := range answer.PodSets {
		for _, placed := range set.Placed {
			r.free[place{set.Name, placed.Node}] += placed.Count
		}
	}
}

// take notes a bound pod and reports whether a place was held for it there.
func (r *room) take(podSet, node string) bool {
	r.bound[podSet]++
	at := place{podSet, node}
	if r.free[at] == 0 {
		return false
	}
	r.free[at]--
	return true
}

// join takes in a pod that no place was held for: it came with the workload
// whose place was taken.
func (r *room) join(podSet string) {
	for i := range r.gang.PodSets {
		if r.gang.PodSets[i].Name == podSet {
			r.gang.PodSets[i].Count++
			r.bound[podSet]++
		}
	}
}

// bound is a pod on a node, as it was entered into the books.
type bound struct {
	pod    placement.Pod
	gang   string    // the one its annotation names, or its job
	job    types.UID // what controls it
	node   string
	grants []placement.Grant
	// leaving: it was told to end.
	leaving bool
}

// bind enters a pod that is on a node into the books. One that does not say
// which cards it has is counted on those held for it, or on any that are free.
func (p *Placer) bind(pod placement.Pod, job types.UID, node string, grants []placement.Grant, said bool) {
	if owner, known := p.jobs[job]; known && pod.Gang == "" {
		pod.Gang, pod.PodSet = owner.gang, owner.podSet
	}
	gang := pod.Gang
	if follower, followed := p.followers[gang]; followed {
		pod.Gang = follower
	}
	if len(pod.Containers) > 0 && !said {
		cards := pod
		cards.Resources = nil // it is there: only cards are in question
		if assigned, err := p.engine.Assign(&cards, node, time.Time{}); err == nil {
			grants = assigned.Grants
		}
	}
	p.pods[pod.Key] = bound{pod: pod, gang: gang, job: job, node: node, grants: grants}
	p.apply(placement.PodBound{Pod: pod, Node: node, Grants: grants})
	if r := p.rooms[pod.Gang]; r != nil && !r.take(pod.PodSet, node) {
		p.rehold(r)
	}
}

// owner is whose pods a job's are.
type owner struct{ gang, podSet string }

// Own says whose the pods of a job are that do not say it themselves: Kueue notes
// it on pods only where it places them. Without it they would be counted beside
// the room that is held for them.
func (p *Placer) Own(job types.UID, workload admission.Key, podSet string) {
	gang := gangKey(workload)
	p.jobs[job] = owner{gang, podSet}
	p.owned[gang] = append(p.owned[gang], job)
	for key, b := range p.pods {
		if b.job == job && b.pod.Gang == "" {
			p.apply(placement.PodGone{Key: key})
			p.bind(b.pod, job, b.node, b.grants, true)
		}
	}
}

// rehold moves a workload's room after kube-scheduler put one of its pods
// elsewhere: what is held is room for the pods that are still to come, no more.
// Where there is none left they are on their own.
func (p *Placer) rehold(r *room) {
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
		return
	}
	txn.Commit(time.Time{})
	r.move(answer)
}
