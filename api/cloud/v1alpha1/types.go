package v1alpha1

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of CloudOffer.
var GroupVersion = schema.GroupVersion{Group: "elasticai.io", Version: "v1alpha1"}

// AddToScheme makes CloudOffer known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &CloudOffer{}, &CloudOfferList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// CloudOffer says that the nodes of the ResourceFlavor of its name are bought, and what they cost. Among flavors that a
// ClusterQueue's rules leave the choice between, the one that is expected to cost a workload least goes first; flavors
// without a CloudOffer cost nothing more.
//
// With via.cluster it says the same of another cluster instead, and its name does not matter: what jobs cost that are sent
// there.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Price",type=string,JSONPath=`.status.pricePerHour`,description="of a card for an hour, US dollars"
// +kubebuilder:printcolumn:name="Cloud",type=string,JSONPath=`.status.cheapest.cloud`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.status.cheapest.region`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.cheapest.instanceType`
// +kubebuilder:printcolumn:name="Offers",type=integer,JSONPath=`.status.offers`
// +kubebuilder:printcolumn:name="Priced",type=string,JSONPath=`.status.conditions[?(@.type=="Priced")].status`
type CloudOffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CloudOfferSpec   `json:"spec"`
	Status CloudOfferStatus `json:"status,omitempty"`
}

// CloudOfferList is a list of CloudOffers.
//
// +kubebuilder:object:root=true
type CloudOfferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CloudOffer `json:"items"`
}

// CloudOfferSpec says where prices are found, and which of them count.
//
// +kubebuilder:validation:XValidation:rule="!has(self.via) || has(self.via.nodeClass) || !has(self.keepIdle)",message="keepIdle is of nodes that are made here: leave it out without via.nodeClass"
// +kubebuilder:validation:XValidation:rule="!has(self.via) || has(self.via.nodeClass) || !has(self.movesToSpot)",message="movesToSpot is of nodes that are made here: leave it out without via.nodeClass"
type CloudOfferSpec struct {
	Prices PriceTable `json:"prices"`
	// Match says which machines of the table are the flavor's nodes; all unless set.
	Match Match `json:"match,omitempty"`
	// Resource is what the cards of the machines are called in quotas.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:default="nvidia.com/gpu"
	Resource string `json:"resource,omitempty"`
	// MaxPricePerHour is the most that a machine may cost an hour, in US dollars; dearer ones are left out.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) > 0",message="must be more than 0"
	MaxPricePerHour *resource.Quantity `json:"maxPricePerHour,omitempty"`
	// StartUp is how long it takes from the order until pods run; 10m unless set.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="must be at least 0s and at most 24h"
	StartUp string `json:"startUp,omitempty"`
	// LossesPerHour is how often a spot machine is taken away an hour, as in "0.05". Unless set it is what was usual in
	// recorded series of spot machines, 0.1. Machines on demand are not taken away.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('60')) <= 0",message="must be at least 0 and at most 60"
	LossesPerHour *resource.Quantity `json:"lossesPerHour,omitempty"`
	// Via says who makes the flavor's nodes, for ClusterQueues that have a check of elasticai.io/machines on the flavor, or
	// which other cluster has them. Unless set, that is not Elastic's concern.
	Via *Via `json:"via,omitempty"`
	// KeepIdle is for how long a node that was bought waits for the next workload when its own is done, as in 10m. Its price
	// goes on meanwhile. Unless set it is deleted at once.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="must be at least 0s and at most 24h"
	KeepIdle string `json:"keepIdle,omitempty"`
	// MovesToSpot is how often a job that runs on machines on demand may be stopped to go on on spot machines of the flavor, where
	// that is expected to cost clearly less. They are bought first, and the job runs on until all are there. Only jobs are moved that
	// say how long they run at most, how often they save their work, and when they should be done or what their delay is worth.
	// 4 unless set; 0: never.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	MovesToSpot *int32 `json:"movesToSpot,omitempty"`
	// Egress is what it costs to bring the input of a job to the flavor's nodes, where the job says how large it is and where
	// it lies. Within a region it costs nothing.
	Egress Egress `json:"egress,omitempty"`
}

