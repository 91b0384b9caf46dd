package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// workloads carries out what is decided about the nodes of workloads, one workload at a time.
type workloads struct {
	client    client.Client
	direct    client.Reader // reads no cache
	tables    cloudoffers.Tables
	recorder  events.EventRecorder
	runTimes  checks.RunTimes
	now       func() time.Time
	available func() bool // whether the cluster has NodeClaims
	// written are statuses of CloudOffers that the cache may not show yet.
	written map[string]written
}

type written struct {
	places []cloudv1.PlaceStatus
	at     time.Time
}

// cacheTimeout is how long the cache may take to show what was written.
const cacheTimeout = 10 * time.Second

// Reconcile handles one workload, or what was bought for it if there is no such workload any more.
func (c *workloads) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !c.available() {
		return ctrl.Result{}, nil
	}
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, request.NamespacedName, wl); apierrors.IsNotFound(err) {
		wl = nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	list := &NodeClaimList{}
	if err := c.client.List(ctx, list, client.MatchingFields{workloadIndex: request.String()}); err != nil {
		return ctrl.Result{}, err
	}
	byUID := map[types.UID][]*NodeClaim{}
	for i := range list.Items {
		uid := types.UID(list.Items[i].Labels[uidLabel])
		byUID[uid] = append(byUID[uid], &list.Items[i])
	}
	for _, uid := range slices.Sorted(maps.Keys(byUID)) {
		if wl != nil && uid == wl.UID {
			continue
		}
		if result, err := c.handle(ctx, request, nil, byUID[uid]); err != nil || !result.IsZero() {
			return result, err
		}
	}
	if wl == nil {
		return ctrl.Result{}, nil
	}
	return c.handle(ctx, request, wl, byUID[wl.UID])
}

// handle decides about a workload and its NodeClaims; nil: the workload that they were made for is gone.
func (c *workloads) handle(ctx context.Context, request ctrl.Request, wl *kueue.Workload, claims []*NodeClaim) (ctrl.Result, error) {
	var mine []checks.Check
	var err error
	if wl != nil {
		if mine, err = checks.ForController(ctx, c.client, wl, cloudv1.PurchaseController); err != nil {
			return ctrl.Result{}, err
		}
	}
	if len(mine) == 0 && len(claims) == 0 {
		return ctrl.Result{}, nil
	}
	offers, err := c.offers(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := c.now().Truncate(time.Second)
	v := &view{now: now, workload: request.String(), phase: phaseOf(wl, mine), learned: cloudoffers.Learned(offers, now)}
	v.keepIdle, v.moves, v.moving = keepIdle(offers), movesToSpot(offers), moving(wl)
	for _, n := range claims {
		v.claims = append(v.claims, readClaim(n))
	}
	var pool []*NodeClaim
	if v.phase == wants {
		v.uid, v.state = wl.UID, mine[0].State
		v.run, v.declared = workload.RunTime(wl)
		if v.state.State == kueue.CheckStatePending {
			if v.learnedRun, err = c.runTimes.LearnedRunTime(ctx, wl); err != nil {
				return ctrl.Result{RequeueAfter: time.Second}, nil // the queue's loop will know it
			}
		}
		v.history(wl)
		v.terms, _ = workload.PurchaseTermsOf(wl.Annotations) // jobs are told by the webhook; what is left is not given
		if v.parts, err = c.parts(ctx, wl, offers, v.now); err != nil {
			return ctrl.Result{}, err
		}
		if pool, err = c.addIdle(ctx, v, offers); err != nil {
			return ctrl.Result{}, err
		}
	}
	return c.carryOut(ctx, &transaction{view: v, plan: decide(v), workload: wl, checks: mine, claims: claims, pool: pool, offers: offers})
}

// keepIdle is for how long nodes of each flavor wait for the next workload. What cannot be read is no time.
func keepIdle(offers []cloudv1.CloudOffer) map[string]time.Duration {
	times := map[string]time.Duration{}
	for i := range offers {
		if d, err := time.ParseDuration(offers[i].Spec.KeepIdle); err == nil && offers[i].Spec.NodeClass() != nil {
			times[offers[i].Name] = d
		}
	}
	return times
}

// movesToSpot is how often a workload on nodes of each flavor may be stopped to go back to spot nodes.
func movesToSpot(offers []cloudv1.CloudOffer) map[string]int {
	moves := map[string]int{}
	for i := range offers {
		moves[offers[i].Name] = offers[i].Spec.Moves()
	}
	return moves
}

// addIdle tells a decision of the idle nodes of the workload's flavors, and of the attempts of the workload that are in
// names and labels of nodes.
func (c *workloads) addIdle(ctx context.Context, v *view, offers []cloudv1.CloudOffer) (pool []*NodeClaim, err error) {
	list := &NodeClaimList{}
	if err := c.client.List(ctx, list, client.MatchingFields{attemptIndex: string(v.uid)}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		v.made = max(v.made, lastAttempt(v.uid, []claim{readClaim(&list.Items[i])}))
	}
	for i := range v.parts {
		name := v.parts[i].flavor
		if v.keepIdle[name] <= 0 {
			continue
		}
		flavor := &kueue.ResourceFlavor{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: name}, flavor); err != nil {
			return nil, err
		}
		idle := &NodeClaimList{}
		if err := c.client.List(ctx, idle, client.MatchingFields{idleIndex: name}); err != nil {
			return nil, err
		}
		at := slices.IndexFunc(offers, func(o cloudv1.CloudOffer) bool { return o.Name == name })
		for j := range idle.Items {
			n := readClaim(&idle.Items[j])
			with := &NodeClaimList{}
			if err := c.client.List(ctx, with, client.MatchingFields{labelIndex: n.label}); err != nil {
				return nil, err
			}
			n.unfit = !sameAsNew(&idle.Items[j], &offers[at], flavor) || sharesLabel(n.label, v.uid, pointers(with))
			v.pool, pool = append(v.pool, n), append(pool, &idle.Items[j])
		}
	}
	return pool, nil
}

