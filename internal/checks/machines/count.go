package machines

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks"
)

// states in which a bought node is.
const (
	starting = "starting"
	ready    = "ready"
	idle     = "idle" // it waits for the next workload
	ending   = "ending"
	unowned  = "unowned" // its workload is gone, or needs no nodes, and it is not being deleted
)

// count reports how many nodes of each flavor are in each state. Where a flavor has nodes, all states are reported, so that
// one that ends is seen to end.
func (c *workloads) count(ctx context.Context, report func(flavor, state string, nodes int)) {
	if !c.available() {
		return
	}
	list := &NodeClaimList{}
	if err := c.client.List(ctx, list, client.HasLabels{uidLabel}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "counting NodeClaims failed")
		return
	}
	counts := map[string]map[string]int{}
	for i := range list.Items {
		n := &list.Items[i]
		flavor := readClaim(n).Flavor
		if counts[flavor] == nil {
			counts[flavor] = map[string]int{}
		}
		counts[flavor][c.stateOf(ctx, n)]++
	}
	for flavor, of := range counts {
		for _, state := range []string{starting, ready, idle, ending, unowned} {
			report(flavor, state, of[state])
		}
	}
}

func (c *workloads) stateOf(ctx context.Context, n *NodeClaim) string {
	claim := readClaim(n)
	if claim.deleted {
		return ending
	}
	if claim.idle() {
		return idle
	}
	wl := &kueue.Workload{}
	err := c.client.Get(ctx, workloadOf(n), wl)
	if apierrors.IsNotFound(err) || err == nil && string(wl.UID) != n.Labels[uidLabel] {
		return unowned
	}
	if mine, failed := checks.ForController(ctx, c.client, wl, cloudv1.PurchaseController); err == nil && failed == nil && phaseOf(wl, mine) == gone && moving(wl).IsZero() {
		return unowned
	}
	if claim.registered {
		return ready
	}
	return starting
}
