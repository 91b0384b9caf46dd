package machines

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A workload that runs on demand goes back to spot nodes where its CloudOffer allows that (movesToSpot) and internal/cloud says that
// it pays. Its pods select the nodes of one purchase, and a job's pods can only be sent elsewhere by stopping it, so it is evicted and
// obtains nodes as any other; spot nodes are then what Choose buys for it. How often that was done is counted in its status, by the
// reason of the eviction.

// history is what became of a workload before.
func (v *view) history(wl *kueue.Workload) {
	v.before, v.admitted = workload.RanBefore(wl), workload.AdmittedAt(wl)
	v.moved, v.ends = workload.Evictions(wl, cloudv1.ReasonBackToSpot), workload.IsOfPods(wl)
}

// backToSpot says why a workload that runs is stopped to go on on spot nodes; "": it is not.
func (v *view) backToSpot(p *plan) string {
	if len(v.parts) != 1 { // what is stopped is all of it, and what another flavor saves is not known to this one
		return ""
	}
	part := &v.parts[0]
	on := v.runsOn(part)
	able := v.declared && v.terms.Checkpoint > 0 && !v.admitted.IsZero() && !v.ends
	if on == nil || on.Spot || !able || v.moved >= v.moves[part.flavor] {
		return ""
	}
	p.look(longestLook)
	ran := v.now.Sub(v.admitted)
	if ran < v.terms.Checkpoint { // nothing is saved yet
		return ""
	}
	job := v.job()
	job.StartUp, job.On, job.Restarts = part.startUp, on, true
	// When it saves is not known: at worst, a whole interval is done again.
	job.Unsaved = min(v.terms.Checkpoint, job.Left)
	if job.Left = v.run - v.before - ran; job.Left <= 0 {
		return ""
	}
	job.Left += job.Unsaved
	choice := cloud.Choose(&job, v.withIdle(part), v.learned, v.now)
	if choice.Action != cloud.Buy || !choice.Offer.Spot {
		return ""
	}
	return fmt.Sprintf("spot nodes are sold: %s; about $%s are expected there, and on demand $%s; move %d of %d",
		choice.Offer.Place, money(choice.Cost), money(choice.OnDemand), v.moved+1, v.moves[part.flavor])
}

// runsOn is the offer of the nodes that the pods of a part were sent to; nil: it has none of them, or nobody sells them any more.
func (v *view) runsOn(part *part) *cloud.Offer {
	for i := range v.claims {
		c := &v.claims[i]
		if c.Flavor != part.flavor || !c.live() || !c.used(v) {
			continue
		}
		for j := range part.offers {
			if part.offers[j].Place == c.Place {
				return &part.offers[j]
			}
		}
		return nil
	}
	return nil
}