// Egress is what a GiB costs that leaves its region, in US dollars.
type Egress struct {
	// OtherRegion is for what lies in another region of the same cloud; 0.02 unless set, the list price of AWS.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('100')) <= 0",message="must be at least 0 and at most 100"
	OtherRegion *resource.Quantity `json:"otherRegion,omitempty"`
	// OtherCloud is for what lies in another cloud; 0.09 unless set, the list price of AWS.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('100')) <= 0",message="must be at least 0 and at most 100"
	OtherCloud *resource.Quantity `json:"otherCloud,omitempty"`
}

// Prices are what a GiB costs from another region, and from another cloud, in US dollars.
func (e *Egress) Prices() (otherRegion, otherCloud float64) {
	otherRegion, otherCloud = 0.02, 0.09
	if e.OtherRegion != nil {
		otherRegion = max(0, e.OtherRegion.AsApproximateFloat64())
	}
	if e.OtherCloud != nil {
		otherCloud = max(0, e.OtherCloud.AsApproximateFloat64())
	}
	return otherRegion, otherCloud
}

// PurchaseController is the controllerName of AdmissionChecks that buy a workload's nodes.
const PurchaseController = "elasticai.io/machines"

// PurchaseLabel is on nodes that were bought for a workload, with a value of each purchase; its pods select them by it.
const PurchaseLabel = "elasticai.io/machines"

// What a job says of the time and money that its nodes may take, by annotations. They count from before its quota is
// reserved.
const (
	// DeadlineAnnotation is when it should be done, as in 2026-01-02T15:04:05Z. Until it has to, it waits for spot machines
	// where that is expected to cost less.
	DeadlineAnnotation = "elasticai.io/deadline"
	// DelayPriceAnnotation is what an hour until its end is worth, in US dollars, as in 12.50.
	DelayPriceAnnotation = "elasticai.io/delay-price"
	// CheckpointAnnotation is how often it saves its work, as in 30m; never unless set.
	CheckpointAnnotation = "elasticai.io/checkpoint"
	// InputSizeAnnotation is how much it reads when it starts, as in 500Gi, and InputRegionAnnotation where that lies, as in
	// aws/us-east-1. Nodes elsewhere count as dearer by what that costs. What cannot be read is reported and does not count.
	InputSizeAnnotation   = "elasticai.io/input-size"
	InputRegionAnnotation = "elasticai.io/input-region"
)

// PriceAnnotation is on pods, and in their workload's status, with what all nodes of the purchase that they are on cost an
// hour, in US dollars.
const PriceAnnotation = "elasticai.io/price-per-hour"

// BoughtAtAnnotation is beside PriceAnnotation, with when the first of these nodes was ordered, as in 2026-01-02T15:04:05Z: they are paid for
// from then on, and not from when the workload starts. Nodes that another workload had before are not ordered.
const BoughtAtAnnotation = "elasticai.io/bought-at"

// ReasonMachineLost is the reason of the eviction of a workload one of whose bought nodes is gone. The message of a check that
// wants it begins with it.
const ReasonMachineLost = "MachineLost"

// ReasonBackToSpot is the reason of the eviction of a workload that ran on machines on demand and goes on on spot machines. The
// message of a check that wants it begins with it.
const ReasonBackToSpot = "BackToSpot"

// ReasonOnDemand is the reason of the eviction of a workload that was to have spot machines and has waited for them long enough, so that
// it gets another flavor, whose machines are on demand. The message of a check that wants it begins with it.
const ReasonOnDemand = "OnDemand"

// usualMoves is how often jobs are moved where nobody says, as in the figures of docs/benchmarks.md.
const usualMoves = 4

// Moves is how often a job may be moved from machines on demand to spot machines of the flavor.
func (s *CloudOfferSpec) Moves() int {
	switch {
	case s.NodeClass() == nil:
		return 0
	case s.MovesToSpot == nil:
		return usualMoves
	}
	return max(0, int(*s.MovesToSpot))
}

// CardResource is what the cards of the machines are called in quotas.
func (s *CloudOfferSpec) CardResource() string { return cmp.Or(s.Resource, "nvidia.com/gpu") }

// Cluster is the MultiKueueCluster that the prices are of; "": they are of a flavor.
func (s *CloudOfferSpec) Cluster() string {
	if s.Via == nil {
		return ""
	}
	return s.Via.Cluster
}

// ProvisioningClass is that of the requests by which nodes come; "": they come otherwise.
func (s *CloudOfferSpec) ProvisioningClass() string {
	if s.Via == nil {
		return ""
	}
	return s.Via.ProvisioningClass
}