// phaseOf is what a workload wants of its nodes.
func phaseOf(wl *kueue.Workload, mine []checks.Check) phase {
	switch {
	case wl == nil || !workload.HasReservation(wl) || workload.IsFinished(wl) || wl.DeletionTimestamp != nil && !workload.HasFinalizer(wl):
		return gone
	case workload.IsEvicted(wl) || wl.DeletionTimestamp != nil || !workload.IsActive(wl):
		return holds
	case len(mine) == 0 && workload.IsAdmitted(wl):
		return holds
	case len(mine) == 0:
		return gone
	case mine[0].State.State == kueue.CheckStateRetry || mine[0].State.State == kueue.CheckStateRejected:
		return holds
	}
	return wants
}

// offers are all CloudOffers, with what was learned last.
func (c *workloads) offers(ctx context.Context) ([]cloudv1.CloudOffer, error) {
	list := &cloudv1.CloudOfferList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if w, known := c.written[o.Name]; known && c.now().Sub(w.at) < cacheTimeout {
			o.Status.Places = w.places
		}
	}
	return list.Items, nil
}

// parts are the pods of a workload by the flavors whose nodes are bought.
func (c *workloads) parts(ctx context.Context, wl *kueue.Workload, offers []cloudv1.CloudOffer, now time.Time) ([]part, error) {
	var parts []part
	for i := range offers {
		offer := &offers[i]
		if offer.Spec.NodeClass() == nil {
			continue
		}
		p := podsOn(wl, offer)
		if len(p.sets) == 0 {
			continue
		}
		sold, err := c.tables.Offers(ctx, offer)
		if err == nil {
			p.startUp, err = cloudoffers.StartUp(offer)
		}
		switch {
		case cloudoffers.IsProblem(err):
			p.problem = "CloudOffer " + offer.Name + ": " + err.Error()
		case err != nil:
			return nil, err
		default:
			p.fitOn(sold, offer)
			p.bring(wl, offer)
			if p.others, err = c.onDemandElsewhere(ctx, wl, &p, offers); err != nil {
				return nil, err
			}
		}
		p.known = p.known || offer.Status.ClosedUntil != nil && offer.Status.ClosedUntil.After(now)
		parts = append(parts, p)
	}
	if len(parts) > 1 { // what is not handed over would have to be given back, too
		for i := range parts {
			parts[i].others = nil
		}
	}
	return parts, nil
}

// transaction is a decision and what it was made on.
type transaction struct {
	*view
	plan
	workload *kueue.Workload
	checks   []checks.Check
	claims   []*NodeClaim
	pool     []*NodeClaim // idle ones, also of other workloads
	offers   []cloudv1.CloudOffer
}

