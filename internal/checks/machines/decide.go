package machines

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// phase is what a workload wants of its nodes.
type phase int

const (
	gone  phase = iota // it needs none any more
	holds              // it needs those that it has, and no others
	wants              // its check decides
)

// view is all that a decision depends on.
type view struct {
	now      time.Time
	workload string    // namespace/name
	uid      types.UID // "": it does not exist
	phase    phase
	state    kueue.AdmissionCheckState // with wants
	run      time.Duration
	parts    []part // with wants, while the check is pending
	claims   []claim
	learned  *cloud.Learned // the decision adds to it
}

// plan is what to do, in this order.
type plan struct {
	// counted are places of which something was learned, by the flavors whose CloudOffers remember it.
	counted map[string][]cloud.Place
	letGo   []string // NodeClaims: take the finalizer away, and delete
	state   *kueue.AdmissionCheckState
	buy     []purchase
	again   time.Duration // look again then; 0: when something changes
}

// decide says what to do about the nodes of a workload.
func decide(v *view) plan {
	p := plan{counted: map[string][]cloud.Place{}}
	v.count(&p)
	switch v.phase {
	case gone:
		v.letGoAll(&p, true)
	case wants:
		v.check(&p)
	}
	slices.Sort(p.letGo)
	p.letGo = slices.Compact(p.letGo)
	return p
}

// count learns from what Karpenter did to NodeClaims, and lets those go that are done with.
func (v *view) count(p *plan) {
	for i := range v.claims {
		c := &v.claims[i]
		switch {
		case !c.held || c.Nodes <= 0:
			if c.held || !c.deleted {
				p.letGo = append(p.letGo, c.name)
			}
		case c.failed():
			v.learnFailure(c)
			p.learned(c)
			p.letGo = append(p.letGo, c.name)
		}
	}
}

// learnFailure counts a node that was refused, or was taken away. Of one try, or of several at the same time, one failure
// is counted.
func (v *view) learnFailure(c *claim) {
	since := c.created
	if c.registered {
		since = c.registeredAt
	}
	seen := v.learned.Of(c.Place)
	known := seen != nil && !seen.Obtainable && !seen.At.Before(since) && c.Nodes >= seen.ClosedFor
	switch {
	case known:
	case c.launched:
		v.learned.Lost(c.Place, c.Nodes, v.now)
	default:
		v.learned.StockOut(c.Place, c.Nodes, v.now)
	}
}

func (p *plan) learned(c *claim) {
	if !slices.Contains(p.counted[c.Flavor], c.Place) {
		p.counted[c.Flavor] = append(p.counted[c.Flavor], c.Place)
	}
}

// letGoAll lets all nodes of the workload go, and takes back what was to be bought. That they served until now is counted,
// unless the place has refused or taken others meanwhile.
func (v *view) letGoAll(p *plan, served bool) {
	p.buy = nil
	for i := range v.claims {
		c := &v.claims[i]
		if !c.live() {
			continue
		}
		if seen := v.learned.Of(c.Place); served && c.registered && seen != nil && seen.Obtainable {
			v.learned.Running(c.Place, v.now)
			p.learned(c)
		}
		p.letGo = append(p.letGo, c.name)
	}
}

// check decides the state of the check.
func (v *view) check(p *plan) {
	next := *v.state.DeepCopy()
	switch v.state.State {
	case kueue.CheckStateReady:
		if text := v.lost(); text != "" {
			next.State, next.Message = kueue.CheckStateRetry, text
		}
	case kueue.CheckStatePending:
		v.obtain(p, &next)
	}
	if next.State == kueue.CheckStateRetry || next.State == kueue.CheckStateRejected {
		next.PodSetUpdates = nil
		if v.state.State == kueue.CheckStatePending { // pods that run have their nodes until they have stopped
			v.letGoAll(p, false)
		}
	}
	p.state = &next
}