// NodeClass is what nodes are made of; nil: none are made here.
func (s *CloudOfferSpec) NodeClass() *NodeClass {
	if s.Via == nil {
		return nil
	}
	return s.Via.NodeClass
}

// Via says how nodes are bought.
//
// +kubebuilder:validation:XValidation:rule="(has(self.nodeClass) ? 1 : 0) + (has(self.cluster) ? 1 : 0) + (has(self.provisioningClass) ? 1 : 0) == 1",message="say one of nodeClass, provisioningClass and cluster"
type Via struct {
	// NodeClass has Karpenter make NodeClaims of this class: exactly those that a workload needs, in no NodePool.
	NodeClass *NodeClass `json:"nodeClass,omitempty"`
	// ProvisioningClass says that cluster-autoscaler makes the nodes, by ProvisioningRequests of this class, for ClusterQueues that have the
	// check kueue.x-k8s.io/provisioning-request on the flavor. What comes of each request is learned of all places that match.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ProvisioningClass string `json:"provisioningClass,omitempty"`
	// Cluster is the MultiKueueCluster whose nodes are bought. The dispatcher elasticai.io/cheapest nominates clusters for a
	// job in the order of what they are expected to cost it; those without a CloudOffer cost nothing more.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
	// ZoneLabel is the node label that has the zones of the price table. On AWS, whose tables may have zone ids, that is
	// topology.k8s.aws/zone-id.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:default="topology.kubernetes.io/zone"
	ZoneLabel string `json:"zoneLabel,omitempty"`
	// ExpireAfter is when Karpenter deletes a node whatever runs on it, should nobody have done so before: the end of what a
	// mistake can cost. It must be longer than any job.
	//
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="168h"
	ExpireAfter string `json:"expireAfter,omitempty"`
}

// NodeClass names an object with what a cloud must know to make a node, such as an EC2NodeClass.
type NodeClass struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^/]*$`
	Group string `json:"group"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PriceTable is CSV with a header, one line for each machine that is sold at a place. Columns: cloud, region, zone,
// instance_type, gpu, gpu_count, price_usd_hour (on demand) and spot_usd_hour; others may be there.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMap) != has(self.inline)",message="say either configMap or inline"
type PriceTable struct {
	// ConfigMap in elastic-queue's namespace that has the table.
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
	// Inline is the table itself.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Inline string `json:"inline,omitempty"`
}

// ConfigMapKey is one entry of a ConfigMap.
type ConfigMapKey struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default="prices.csv"
	Key string `json:"key,omitempty"`
}

// CapacityType is how machines are bought.
//
// +kubebuilder:validation:Enum=OnDemand;Spot
type CapacityType string

// How machines are bought.
const (
	OnDemand CapacityType = "OnDemand"
	Spot     CapacityType = "Spot"
)

// Match says which machines are meant. What is not set does not matter.
type Match struct {
	// Clouds may be names that a price table may not use otherwise: one of a cloud that is not known is taken for a slip.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	Clouds []string `json:"clouds,omitempty"`
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	Regions []string `json:"regions,omitempty"`
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	InstanceTypes []string `json:"instanceTypes,omitempty"`
	// GPUs are models of cards as the table's column gpu names them.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	GPUs         []string     `json:"gpus,omitempty"`
	CapacityType CapacityType `json:"capacityType,omitempty"`
}

// Priced is the condition of a CloudOffer: whether the flavor has a price, and if not, why.
const Priced = "Priced"

// Reasons of the Priced condition.
const (
	ReasonPriced         = "Priced"
	ReasonRowsLeftOut    = "RowsLeftOut"    // there is a price, and rows of the table could not be read
	ReasonNoTable        = "NoTable"        // the ConfigMap, or its entry, is not there
	ReasonInvalid        = "Invalid"        // the table cannot be read, or a field is wrong
	ReasonNothingMatches = "NothingMatches" // no machine of the table is meant
	ReasonNoFlavor       = "NoFlavor"       // no ResourceFlavor has its name
	ReasonNoCluster      = "NoCluster"      // there is no MultiKueueCluster as via.cluster says
)

