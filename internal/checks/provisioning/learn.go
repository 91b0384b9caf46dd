package provisioning

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// What comes of a request is remembered by the CloudOffers of its class (via.provisioningClass), so that other jobs are sent to other flavors
// while nodes cannot be had. A request does not say where its nodes come from, so it is learned of all places of the flavor.

// learn tells CloudOffers what came of the requests of a workload, each once: what was seen of a place since counts more, and after a restart
// it is known. It says whether to look again, as the cache is behind.
func (c *workloads) learn(ctx context.Context, wl *kueue.Workload, pending []*pendingCheck) (again bool, err error) {
	if !c.learns || !slices.ContainsFunc(pending, (*pendingCheck).said) {
		return false, nil
	}
	offers := &cloudv1.CloudOfferList{}
	if err := c.client.List(ctx, offers); err != nil {
		return false, err
	}
	now := c.now().Truncate(time.Second)
	learned := cloudoffers.Learned(offers.Items, now)
	for i := range offers.Items {
		offer := &offers.Items[i]
		var counted []cloud.Place
		for _, r := range pending {
			asks := r.asksOf(wl, offer)
			if !r.said() || len(asks) == 0 {
				continue
			}
			sold, err := c.tables.Offers(ctx, offer)
			if cloudoffers.IsProblem(err) {
				continue // its status says so
			} else if err != nil {
				return false, err
			}
			counted = append(counted, learnOf(learned, r.last, asks, sold, now)...)
		}
		if len(counted) == 0 {
			continue
		}
		_, err := cloudoffers.Remember(ctx, c.client, offer, learned, counted, now)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	return false, nil
}

// said is that the autoscaler has answered.
func (r *pendingCheck) said() bool {
	if r.last == nil {
		return false
	}
	_, at := outcome(r.last)
	return !at.IsZero()
}

// outcome of a request, which is a condition, and when it came; zero: it has none.
func outcome(r *ProvisioningRequest) (kind string, at time.Time) {
	for _, kind := range []string{Failed, CapacityRevoked, Provisioned} {
		if c := apimeta.FindStatusCondition(r.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return kind, c.LastTransitionTime.Time
		}
	}
	return "", time.Time{}
}

// ask is what a number of equal pods ask of nodes.
type ask struct {
	count int64
	each  cloudoffers.Size
	// plain says that nothing but what they ask for decides whether nodes will do.
	plain bool
}

// asksOf are the pods of a request that are on the flavor of a CloudOffer with its class.
func (r *pendingCheck) asksOf(wl *kueue.Workload, offer *cloudv1.CloudOffer) (asks []ask) {
	if class := offer.Spec.ProvisioningClass(); class == "" || r.last == nil || class != r.last.Spec.ProvisioningClassName {
		return nil
	}
	for _, g := range r.groups {
		for _, name := range g.sets {
			assigned := assignment(wl, name)
			at := slices.IndexFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == name })
			if assigned == nil || at < 0 || !checks.IsAssigned(assigned, offer.Name) {
				continue
			}
			spec := &wl.Spec.PodSets[at].Template.Spec
			requests, cards := workload.PodRequests(spec), corev1.ResourceName(offer.Spec.CardResource())
			a := ask{count: int64(ptr.Deref(assigned.Count, wl.Spec.PodSets[at].Count)), plain: isPlain(spec) && !hasParameters(wl)}
			for resource, amount := range requests {
				n := workload.Amount(resource, amount)
				switch resource {
				case cards:
					a.each.Cards = n
				case corev1.ResourceCPU:
					a.each.MilliCPUs = n
				case corev1.ResourceMemory:
					a.each.Memory = n
				default:
					a.plain = false
				}
			}
			asks = append(asks, a)
		}
	}
	return asks
}

// hasParameters says that a job has parameters of its own for its request, such as one by which it can only fail.
func hasParameters(wl *kueue.Workload) bool {
	for name := range wl.Annotations {
		if strings.HasPrefix(name, kueuelabels.ProvisioningParameterPrefix) {
			return true
		}
	}
	return false
}

// isPlain says that pods ask for nothing that no node may have: a tenant whose request can only fail closes no place for others.
func isPlain(spec *corev1.PodSpec) bool {
	ports := slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	})
	volumes := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
	})
	return !ports && !volumes && !spec.HostNetwork && len(spec.NodeSelector) == 0 && spec.Affinity == nil && spec.NodeName == "" && spec.RuntimeClassName == nil &&
		len(spec.TopologySpreadConstraints) == 0 && len(spec.ResourceClaims) == 0 &&
		(spec.SchedulerName == "" || spec.SchedulerName == corev1.DefaultSchedulerName)
}

// learnOf learns what came of a request at places, and returns those of which that was not known.
func learnOf(learned *cloud.Learned, r *ProvisioningRequest, asks []ask, sold []cloud.Offer, now time.Time) (counted []cloud.Place) {
	kind, at := outcome(r)
	for i := range sold {
		o := &sold[i]
		if seen := learned.Of(o.Place); seen != nil && !seen.At.Before(at) {
			continue
		}
		wanted, fits := nodesOf(o, asks)
		switch {
		case kind == Provisioned:
			learned.Obtained(o.Place, wanted, now)
			learned.Started(o.Place, max(time.Second, at.Sub(r.CreationTimestamp.Time)))
		case kind == CapacityRevoked:
			learned.Lost(o.Place, wanted, now)
		case fits:
			learned.StockOut(o.Place, wanted, now)
		default:
			continue
		}
		counted = append(counted, o.Place)
	}
	return counted
}

// mostNodes is how many nodes count as asked for at most.
const mostNodes = 1 << 20

// nodesOf is how many nodes of an offer have as many cards as pods ask for, and whether each of these fits on one for sure: what the table
// does not say of it may be too little.
func nodesOf(o *cloud.Offer, asks []ask) (nodes int, fits bool) {
	size, cards := cloudoffers.SizeOf(o), 0.0
	fits = true
	for _, a := range asks {
		cards += float64(max(0, a.count)) * float64(a.each.Cards)
		known := (o.VCPUs > 0 || a.each.MilliCPUs == 0) && (o.MemoryGiB > 0 || a.each.Memory == 0)
		fits = fits && a.plain && known && size.Holds(a.each)
	}
	return int(max(1, min(mostNodes, (cards+o.GPUs-1)/max(1, o.GPUs)))), fits
}
