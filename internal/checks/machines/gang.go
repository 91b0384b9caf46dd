package machines

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

const (
	// mostNodes is how many nodes are made for the pods of a workload on one flavor.
	mostNodes = 512
	// podsPerNode is how many pods a kubelet takes by default.
	podsPerNode = 110
)

// part is the pods of a workload that are on one flavor whose nodes are bought.
type part struct {
	flavor string
	sets   []kueue.PodSetReference
	pods   []pods
	// offers are those of the flavor's CloudOffer on which all pods fit, each with the number of nodes they need.
	offers []cloud.Offer
	// others are those on demand of other flavors, where this one has none, for who may wait for spot nodes.
	others []sale
	// unfit says why the pods fit on no node that is sold, and problem why nothing is known to be sold; "": they do, it is.
	unfit, problem string
	startUp        time.Duration
	// known says that the engine knows as much as it can if no place sells now: the CloudOffer's status reports that all are
	// closed, or some are not for these pods.
	known bool
}

// pods are a number of equal pods, what each needs of a node, and which labels of a place its node selector wants.
type pods struct {
	count                    int64
	cards, milliCPUs, memory int64
	selector                 map[string]string
}

// podsOn are the pods of a workload that are on a flavor.
func podsOn(wl *kueue.Workload, offer *cloudv1.CloudOffer) (p part) {
	p.flavor = offer.Name
	if workload.Replaces(wl).Name != "" {
		p.unfit = "a job that changes its size while it runs cannot have its nodes bought"
	}
	for i := range wl.Status.Admission.PodSetAssignments {
		assigned := &wl.Status.Admission.PodSetAssignments[i]
		at := slices.IndexFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == assigned.Name })
		if !checks.IsAssigned(assigned, offer.Name) || at < 0 {
			continue
		}
		set := &wl.Spec.PodSets[at]
		count := ptr.Deref(assigned.Count, set.Count)
		if count <= 0 {
			continue
		}
		if _, taken := set.Template.Spec.NodeSelector[cloudv1.PurchaseLabel]; taken {
			p.unfit = fmt.Sprintf("the node selector of pod set %q has %s, which is the check's to set", set.Name, cloudv1.PurchaseLabel)
		}
		requests := workload.PodRequests(&set.Template.Spec)
		cards := requests[corev1.ResourceName(offer.Spec.CardResource())]
		p.sets = append(p.sets, set.Name)
		p.pods = append(p.pods, pods{
			count: int64(count), cards: max(0, cards.Value()), milliCPUs: max(0, requests.Cpu().MilliValue()), memory: max(0, requests.Memory().Value()),
			selector: set.Template.Spec.NodeSelector,
		})
	}
	return p
}

// fitOn chooses the offers on whose nodes all pods fit, and says how many of each they need.
func (p *part) fitOn(offers []cloud.Offer, offer *cloudv1.CloudOffer) {
	for i := range offers {
		o := offers[i]
		if n := nodesFor(p.pods, &o, placeLabels(o.Place, offer)); n > 0 {
			o.Machines = n
			p.offers = append(p.offers, o)
		}
	}
	p.known = len(p.offers) < len(offers)
	if len(p.offers) == 0 && p.unfit == "" {
		p.unfit = fmt.Sprintf("the pods fit on no machine that CloudOffer %s sells, or need more than %d of them", offer.Name, mostNodes)
	}
}

// bring has the offers cost what it takes to bring the workload's input there, where it says where that lies.
func (p *part) bring(wl *kueue.Workload, offer *cloudv1.CloudOffer) {
	input, err := workload.InputOf(wl.Annotations)
	if err != nil {
		return // explain reports it
	}
	var egress cloud.Egress
	egress.OtherRegion, egress.OtherCloud = offer.Spec.Egress.Prices()
	for i := range p.offers {
		p.offers[i].Fixed = egress.Cost(input, p.offers[i].Cloud, p.offers[i].Region)
	}
}

// free is what a node has left.
type free struct{ pods, cards, milliCPUs, memory int64 }

// nodesFor is how many nodes of an offer the pods need, the largest first; 0: they do not fit, or need too many.
func nodesFor(list []pods, o *cloud.Offer, labels map[string]string) int {
	size := cloudoffers.SizeOf(o)
	whole := free{pods: podsPerNode, cards: size.Cards, milliCPUs: size.MilliCPUs, memory: size.Memory}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b pods) int {
		return cmp.Or(cmp.Compare(b.cards, a.cards), cmp.Compare(b.milliCPUs, a.milliCPUs), cmp.Compare(b.memory, a.memory))
	})
	var nodes []free
	for _, p := range list {
		for label, value := range labels {
			if wanted, has := p.selector[label]; has && wanted != value {
				return 0
			}
		}
		left := p.count
		for i := range nodes {
			left -= nodes[i].take(p, left)
		}
		for left > 0 {
			node := whole
			taken := node.take(p, left)
			if taken == 0 || len(nodes) == mostNodes {
				return 0
			}
			nodes, left = append(nodes, node), left-taken
		}
	}
	return len(nodes)
}

// take puts as many of the pods on the node as it has capacity for.
func (f *free) take(p pods, most int64) int64 {
	n := min(most, f.pods)
	for _, r := range [...]struct{ has, each int64 }{{f.cards, p.cards}, {f.milliCPUs, p.milliCPUs}, {f.memory, p.memory}} {
		if r.each > 0 {
			n = min(n, r.has/r.each)
		}
	}
	f.pods, f.cards, f.milliCPUs, f.memory = f.pods-n, f.cards-n*p.cards, f.milliCPUs-n*p.milliCPUs, f.memory-n*p.memory
	return n
}