// CloudOfferStatus is what came of it.
type CloudOfferStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Offers is how many machines at places are meant.
	Offers int32 `json:"offers,omitempty"`
	// Cheapest is the one that the price is of.
	Cheapest *Sale `json:"cheapest,omitempty"`
	// PricePerHour of one unit of the resource, in US dollars, as in 11.25; empty: it has none.
	PricePerHour string `json:"pricePerHour,omitempty"`
	// LossesPerHour and StartUp are those that the queue reckons with.
	LossesPerHour string          `json:"lossesPerHour,omitempty"`
	StartUp       metav1.Duration `json:"startUp,omitempty"`
	// Regions are where machines can be had, with the cheapest of each; with via of each size, but for those that cost as much as a
	// larger one. Of many, the cheapest. The queue reckons with the one that costs a job least.
	//
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	Regions []RegionPrice `json:"regions,omitempty"`
	// Largest is what a pod may ask of a machine, with via: of those that are meant, whether or not they can be had now, the ones of
	// which no other has more of everything. A pod that fits on none of them is sent to another flavor. CPUs and memory are nine
	// tenths of what the table says, and left out where it does not say.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Largest []corev1.ResourceList `json:"largest,omitempty"`
	// RowsLeftOut is how many rows of the table could not be read, and RowProblems what was wrong with the first.
	RowsLeftOut int32 `json:"rowsLeftOut,omitempty"`
	// +listType=atomic
	RowProblems []string `json:"rowProblems,omitempty"`
	// ClosedUntil is when the first of the places opens again, where none of them sells machines now.
	ClosedUntil *metav1.Time `json:"closedUntil,omitempty"`
	// Places are those where machines were bought, or could not be, and what was learned there; of many the last.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Places []PlaceStatus `json:"places,omitempty"`
}

// RegionPrice is what the cheapest machines of a region, or of one size there, cost.
type RegionPrice struct {
	Cloud  string `json:"cloud"`
	Region string `json:"region"`
	// PricePerHour of one unit of the resource.
	PricePerHour string `json:"pricePerHour"`
	// GPUs is how many of them a machine has, where one is bought as a whole for a job (via).
	GPUs          string          `json:"gpus,omitempty"`
	LossesPerHour string          `json:"lossesPerHour,omitempty"`
	StartUp       metav1.Duration `json:"startUp,omitempty"`
}

// PlaceStatus is what was learned of a place by all workloads that bought there.
type PlaceStatus struct {
	Cloud        string       `json:"cloud"`
	Region       string       `json:"region"`
	Zone         string       `json:"zone,omitempty"`
	InstanceType string       `json:"instanceType"`
	CapacityType CapacityType `json:"capacityType"`
	// PricePerHour is what a machine costs there by the table now, in US dollars; empty: the table does not sell it any more.
	PricePerHour string `json:"pricePerHour,omitempty"`
	// Obtainable says that machines could be had when that was last seen.
	Obtainable bool        `json:"obtainable"`
	LastSeen   metav1.Time `json:"lastSeen"`
	// Since is when Obtainable last changed, as far as is known.
	Since metav1.Time `json:"since"`
	// ClosedUntil is until when nobody tries there who wants as many machines as ClosedFor. It is longer after each failure.
	ClosedUntil *metav1.Time `json:"closedUntil,omitempty"`
	ClosedFor   int32        `json:"closedFor,omitempty"`
	Failures    int32        `json:"failures,omitempty"`
	// StartUp is how long machines took until they were registered, a moving mean.
	StartUp *metav1.Duration `json:"startUp,omitempty"`
	// LossesPerHour that a machine is expected to have in a day there.
	LossesPerHour string `json:"lossesPerHour,omitempty"`
	// History is what these are reckoned from: for how long machines could be had and could not, and how often that changed.
	History PlaceHistory `json:"history,omitempty"`
}

// PlaceHistory are decimal numbers. Spans are hours weighted by how likely a change was in them; the older, the less all
// of it counts.
type PlaceHistory struct {
	UpHours   string `json:"upHours,omitempty"`
	DownHours string `json:"downHours,omitempty"`
	UpSpan    string `json:"upSpan,omitempty"`
	DownSpan  string `json:"downSpan,omitempty"`
	Losses    string `json:"losses,omitempty"`
	Returns   string `json:"returns,omitempty"`
}

// Sale is a machine that is sold at a place.
type Sale struct {
	Cloud        string       `json:"cloud"`
	Region       string       `json:"region"`
	Zone         string       `json:"zone,omitempty"`
	InstanceType string       `json:"instanceType"`
	CapacityType CapacityType `json:"capacityType"`
	// GPUs is how many cards it has; shares of a card are less than 1.
	GPUs         string `json:"gpus"`
	PricePerHour string `json:"pricePerHour"`
}
