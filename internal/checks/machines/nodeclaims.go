package machines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

const (
	finalizer = "elasticai.io/machines" // until what came of the NodeClaim was counted
	// uidLabel is the UID of the workload that a NodeClaim was made for.
	uidLabel = "elasticai.io/workload-uid"
	// purchaseAnnotation is all that a decision must know of a NodeClaim and Karpenter does not say.
	purchaseAnnotation = "elasticai.io/purchase"

	// terminationGrace is for how long pods may delay the end of a node.
	terminationGrace = "1h"
)

// purchase is a node that is bought, or to be.
type purchase struct {
	Workload string      `json:"workload"` // namespace/name
	Flavor   string      `json:"flavor"`
	Place    cloud.Place `json:"place"`
	Attempt  int         `json:"attempt"`
	Node     int         `json:"node"` // of the attempt, from 0
	Nodes    int         `json:"nodes"`
	// Bought is how many nodes of the attempt are bought, where the others were there already; 0: all.
	Bought int `json:"bought,omitempty"`
	// Group is what the label of the attempt's nodes has, where some were bought for another workload: a label of a node
	// does not change.
	Group string `json:"group,omitempty"`
	// Idle is since when the node waits for the next workload; zero: a workload has it.
	Idle time.Time `json:"idle,omitzero"`
}

// group is the value of the label of all nodes of an attempt.
func (p *purchase) group(uid types.UID) string {
	return cmp.Or(p.Group, fmt.Sprintf("%s-%d", uid, p.Attempt))
}

// wanted is how many machines the attempt asks the cloud for.
func (p *purchase) wanted() int { return cmp.Or(p.Bought, p.Nodes) }

// name of the NodeClaim. The same purchase has the same name, so it cannot be made twice.
func (p *purchase) name(uid types.UID) string {
	return fmt.Sprintf("elastic-%s-%d-%d", uid, p.Attempt, p.Node)
}

// claim is a NodeClaim of a workload as a decision sees it.
type claim struct {
	purchase
	name         string
	label        string // the value of the label that pods select the node by
	created      time.Time
	expires      time.Time // when Karpenter deletes it, whatever runs there
	held         bool      // its finalizer is there: what comes of it is to be counted
	deleted      bool      // it is being deleted
	unfit        bool      // idle, and not what would be bought today, or others have nodes with its label
	refused      bool      // Karpenter says that it cannot be launched
	launched     bool
	launchedAt   time.Time
	registered   bool
	registeredAt time.Time
}

// failed says that there is no node, or will be none any more, though the workload may need it.
func (c *claim) failed() bool { return c.held && (c.deleted || c.refused) }

// live says that a workload has the node, or will.
func (c *claim) live() bool { return c.held && !c.failed() && c.Idle.IsZero() }

// idle says that the node waits for the next workload.
func (c *claim) idle() bool { return c.held && !c.failed() && !c.Idle.IsZero() }

// adopted says that the node was bought for another workload, or for another attempt.
func (c *claim) adopted(uid types.UID) bool { return c.name != c.purchase.name(uid) }

// attempts are those of workloads that the name of the NodeClaim and the label of its node are of. Their numbers are taken,
// also where other workloads have the node now.
func (c *claim) attempts() map[types.UID]int {
	taken := map[types.UID]int{}
	named := strings.TrimPrefix(c.name, "elastic-")
	if at := strings.LastIndexByte(named, '-'); at > 0 {
		named = named[:at]
	}
	for _, group := range []string{named, c.label} {
		at := strings.LastIndexByte(group, '-')
		if at < 0 {
			continue
		}
		if n, err := strconv.Atoi(group[at+1:]); err == nil {
			taken[types.UID(group[:at])] = max(taken[types.UID(group[:at])], n)
		}
	}
	return taken
}