// carryOut does what was decided. Each step may be the last; what is left is decided again.
func (c *workloads) carryOut(ctx context.Context, t *transaction) (ctrl.Result, error) {
	for _, flavor := range slices.Sorted(maps.Keys(t.counted)) {
		if err := c.remember(ctx, t, flavor); err != nil {
			return retryConflict(err)
		}
	}
	for _, name := range t.letGo {
		if err := c.letGo(ctx, t.named(name)); err != nil {
			return retryConflict(err)
		}
	}
	for _, name := range t.toIdle {
		n := t.named(name)
		p := readClaim(n).purchase
		p.Idle = t.now
		if err := c.note(ctx, n, &p, n.Labels[uidLabel]); err != nil {
			return retryConflict(err)
		}
	}
	if t.plan.state != nil {
		if err := c.writeState(ctx, t); err != nil {
			return retryConflict(err)
		}
	}
	if len(t.buy)+len(t.adopt) > 0 {
		return c.order(ctx, t)
	}
	return ctrl.Result{RequeueAfter: t.again}, nil
}

// named is one of the NodeClaims that the decision was made on.
func (t *transaction) named(name string) *NodeClaim {
	for _, n := range slices.Concat(t.claims, t.pool) {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// note writes whose a node is. It fails if that has changed since it was read.
func (c *workloads) note(ctx context.Context, n *NodeClaim, p *purchase, uid string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	was := n.DeepCopy()
	n = n.DeepCopy()
	n.Labels[uidLabel], n.Annotations[purchaseAnnotation] = uid, string(text)
	return c.client.Patch(ctx, n, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
}

// retryConflict decides again when the cache shows what was newer.
func retryConflict(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// remember writes what was learned into the status of a CloudOffer.
func (c *workloads) remember(ctx context.Context, t *transaction, flavor string) error {
	at := slices.IndexFunc(t.offers, func(o cloudv1.CloudOffer) bool { return o.Name == flavor })
	if at < 0 {
		return nil // nothing is sold by that name any more
	}
	places, err := cloudoffers.Remember(ctx, c.client, &t.offers[at], t.view.learned, t.counted[flavor], t.now)
	if err != nil {
		return err
	}
	c.written[flavor] = written{places: places, at: c.now()}
	return nil
}

// letGo deletes a NodeClaim. Without the finalizer it is nobody's: if this is all that happens, it is deleted later.
func (c *workloads) letGo(ctx context.Context, n *NodeClaim) error {
	if slices.Contains(n.Finalizers, finalizer) {
		was := n.DeepCopy()
		n = n.DeepCopy()
		n.Finalizers = slices.DeleteFunc(n.Finalizers, func(name string) bool { return name == finalizer })
		if err := c.client.Patch(ctx, n, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if n.DeletionTimestamp != nil {
		return nil
	}
	err := c.client.Delete(ctx, n, client.Preconditions{UID: &n.UID})
	return client.IgnoreNotFound(err)
}

// writeState writes the state of the workload's check, if it changed.
func (c *workloads) writeState(ctx context.Context, t *transaction) error {
	var changed, turned []kueue.AdmissionCheckState
	for _, check := range t.checks {
		next := *t.plan.state.DeepCopy()
		next.Name, next.RetryCount = check.State.Name, check.State.RetryCount
		next.LastTransitionTime = check.State.LastTransitionTime
		if equality.Semantic.DeepEqual(next, check.State) {
			continue
		}
		if next.State != check.State.State {
			next.LastTransitionTime = metav1.NewTime(t.now)
			turned = append(turned, next)
		}
		changed = append(changed, next)
	}
	if len(changed) == 0 {
		return nil
	}
	if err := checks.WriteStates(ctx, c.client, t.workload, changed...); err != nil {
		return err
	}
	for _, next := range turned {
		if next.State != kueue.CheckStatePending {
			c.recorder.Eventf(t.workload, nil, corev1.EventTypeNormal, "AdmissionCheckUpdated", "AdmissionCheckUpdated", "Admission check %s is %s: %s", next.Name, next.State, next.Message)
		}
	}
	return nil
}

// order makes the NodeClaims of an attempt. All of them, or none: where one cannot be made, the others are let go.
func (c *workloads) order(ctx context.Context, t *transaction) (ctrl.Result, error) {
	unseen, err := c.unseen(ctx, t)
	if err != nil || unseen {
		return ctrl.Result{RequeueAfter: time.Second}, err
	}
	claims, err := c.newClaims(ctx, t)
	if err != nil {
		return ctrl.Result{}, err
	}
	for i := range t.adopt {
		if err := c.note(ctx, t.named(t.adopt[i].name), &t.adopt[i].purchase, string(t.workload.UID)); err != nil {
			return retryConflict(err)
		}
	}
	if n := len(t.adopt); n > 0 {
		c.recorder.Eventf(t.workload, nil, corev1.EventTypeNormal, "NodeClaimsTakenOver", "TakenOver", "Took over %s for flavor %s: %s",
			plural(n, "idle node"), t.adopt[0].Flavor, t.adopt[0].Place)
	}
	if len(claims) == 0 {
		return ctrl.Result{}, nil
	}
	for i, n := range claims {
		err := c.client.Create(ctx, n)
		if apierrors.IsAlreadyExists(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil // it is seen when the cache shows it
		}
		if err != nil {
			return ctrl.Result{}, c.takeBack(ctx, t, claims[:i], fmt.Errorf("making NodeClaim %s: %w", n.Name, err))
		}
	}
	first := t.buy[0]
	c.recorder.Eventf(t.workload, nil, corev1.EventTypeNormal, "NodeClaimsCreated", "Created", "Created %s of attempt %d for flavor %s: %s",
		plural(len(claims), "NodeClaim"), first.Attempt, first.Flavor, first.Place)
	return ctrl.Result{}, nil
}

// unseen says that there are NodeClaims of the workload that the decision did not know, or that another workload has a node
// with the label of those that are to be taken over: the cache is behind, or another leader made them.
func (c *workloads) unseen(ctx context.Context, t *transaction) (bool, error) {
	list := &NodeClaimList{}
	for i := range t.adopt {
		label := t.adopt[i].Group
		if i > 0 && t.adopt[i-1].Group == label {
			continue
		}
		if err := c.direct.List(ctx, list, client.MatchingLabels{cloudv1.PurchaseLabel: label}); err != nil || sharesLabel(label, t.uid, pointers(list)) {
			return true, err
		}
	}
	list = &NodeClaimList{}
	if err := c.direct.List(ctx, list, client.MatchingLabels{uidLabel: string(t.workload.UID)}); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(n NodeClaim) bool {
		return !slices.ContainsFunc(t.claims, func(known *NodeClaim) bool { return known.UID == n.UID })
	}), nil
}

func pointers(list *NodeClaimList) (all []*NodeClaim) {
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// newClaims are the NodeClaims to make.
func (c *workloads) newClaims(ctx context.Context, t *transaction) ([]*NodeClaim, error) {
	claims := make([]*NodeClaim, 0, len(t.buy))
	for i := range t.buy {
		p := &t.buy[i]
		flavor := &kueue.ResourceFlavor{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: p.Flavor}, flavor); err != nil {
			return nil, err
		}
		offer := slices.IndexFunc(t.offers, func(o cloudv1.CloudOffer) bool { return o.Name == p.Flavor })
		part := slices.IndexFunc(t.parts, func(part part) bool { return part.flavor == p.Flavor })
		sold := slices.IndexFunc(t.parts[part].offers, func(o cloud.Offer) bool { return o.Place == p.Place })
		n, err := newClaim(t.workload, p, t.parts[part].offers[sold].GPUs, &t.offers[offer], flavor)
		if err != nil {
			return nil, err
		}
		claims = append(claims, n)
	}
	return claims, nil
}

// takeBack lets go what was made of an attempt, and has the check say why. It is tried again.
func (c *workloads) takeBack(ctx context.Context, t *transaction, made []*NodeClaim, why error) error {
	c.recorder.Eventf(t.workload, nil, corev1.EventTypeWarning, "FailedCreate", "FailedCreate", "%.1000s", why.Error())
	for _, n := range made {
		if err := c.letGo(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range t.claims {
		if claim := readClaim(n); claim.live() && claim.Attempt == t.buy[0].Attempt {
			if err := c.letGo(ctx, n); err != nil {
				return err
			}
		}
	}
	t.plan.state.Message = fmt.Sprintf("%.1000s", why.Error())
	if err := c.writeState(ctx, t); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return err
	}
	return why
}
