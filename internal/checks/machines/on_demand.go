package machines

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A deadline says until when a workload waits for spot nodes; then nodes on demand are bought. Where a flavor has spot nodes alone, those on
// demand are other flavors' of the same queue. What they cost is known here, so that a workload waits as long as it would on one flavor
// that has both. It is then handed over: its check says Retry, it is evicted as OnDemand, and the engine tries flavors with spot nodes last
// until it has quota again. Where no other flavor has quota for it, it is not handed over a second time, and takes spot nodes.

// sale is an offer on demand of another flavor.
type sale struct {
	flavor string
	cloud.Offer
}

// sellsOnDemand says that a flavor has nodes on demand for the pods of a part.
func (p *part) sellsOnDemand() bool {
	return slices.ContainsFunc(p.offers, func(o cloud.Offer) bool { return !o.Spot })
}

// withOthers are offers of a part, and those on demand of other flavors.
func (p *part) withOthers(offers []cloud.Offer) []cloud.Offer {
	for i := range p.others {
		offers = append(offers, p.others[i].Offer)
	}
	return offers
}

// sellerOf is the other flavor that an offer is of; "": it is the part's own.
func (p *part) sellerOf(o *cloud.Offer) string {
	if i := slices.IndexFunc(p.others, func(s sale) bool { return s.Place == o.Place }); i >= 0 {
		return p.others[i].flavor
	}
	return ""
}

// deadlineNote is what who gave a deadline, or a price of delay, should know of what becomes of it; "": nothing.
func (v *view) deadlineNote(part *part) string {
	switch {
	case v.terms.Deadline.IsZero() && v.terms.DelayPrice <= 0:
		return ""
	case !part.sellsOnDemand() && len(part.others) == 0:
		why := "neither flavor " + part.flavor + " nor another one of its queue sells nodes on demand"
		switch {
		case len(v.parts) > 1:
			why = "its pods are on several flavors"
		case v.handedOver:
			why = "no flavor with nodes on demand had quota for it"
		}
		return "its deadline or price of delay does not count: " + why
	case !v.terms.Deadline.IsZero() && !v.declared && v.learnedRun == 0:
		return fmt.Sprintf("it does not say how long it runs (maximumExecutionTimeSeconds): its deadline is reckoned with %s", v.run)
	}
	return ""
}

// handOver gives a workload back to the engine, so that it gets nodes on demand of another flavor.
func handOver(part *part, c *cloud.Choice, flavor string) answer {
	return answer{state: kueue.CheckStateRetry, message: fmt.Sprintf("%s: to wait for spot nodes of flavor %s does not pay any longer: on demand about $%s are expected, as flavor %s sells them",
		cloudv1.ReasonOnDemand, part.flavor, money(c.Cost), flavor)}
}

// onDemandElsewhere are the offers on demand of other flavors that a workload can be given instead of a part's: of the same resource group of
// its ClusterQueue, and bought by the same check.
func (c *workloads) onDemandElsewhere(ctx context.Context, wl *kueue.Workload, p *part, offers []cloudv1.CloudOffer) ([]sale, error) {
	terms, _ := workload.PurchaseTermsOf(wl.Annotations)
	if p.unfit != "" || p.sellsOnDemand() || terms.Deadline.IsZero() && terms.DelayPrice <= 0 || !workload.MayBeHandedOver(wl) {
		return nil, nil
	}
	cq := &kueue.ClusterQueue{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: string(wl.Status.Admission.ClusterQueue)}, cq); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var out []sale
	for i := range offers {
		offer := &offers[i]
		if offer.Spec.NodeClass() == nil || !inOneGroup(cq, p.flavor, offer.Name) {
			continue
		}
		if tied := workload.OnlyFlavors(wl); len(tied) > 0 && !slices.Contains(tied, offer.Name) {
			continue
		}
		sold, err := c.tables.Offers(ctx, offer)
		if cloudoffers.IsProblem(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		out = append(out, p.onDemandOf(wl, sold, offer)...)
	}
	return out, nil
}

// onDemandOf is what a CloudOffer sells on demand that holds the pods of a part.
func (p *part) onDemandOf(wl *kueue.Workload, sold []cloud.Offer, offer *cloudv1.CloudOffer) (out []sale) {
	there := part{flavor: offer.Name, pods: p.pods}
	there.fitOn(slices.DeleteFunc(slices.Clone(sold), func(o cloud.Offer) bool { return o.Spot }), offer)
	there.bring(wl, offer)
	for _, o := range there.offers {
		out = append(out, sale{flavor: offer.Name, Offer: o})
	}
	return out
}

// inOneGroup says that a queue has two flavors for the same resources.
func inOneGroup(cq *kueue.ClusterQueue, flavor, other string) bool {
	has := func(group *kueue.ResourceGroup, name string) bool {
		return slices.ContainsFunc(group.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == name })
	}
	return flavor != other && slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool { return has(&g, flavor) && has(&g, other) })
}
