package machines

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/workload"
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
	declared bool // its run time
	// learnedRun is how long workloads like it ran, where it says nothing; 0: nobody knows.
	learnedRun time.Duration
	terms      workload.PurchaseTerms
	before     time.Duration // for which it ran in earlier admissions
	admitted   time.Time     // zero: it is not
	saved      time.Time     // when it last saved its work, as it says; zero: it does not
	moved      int           // how often it was stopped to go back to spot nodes
	moving     time.Time     // when it was evicted for that, and has no quota since; zero: it was not
	handedOver bool          // it was to get nodes on demand of another flavor, and did not
	ends       bool          // with an eviction: nobody starts its pods again
	parts      []part        // with wants
	claims     []claim
	learned    *cloud.Learned // the decision adds to it
	// keepIdle is for how long nodes of a flavor wait for the next workload; 0: not at all.
	keepIdle map[string]time.Duration
	// moves is how often a workload on nodes of a flavor may be stopped to go back to spot nodes.
	moves map[string]int
	// pool are idle nodes of the workload's flavors, also those that other workloads had.
	pool []claim
	// made is the last attempt of the workload that nodes have in their names and labels, also nodes that others have now.
	made int
}

// plan is what to do, in this order.
type plan struct {
	// counted are places of which something was learned, by the flavors whose CloudOffers remember it.
	counted map[string][]cloud.Place
	letGo   []string // NodeClaims: take the finalizer away, and delete
	toIdle  []string // NodeClaims: they are idle from now on
	state   *kueue.AdmissionCheckState
	adopt   []adoption
	buy     []purchase
	again   time.Duration // look again then; 0: when something changes
}

// look says in how long to look again, at the latest.
func (p *plan) look(in time.Duration) {
	if p.again == 0 || in < p.again {
		p.again = in
	}
}

// lookAt says when to look again, as a choice does: neither all the time nor hardly ever.
func (p *plan) lookAt(until, now time.Time) {
	if !until.IsZero() {
		p.look(max(10*time.Second, min(cloud.LookAgain, until.Sub(now))))
	}
}

