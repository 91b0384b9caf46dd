package machines

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A workload that runs on demand goes back to spot nodes where its CloudOffer allows that (movesToSpot) and internal/cloud says that
// it pays. The spot nodes are the workload's next attempt, bought while it runs on. A refusal, a loss or a delay ends that attempt, and
// the workload does not notice. When all of them are registered it is evicted, as the pods of a job go elsewhere only by stopping it;
// the nodes are kept for it until it has quota again, when they are its last attempt, and it is sent to them. How often it was stopped
// is counted in its status, by the reason of the eviction.

const (
	// longestStart is how long nodes may take, those that a workload moves to, too: both purchases are paid for meanwhile. Karpenter itself
	// gives up after 15 minutes.
	longestStart = 20 * time.Minute
	// longestReturn is for how long they are kept from the eviction on: its pods must have stopped by then, and it must have quota again.
	longestReturn = 15 * time.Minute
)

// history is what became of a workload before.
func (v *view) history(wl *kueue.Workload) {
	v.before, v.admitted, v.saved = workload.RanBefore(wl), workload.AdmittedAt(wl), workload.CheckpointedAt(wl)
	v.moved, v.ends = workload.Evictions(wl, cloudv1.ReasonBackToSpot), workload.IsOfPods(wl)
	v.handedOver = !workload.MayBeHandedOver(wl)
}

// moving is when a workload was evicted to go back to spot nodes; zero: it was not, or does not come back.
func moving(wl *kueue.Workload) time.Time {
	if wl == nil || workload.IsFinished(wl) || wl.DeletionTimestamp != nil || !workload.IsActive(wl) {
		return time.Time{}
	}
	return workload.EvictedAt(wl, cloudv1.ReasonBackToSpot)
}

// backToSpot takes one step towards spot nodes for a workload that runs: it orders them, waits for them, gives them back, or has the
// workload stop, as they are there.
func (v *view) backToSpot(p *plan, next *kueue.AdmissionCheckState) {
	job, part := v.mover(p)
	if job == nil {
		v.giveBack(p)
		return
	}
	next.Message = v.runsOnMessage(part)
	if ordered := v.ordered(part, p); len(ordered) > 0 {
		v.awaitMove(job, part, ordered, p, next)
		return
	}
	choice := cloud.Choose(job, v.withIdle(part), v.learned, v.now)
	if choice.Action != cloud.Buy {
		p.lookAt(choice.Until, v.now)
		return
	}
	first := v.attempt(part, choice.Offer, p)
	v.fill(first, nil, p)
	next.Message += "; moves to spot: " + waiting(0, first.Nodes, first.Place).message
}

// mover is the workload as one that could move, and what of it does; nil: it stays where it is.
func (v *view) mover(p *plan) (*cloud.Job, *part) {
	if len(v.parts) != 1 {
		return nil, nil
	}
	part := &v.parts[0]
	on := v.runsOn(part)
	if on == nil || on.Spot || v.admitted.IsZero() || v.movesLeft(part) == 0 {
		return nil, nil
	}
	p.look(cloud.LookAgain)
	ran := v.now.Sub(v.admitted)
	return cloud.Restarting(v.job(part), cloud.Run{On: on, Ran: ran, Left: v.run - v.before - ran, Saved: v.saved}, v.now), part
}

// movesLeft is how often a workload may still be stopped to go back to spot nodes. Nobody would start pods again, and what a stop costs one
// that does not say how long it runs is not known, nor what another flavor saves.
func (v *view) movesLeft(part *part) int {
	if !v.declared || v.ends || len(v.parts) != 1 {
		return 0
	}
	return max(0, v.moves[part.flavor]-v.moved)
}