// lost says which node of a workload is gone that was sent to them; "": none.
func (v *view) lost() string {
	for i := range v.claims {
		if c := &v.claims[i]; c.failed() && c.used(v) {
			return fmt.Sprintf("a node was lost: %s, %s", c.name, c.Place)
		}
	}
	for i := range v.state.PodSetUpdates {
		update := &v.state.PodSetUpdates[i]
		group := update.NodeSelector[cloudv1.PurchaseLabel]
		if !slices.ContainsFunc(v.claims, func(c claim) bool { return c.live() && c.group(v.uid) == group }) {
			return fmt.Sprintf("the nodes of pod set %q are gone", update.Name)
		}
	}
	return ""
}

// used says that pods were sent to the node of a claim.
func (c *claim) used(v *view) bool {
	return slices.ContainsFunc(v.state.PodSetUpdates, func(u kueue.PodSetUpdate) bool {
		return u.NodeSelector[cloudv1.PurchaseLabel] == c.group(v.uid)
	})
}

// answer is what one part of a workload says.
type answer struct {
	state   kueue.CheckState
	message string
	after   time.Duration // with Retry
	updates []kueue.PodSetUpdate
}

// worst are states in the order in which they decide for the whole workload.
var worst = []kueue.CheckState{kueue.CheckStateRejected, kueue.CheckStateRetry, kueue.CheckStatePending, kueue.CheckStateReady}

// obtain has all parts of a workload obtain their nodes. All of them, or none.
func (v *view) obtain(p *plan, next *kueue.AdmissionCheckState) {
	all := answer{state: kueue.CheckStateReady, message: "the workload is on no flavor whose nodes are bought"}
	var updates []kueue.PodSetUpdate
	for i := range v.parts {
		a := v.obtainPart(&v.parts[i], p)
		updates = append(updates, a.updates...)
		if i == 0 || slices.Index(worst, a.state) < slices.Index(worst, all.state) {
			all = a
		}
	}
	v.letGoOthers(p)
	next.State, next.Message, next.PodSetUpdates, next.RequeueAfterSeconds = all.state, all.message, nil, nil
	switch all.state {
	case kueue.CheckStateReady:
		next.PodSetUpdates = updates
	case kueue.CheckStateRetry:
		// A second at first, since the engine may have another flavor, and longer each time that it has none.
		next.RequeueAfterSeconds = ptr.To(int32(min(time.Second<<min(ptr.Deref(v.state.RetryCount, 0), 20), max(all.after, time.Second)) / time.Second))
	}
}

// letGoOthers lets go what is of flavors that the workload is not on.
func (v *view) letGoOthers(p *plan) {
	for i := range v.claims {
		c := &v.claims[i]
		if c.live() && !slices.ContainsFunc(v.parts, func(part part) bool { return part.flavor == c.Flavor }) {
			p.letGo = append(p.letGo, c.name)
		}
	}
}

// obtainPart takes one step for a part: waits for the nodes that were ordered, orders them, or says that there are none.
func (v *view) obtainPart(part *part, p *plan) answer {
	switch {
	case part.unfit != "":
		return answer{state: kueue.CheckStateRejected, message: part.unfit}
	case part.problem != "":
		return answer{state: kueue.CheckStatePending, message: part.problem}
	}
	if ordered := v.ordered(part, p); len(ordered) > 0 {
		return v.await(part, ordered, p)
	}
	choice := cloud.Choose(&cloud.Job{Machines: 1, Left: v.run, StartUp: part.startUp}, part.offers, v.learned, v.now)
	switch {
	case choice.Action == cloud.Buy:
		attempt := v.nextAttempt(p)
		for n := range choice.Offer.Machines {
			p.buy = append(p.buy, purchase{
				Workload: v.workload, Flavor: part.flavor, Place: choice.Offer.Place, Attempt: attempt, Node: n, Nodes: choice.Offer.Machines,
			})
		}
		return waiting(0, choice.Offer.Machines, choice.Offer.Place)
	case part.known:
		return answer{state: kueue.CheckStateRetry, message: "no place sells the nodes of flavor " + part.flavor + " now", after: choice.Until.Sub(v.now)}
	}
	p.again = 10 * time.Second // the CloudOffer's status comes first, so that the engine knows when it has the workload back
	return answer{state: kueue.CheckStatePending, message: "no place sells the nodes of flavor " + part.flavor + " now"}
}