// decide says what to do about the nodes of a workload.
func decide(v *view) plan {
	p := plan{counted: map[string][]cloud.Place{}}
	v.count(&p)
	switch v.phase {
	case gone:
		v.letGoAll(&p, true)
	case holds:
		v.returnsTooLate(&p)
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
		case c.idle():
			v.stayIdle(c, p)
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
	known := seen != nil && !seen.Obtainable && !seen.At.Before(since) && c.wanted() >= seen.ClosedFor
	switch {
	case known:
	case c.launched:
		v.learned.Lost(c.Place, c.wanted(), v.now)
	default:
		v.learned.StockOut(c.Place, c.wanted(), v.now)
	}
}

func (p *plan) learned(c *claim) {
	if !slices.Contains(p.counted[c.Flavor], c.Place) {
		p.counted[c.Flavor] = append(p.counted[c.Flavor], c.Place)
	}
}

// letGoAll lets all nodes of the workload go, and takes back what was to be bought. That they served until now is counted,
// unless the place has refused or taken others meanwhile, and they wait for the next workload where the CloudOffer says so.
func (v *view) letGoAll(p *plan, served bool) {
	p.buy, p.adopt = nil, nil
	for i := range v.claims {
		c := &v.claims[i]
		if !c.live() || served && v.reserved(c, p) {
			continue
		}
		if seen := v.learned.Of(c.Place); served && c.registered && seen != nil && seen.Obtainable {
			v.learned.Running(c.Place, v.now)
			p.learned(c)
		}
		if served && c.registered && v.keepIdle[c.Flavor] > 0 && !v.isNext(c) {
			p.toIdle = append(p.toIdle, c.name)
			p.look(v.keepIdle[c.Flavor])
			continue
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
			next.State, next.Message = kueue.CheckStateRetry, cloudv1.ReasonMachineLost+": "+text
		} else {
			v.learnRunning(p)
			v.backToSpot(p, &next)
		}
	case kueue.CheckStatePending:
		v.obtain(p, &next)
	}
	// Pods that run have their nodes until they have stopped, and the account of the run needs what those cost.
	if v.state.State == kueue.CheckStatePending && (next.State == kueue.CheckStateRetry || next.State == kueue.CheckStateRejected) {
		v.letGoAll(p, false)
	}
	p.state = &next
}

// learnRunning counts that spot nodes of a workload which runs are there still, now and then: other workloads are sent where nodes last.
func (v *view) learnRunning(p *plan) {
	for i := range v.claims {
		c := &v.claims[i]
		if !c.live() || !c.registered || !c.Place.Spot || !c.used(v) {
			continue
		}
		p.look(cloud.LookAgain)
		if seen := v.learned.Of(c.Place); seen != nil && seen.Obtainable && v.now.Sub(seen.At) >= cloud.LookAgain {
			v.learned.Running(c.Place, v.now)
			p.learned(c)
		}
	}
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
		left := slices.DeleteFunc(slices.Clone(v.claims), func(c claim) bool { return !c.live() || c.group(v.uid) != group })
		switch {
		case len(left) == 0:
			return fmt.Sprintf("the nodes of pod set %q are gone", update.Name)
		case len(left) < left[0].Nodes: // it was counted and let go, and then the state was not written
			return fmt.Sprintf("a node was lost: %d of %d left, %s", len(left), left[0].Nodes, left[0].Place)
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
		if note := v.deadlineNote(&v.parts[i]); note != "" && (a.state == kueue.CheckStatePending || a.state == kueue.CheckStateReady) {
			a.message += "; " + note
		}
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
	if ordered := v.ordered(part, p); len(ordered) > 0 && !v.givesUp(part, ordered, p) {
		return v.await(part, ordered, p)
	}
	job := v.job(part)
	choice := cloud.Choose(&job, part.withOthers(v.withIdle(part)), v.learned, v.now)
	switch {
	case choice.Action == cloud.Wait && !math.IsInf(choice.Cost, 1):
		p.lookAt(choice.Until, v.now)
		return answer{state: kueue.CheckStatePending, message: waitsForSpot(part.flavor, &choice)}
	case choice.Action == cloud.Buy && part.sellerOf(choice.Offer) != "":
		return handOver(part, &choice, part.sellerOf(choice.Offer))
	case choice.Action == cloud.Buy:
		first := v.attempt(part, choice.Offer, p)
		v.fill(first, nil, p)
		return waiting(0, first.Nodes, first.Place)
	case part.known:
		return answer{state: kueue.CheckStateRetry, message: "no place sells the nodes of flavor " + part.flavor + " now", after: choice.Until.Sub(v.now)}
	}
	p.look(10 * time.Second) // the CloudOffer's status comes first, so that the engine knows when it has the workload back
	return answer{state: kueue.CheckStatePending, message: "no place sells the nodes of flavor " + part.flavor + " now"}
}

// waitsForSpot says why a workload waits that could have nodes, until when, and what those would cost. It is written into
// a status that is watched: it stays the same for a while.
func waitsForSpot(flavor string, c *cloud.Choice) string {
	until := "while that is worth the delay"
	if !c.Latest.IsZero() {
		until = "until " + c.Latest.UTC().Truncate(time.Minute).Format("2006-01-02 15:04 MST") + " at the latest"
	}
	return fmt.Sprintf("waits for spot nodes of flavor %s %s: about $%s are expected, and on demand now $%s", flavor, until, money(c.Cost), money(c.OnDemand))
}

// money is an expectation: two digits say enough, and cents where there are no dollars.
func money(dollars float64) string {
	if dollars < 10 {
		return strconv.FormatFloat(dollars, 'f', 2, 64)
	}
	unit := math.Pow10(int(math.Log10(dollars)) - 1)
	return strconv.FormatFloat(math.Round(dollars/unit)*unit, 'f', 0, 64)
}

// longestWait is how far ahead a deadline counts.
const longestWait = 28 * 24 * time.Hour

// job is the workload as far as buying nodes for a part of it is concerned. What it declares is a limit on all its runs together, and what
// was learned is how long all runs took.
func (v *view) job(part *part) cloud.Job {
	left := cmp.Or(v.learnedRun, v.run)
	switch {
	case v.declared:
		left = max(time.Minute, v.run-v.before)
	case v.terms.Checkpoint > 0 && v.before < v.learnedRun: // what it did is saved
		left -= v.before
	}
	j := cloud.Job{
		Machines: 1, Left: left, Checkpoint: v.terms.Checkpoint, StartUp: part.startUp, Deadline: v.terms.Deadline, DelayPrice: v.terms.DelayPrice,
		Moves: v.movesLeft(part), Reported: cloud.Reported(v.saved, v.now),
	}
	if most := v.now.Add(longestWait); j.Deadline.After(most) {
		j.Deadline = most
	}
	return j
}

func waiting(there, of int, place cloud.Place) answer {
	return answer{state: kueue.CheckStatePending, message: fmt.Sprintf("%d of %s there: %s", there, plural(of, "node"), place)}
}

// attempt is a new one at an offer.
func (v *view) attempt(part *part, o *cloud.Offer, p *plan) purchase {
	return purchase{
		Workload: v.workload, Flavor: part.flavor, Place: o.Place, Attempt: v.nextAttempt(p), Nodes: o.Machines, Group: v.idleGroup(part.flavor, o),
	}
}

// nextAttempt is a number that no NodeClaim of the workload has.
func (v *view) nextAttempt(p *plan) int {
	last := v.made
	for i := range v.claims {
		last = max(last, v.claims[i].Attempt)
	}
	for i := range p.buy {
		last = max(last, p.buy[i].Attempt)
	}
	for i := range p.adopt {
		last = max(last, p.adopt[i].Attempt)
	}
	return last + 1
}

// ordered are the nodes of the part's last attempt, all of them live. Where one has failed, is idle or was let go, or they are not
// what the part needs now, or the rest cannot be had, all are let go, as are those of earlier attempts. The nodes that pods run on are no
// part of it.
func (v *view) ordered(part *part, p *plan) []*claim {
	var all, last []*claim
	attempt, failed := 0, false
	for i := range v.claims {
		c := &v.claims[i]
		if c.Flavor != part.flavor || v.state.State == kueue.CheckStateReady && c.used(v) {
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
	if failed || !part.suits(last, v.uid) || !v.completes(last) {
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
func (p *part) suits(list []*claim, uid types.UID) bool {
	if len(list) == 0 {
		return false
	}
	first := list[0]
	if slices.ContainsFunc(list, func(c *claim) bool {
		return c.Place != first.Place || c.Nodes != first.Nodes || c.Node < 0 || c.Node >= c.Nodes || c.group(uid) != first.group(uid)
	}) {
		return false
	}
	sold := slices.ContainsFunc(p.offers, func(o cloud.Offer) bool { return o.Place == first.Place && o.Machines == first.Nodes })
	return sold || len(list) == first.Nodes && !slices.ContainsFunc(p.offers, func(o cloud.Offer) bool { return o.Place == first.Place })
}

// givesUp lets an attempt go that takes too long: Karpenter gives up earlier, so nobody makes these nodes now, and another place or flavor may have
// some. It is a stock-out for others, who would wait as long.
func (v *view) givesUp(part *part, ordered []*claim, p *plan) bool {
	oldest := time.Time{} // of those that are not there
	for _, c := range ordered {
		if !c.registered && (oldest.IsZero() || c.created.Before(oldest)) {
			oldest = c.created
		}
	}
	ends := oldest.Add(max(longestStart, 2*part.startUp))
	switch {
	case oldest.IsZero():
		return false
	case ends.After(v.now):
		p.look(ends.Sub(v.now))
		return false
	}
	first := ordered[0]
	if seen := v.learned.Of(first.Place); seen == nil || seen.Obtainable || seen.At.Before(ends) {
		v.learned.StockOut(first.Place, first.wanted(), v.now)
		p.learned(first)
	}
	for _, c := range ordered {
		p.letGo = append(p.letGo, c.name)
	}
	return true
}

// await orders the rest of an attempt that was begun, and waits until all of it is there.
func (v *view) await(part *part, ordered []*claim, p *plan) answer {
	first := ordered[0].purchase
	there := 0
	for _, c := range ordered {
		if c.registered {
			there++
		}
	}
	v.fill(first, ordered, p)
	if there < first.Nodes {
		v.learnSale(ordered, p)
		return waiting(there, first.Nodes, first.Place)
	}
	v.learnStart(ordered, p)
	a := answer{state: kueue.CheckStateReady, message: fmt.Sprintf("%s: %s", plural(first.Nodes, "node"), first.Place) + v.expiryNote(ordered)}
	var notes map[string]string
	if i := slices.IndexFunc(part.offers, func(o cloud.Offer) bool { return o.Place == first.Place }); i >= 0 {
		notes = map[string]string{cloudv1.PriceAnnotation: strconv.FormatFloat(part.offers[i].Price*float64(first.Nodes), 'f', 2, 64)}
		if began, _ := v.startOf(ordered); !began.IsZero() {
			notes[cloudv1.BoughtAtAnnotation] = began.UTC().Format(time.RFC3339)
		}
	}
	for _, set := range part.sets {
		a.updates = append(a.updates, kueue.PodSetUpdate{Name: set, NodeSelector: map[string]string{cloudv1.PurchaseLabel: first.group(v.uid)}, Annotations: notes})
	}
	return a
}

// expiryNote is what who says how long a workload runs should know of its nodes: they end before it has to, whatever runs there; "": they do not.
func (v *view) expiryNote(ordered []*claim) string {
	ends := time.Time{}
	for _, c := range ordered {
		if !c.expires.IsZero() && (ends.IsZero() || c.expires.Before(ends)) {
			ends = c.expires
		}
	}
	if !v.declared || ends.IsZero() || !ends.Before(v.now.Add(v.run-v.before)) {
		return ""
	}
	return "; they are deleted by " + ends.UTC().Format("2006-01-02 15:04 MST") + " (expireAfter of the CloudOffer), and it may run longer"
}

// learnSale counts that nodes were sold as soon as all of them are: others need not wait until they have started. What was seen of the place
// since then counts more.
func (v *view) learnSale(ordered []*claim, p *plan) {
	first, sold := ordered[0], time.Time{}
	if len(ordered) < first.Nodes {
		return
	}
	for _, c := range ordered {
		switch {
		case c.adopted(v.uid):
		case !c.launched:
			return
		case c.launchedAt.After(sold):
			sold = c.launchedAt
		}
	}
	if seen := v.learned.Of(first.Place); !sold.IsZero() && (seen == nil || seen.At.Before(sold)) {
		v.learned.Obtained(first.Place, first.wanted(), v.now)
		p.learned(first)
	}
}

// learnStart counts that nodes were sold, and how long the last of them took. Those that were there already say nothing.
func (v *view) learnStart(ordered []*claim, p *plan) {
	began, done := v.startOf(ordered)
	if began.IsZero() {
		return
	}
	first := ordered[0]
	v.learned.Obtained(first.Place, first.wanted(), v.now)
	v.learned.Started(first.Place, max(time.Second, done.Sub(began)))
	p.learned(first)
}

// startOf is when the first of some nodes was ordered and the last of them was there; zero: others had all of them before.
func (v *view) startOf(ordered []*claim) (began, done time.Time) {
	for _, c := range ordered {
		if c.adopted(v.uid) {
			continue
		}
		if began.IsZero() || c.created.Before(began) {
			began = c.created
		}
		if c.registeredAt.After(done) {
			done = c.registeredAt
		}
	}
	return began, done
}