// awaitMove waits for the nodes that a workload moves to. When all are there it is stopped, if that pays still; it may save its work first, if
// it says that it soon will, or is believed to.
func (v *view) awaitMove(job *cloud.Job, part *part, ordered []*claim, p *plan, next *kueue.AdmissionCheckState) {
	first, there, began, came := ordered[0].purchase, 0, v.now, time.Time{}
	for _, c := range ordered {
		if c.registered {
			there++
		}
		if c.registeredAt.After(came) {
			came = c.registeredAt
		}
		if !c.adopted(v.uid) && c.created.Before(began) {
			began = c.created
		}
	}
	if left := began.Add(longestStart).Sub(v.now); there < first.Nodes && left > 0 {
		v.fill(first, ordered, p)
		v.learnSale(ordered, p)
		p.look(left)
		next.Message += "; moves to spot: " + waiting(there, first.Nodes, first.Place).message
		return
	}
	if there < first.Nodes {
		v.learned.StockOut(first.Place, first.wanted(), v.now)
		p.learned(ordered[0])
		v.giveBack(p)
		return
	}
	job.Next, job.Hold = &first.Place, cloud.LongestHold-v.now.Sub(came)
	choice := cloud.Choose(job, part.offers, v.learned, v.now)
	if choice.Action == cloud.Wait {
		p.lookAt(choice.Until, v.now)
		next.Message += fmt.Sprintf("; moves to spot when it has saved its work: %s there: %s", plural(there, "node"), first.Place)
		return
	}
	if choice.Action != cloud.Buy {
		v.learnStart(ordered, p)
		v.giveBack(p)
		return
	}
	next.State = kueue.CheckStateRetry
	next.Message = fmt.Sprintf("%s: %s there: %s; about $%s are expected there, and on demand $%s; move %d of %d", cloudv1.ReasonBackToSpot,
		plural(first.Nodes, "spot node"), first.Place, money(choice.Cost), money(choice.OnDemand), v.moved+1, v.moves[part.flavor])
}

// giveBack lets go the nodes that a workload which runs was to move to.
func (v *view) giveBack(p *plan) {
	p.buy, p.adopt = nil, nil
	for i := range v.claims {
		if c := &v.claims[i]; c.live() && !c.used(v) {
			p.letGo = append(p.letGo, c.name)
		}
	}
}

// runsOn is the offer of the nodes that the pods of a part were sent to; nil: it has none of them, or nobody sells them any more.
func (v *view) runsOn(part *part) *cloud.Offer {
	c := v.usedBy(part)
	if c == nil {
		return nil
	}
	for i := range part.offers {
		if part.offers[i].Place == c.Place {
			return &part.offers[i]
		}
	}
	return nil
}

// usedBy is a node that pods of a part were sent to; nil: none.
func (v *view) usedBy(part *part) *claim {
	for i := range v.claims {
		if c := &v.claims[i]; c.Flavor == part.flavor && c.live() && c.used(v) {
			return c
		}
	}
	return nil
}

func (v *view) runsOnMessage(part *part) string {
	c := v.usedBy(part)
	return fmt.Sprintf("%s: %s", plural(c.Nodes, "node"), c.Place)
}

// isNext says that a node is of the attempt that its workload moves to: the last one, beside that which it runs on, or on spot nodes where
// it was evicted for those.
func (v *view) isNext(c *claim) bool {
	beside := false
	for i := range v.claims {
		other := &v.claims[i]
		if !other.live() || other.Flavor != c.Flavor {
			continue
		}
		if other.Attempt > c.Attempt {
			return false
		}
		beside = beside || other.Attempt < c.Attempt
	}
	return beside || !v.moving.IsZero() && c.Place.Spot
}

// reserved says that a node waits for its workload, which was evicted for it.
func (v *view) reserved(c *claim, p *plan) bool {
	left := v.moving.Add(longestReturn).Sub(v.now)
	if v.moving.IsZero() || left <= 0 || !c.Place.Spot || !v.isNext(c) {
		return false
	}
	p.look(left)
	return true
}

// returnsTooLate lets the nodes go that wait for pods to stop elsewhere, when that takes too long.
func (v *view) returnsTooLate(p *plan) {
	for i := range v.claims {
		if c := &v.claims[i]; !v.moving.IsZero() && c.live() && c.Place.Spot && v.isNext(c) && !v.reserved(c, p) {
			p.letGo = append(p.letGo, c.name)
		}
	}
}