// readClaim reads a NodeClaim of ours; one whose annotation cannot be read belongs to nobody, and is let go.
func readClaim(n *NodeClaim) claim {
	c := claim{
		name: n.Name, label: n.Labels[cloudv1.PurchaseLabel], created: n.CreationTimestamp.Time,
		deleted: n.DeletionTimestamp != nil, held: slices.Contains(n.Finalizers, finalizer),
	}
	if life, err := time.ParseDuration(n.Spec.ExpireAfter); err == nil {
		c.expires = c.created.Add(life)
	}
	if json.Unmarshal([]byte(n.Annotations[purchaseAnnotation]), &c.purchase) != nil {
		c.purchase = purchase{}
	}
	launched, registered := apimeta.FindStatusCondition(n.Status.Conditions, Launched), apimeta.FindStatusCondition(n.Status.Conditions, Registered)
	c.launched = launched != nil && launched.Status == metav1.ConditionTrue
	c.refused = launched != nil && (launched.Status == metav1.ConditionFalse || !c.launched && strings.HasPrefix(launched.Reason, "InsufficientCapacity"))
	if c.launched {
		c.launchedAt = launched.LastTransitionTime.Time
	}
	if registered != nil && registered.Status == metav1.ConditionTrue {
		c.registered, c.registeredAt = true, registered.LastTransitionTime.Time
	}
	return c
}

// workloadOf is the workload that a NodeClaim says it is for. Those that say nothing that can be read are for one without a
// name, which does not exist.
func workloadOf(n *NodeClaim) types.NamespacedName {
	namespace, name, _ := strings.Cut(readClaim(n).Workload, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// newClaim is the NodeClaim of a purchase. What is in it comes from the CloudOffer and its flavor alone.
func newClaim(wl *kueue.Workload, p *purchase, gpus float64, offer *cloudv1.CloudOffer, flavor *kueue.ResourceFlavor) (*NodeClaim, error) {
	note, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(flavor.Spec.NodeLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[uidLabel], labels[cloudv1.PurchaseLabel] = string(wl.UID), p.group(wl.UID)
	n := &NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.name(wl.UID), Labels: labels, Finalizers: []string{finalizer}, Annotations: map[string]string{purchaseAnnotation: string(note)},
		},
		Spec: NodeClaimSpec{
			Taints:       flavor.Spec.NodeTaints,
			NodeClassRef: NodeClassRef(*offer.Spec.Via.NodeClass),
			Resources:    ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceName(offer.Spec.CardResource()): *resource.NewQuantity(int64(gpus), resource.DecimalSI)}},
			ExpireAfter:  cmp.Or(offer.Spec.Via.ExpireAfter, "168h"), TerminationGracePeriod: terminationGrace,
		},
	}
	wants := placeLabels(p.Place, offer)
	for _, key := range slices.Sorted(maps.Keys(wants)) {
		n.Spec.Requirements = append(n.Spec.Requirements, Requirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{wants[key]}})
	}
	return n, nil
}

// sameAsNew says that a NodeClaim is as one that would be made today: the flavor and the CloudOffer may have changed since.
func sameAsNew(n *NodeClaim, offer *cloudv1.CloudOffer, flavor *kueue.ResourceFlavor) bool {
	cards := n.Spec.Resources.Requests[corev1.ResourceName(offer.Spec.CardResource())]
	p := readClaim(n).purchase
	fresh, err := newClaim(&kueue.Workload{}, &p, float64(cards.Value()), offer, flavor)
	if err != nil {
		return false
	}
	for key := range flavor.Spec.NodeLabels {
		if key != uidLabel && key != cloudv1.PurchaseLabel && n.Labels[key] != fresh.Labels[key] {
			return false
		}
	}
	fresh.Spec.ExpireAfter = n.Spec.ExpireAfter
	return equality.Semantic.DeepEqual(fresh.Spec, n.Spec)
}

// placeLabels are the labels of nodes that are bought at a place.
func placeLabels(p cloud.Place, offer *cloudv1.CloudOffer) map[string]string {
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: p.InstanceType, corev1.LabelTopologyRegion: p.Region, capacityTypeLabel: onDemand,
	}
	if p.Spot {
		labels[capacityTypeLabel] = spot
	}
	if p.Zone != "" {
		labels[cmp.Or(offer.Spec.Via.ZoneLabel, corev1.LabelTopologyZone)] = p.Zone
	}
	return labels
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