func waiting(there, of int, place cloud.Place) answer {
	return answer{state: kueue.CheckStatePending, message: fmt.Sprintf("%d of %s there: %s", there, plural(of, "node"), place)}
}

// nextAttempt is a number that no NodeClaim of the workload has.
func (v *view) nextAttempt(p *plan) int {
	last := 0
	for i := range v.claims {
		last = max(last, v.claims[i].Attempt)
	}
	for i := range p.buy {
		last = max(last, p.buy[i].Attempt)
	}
	return last + 1
}

// ordered are the nodes of the part's last attempt, all of them live. Where one has failed or was let go, or they are not
// what the part needs now, or the rest cannot be had, all are let go, as are those of earlier attempts.
func (v *view) ordered(part *part, p *plan) []*claim {
	var all, last []*claim
	attempt, failed := 0, false
	for i := range v.claims {
		c := &v.claims[i]
		if c.Flavor != part.flavor {
			continue
		}
		if c.Attempt > attempt {
			attempt, last, failed = c.Attempt, nil, false
		}
		if c.live() {
			all = append(all, c)
		}
		if c.Attempt == attempt {
			last, failed = append(last, c), failed || !c.live()
		}
	}
	if failed || !part.suits(last) || len(last) < last[0].Nodes && !v.learned.Of(last[0].Place).Closed(last[0].Nodes, v.now).IsZero() {
		last = nil
	}
	for _, c := range all {
		if !slices.Contains(last, c) {
			p.letGo = append(p.letGo, c.name)
		}
	}
	return last
}

// suits says that nodes are of one purchase, and as many as the part needs at that place.
func (p *part) suits(list []*claim) bool {
	if len(list) == 0 {
		return false
	}
	first := list[0]
	if slices.ContainsFunc(list, func(c *claim) bool { return c.Place != first.Place || c.Nodes != first.Nodes || c.Node >= c.Nodes }) {
		return false
	}
	sold := slices.ContainsFunc(p.offers, func(o cloud.Offer) bool { return o.Place == first.Place && o.Machines == first.Nodes })
	return sold || len(list) == first.Nodes && !slices.ContainsFunc(p.offers, func(o cloud.Offer) bool { return o.Place == first.Place })
}

// await orders the rest of an attempt that was begun, and waits until all of it is there.
func (v *view) await(part *part, ordered []*claim, p *plan) answer {
	first := ordered[0].purchase
	there, began, done := 0, ordered[0].created, time.Time{}
	for n := range first.Nodes {
		i := slices.IndexFunc(ordered, func(c *claim) bool { return c.Node == n })
		if i < 0 {
			missing := first
			missing.Node = n
			p.buy = append(p.buy, missing)
			continue
		}
		c := ordered[i]
		if c.registered {
			there++
		}
		if c.registeredAt.After(done) {
			done = c.registeredAt
		}
		if c.created.Before(began) {
			began = c.created
		}
	}
	if there < first.Nodes {
		return waiting(there, first.Nodes, first.Place)
	}
	v.learned.Obtained(first.Place, first.Nodes, v.now)
	v.learned.Started(first.Place, max(time.Second, done.Sub(began)))
	p.learned(ordered[0])
	a := answer{state: kueue.CheckStateReady, message: fmt.Sprintf("%s: %s", plural(first.Nodes, "node"), first.Place)}
	for _, set := range part.sets {
		a.updates = append(a.updates, kueue.PodSetUpdate{Name: set, NodeSelector: map[string]string{cloudv1.PurchaseLabel: first.group(v.uid)}})
	}
	return a
}
