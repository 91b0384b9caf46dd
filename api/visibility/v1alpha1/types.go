package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The group, its version and its resources.
const (
	Group         = "visibility.elasticai.io"
	Version       = "v1alpha1"
	Explanations  = "explanations"
	Plans         = "plans"
	QuotaPlans    = "quotaplans"
	BudgetReports = "budgetreports"
)

// Explanation is why one workload is where it is. It has the workload's name.
type Explanation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	WorkloadStanding  `json:",inline"`
}

// Plan asks what would become of a workload, and is answered by its status.
type Plan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PlanSpec    `json:"spec"`
	Status            *PlanStatus `json:"status,omitempty"`
}

// PlanSpec is a workload that does not exist.
type PlanSpec struct {
	Workload kueue.WorkloadSpec `json:"workload"`
}

// PlanStatus is the answer.
type PlanStatus struct {
	// StartsNow: it would be admitted at once.
	StartsNow        bool `json:"startsNow"`
	WorkloadStanding `json:",inline"`
}

// QuotaPlan asks what would become of pending workloads with other quotas, and is answered by its status.
type QuotaPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              QuotaPlanSpec    `json:"spec"`
	Status            *QuotaPlanStatus `json:"status,omitempty"`
}

// QuotaPlanSpec is quotas that ClusterQueues do not have.
type QuotaPlanSpec struct {
	Quotas []PlannedQuota `json:"quotas"`
	// Within is how far the answer looks ahead; default 24h, at most 168h.
	Within metav1.Duration `json:"within,omitempty"`
}

// PlannedQuota is another nominal quota for what a ClusterQueue has one of.
type PlannedQuota struct {
	ClusterQueue string            `json:"clusterQueue"`
	Flavor       string            `json:"flavor"`
	Resource     string            `json:"resource"`
	Nominal      resource.Quantity `json:"nominal"`
}

// QuotaPlanStatus is the answer: nobody is preempted in it, and workloads run as long as is known of them.
type QuotaPlanStatus struct {
	// Pending is how many workloads were looked at, and Complete says that no more are pending, and that all that could start
	// was played through.
	Pending  int  `json:"pending"`
	Complete bool `json:"complete"`
	// StartNow and WouldStart are how many start in that time, as things are and with these quotas.
	StartNow   int `json:"startNow"`
	WouldStart int `json:"wouldStart"`
	// Sooner are those that would start sooner, or only so; Later are those that would start later, or not at all. At most
	// 500 each.
	Sooner []PlannedStart `json:"sooner,omitempty"`
	Later  []PlannedStart `json:"later,omitempty"`
}

// PlannedStart is a pending workload and when it starts as things are, and would start; absent: not in that time.
type PlannedStart struct {
	WorkloadRef `json:",inline"`
	StartsAt    *metav1.Time `json:"startsAt,omitempty"`
	WouldStart  *metav1.Time `json:"wouldStart,omitempty"`
}

// WorkloadStanding is where a workload stands in its queue, and why.
type WorkloadStanding struct {
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	LocalQueue   string `json:"localQueue,omitempty"`
	ClusterQueue string `json:"clusterQueue,omitempty"`

	// Position in its ClusterQueue, 1 is next; Ahead are the workloads before it, nearest last, and
	// at most ten.
	Position int           `json:"position,omitempty"`
	Ahead    []WorkloadRef `json:"ahead,omitempty"`
	// Order says in words what its position follows from, where the queue orders by more than priority and age.
	Order string `json:"order,omitempty"`
	// Backfill says in words what is reserved for the blocked head of its queue, and who may pass, where some may.
	Backfill string `json:"backfill,omitempty"`
	// Shares says in words which share its queue would have with it, where a tree of queues goes by shares.
	Shares string `json:"shares,omitempty"`
	// Moves says in words why nobody moves to other nodes for it, where its queue would have others move.
	Moves string `json:"moves,omitempty"`
	// Quota says in words when quotas change that it lacks, as QueuePolicies say.
	Quota string `json:"quota,omitempty"`
	// Cost says in words what its flavors are expected to cost, in the order in which they are tried, where their nodes
	// have prices.
	Cost string `json:"cost,omitempty"`
	// ExpectedCost is what it is expected to cost on the flavors that it would get, in US dollars, as in 12.50.
	ExpectedCost string `json:"expectedCost,omitempty"`

	Missing []Missing `json:"missing,omitempty"`
	// HeldBy are running workloads that use what is missing; PreemptionTargets are those that it
	// would preempt. At most ten each.
	HeldBy            []WorkloadRef `json:"heldBy,omitempty"`
	PreemptionTargets []WorkloadRef `json:"preemptionTargets,omitempty"`
	// Suggestions are what would let it in, in words.
	Suggestions []string `json:"suggestions,omitempty"`
	// StartsAt is an estimate, by the run times that are known.
	StartsAt *metav1.Time `json:"startsAt,omitempty"`

	// PodSets are the flavors and nodes it has, or would get.
	PodSets []PodSet `json:"podSets,omitempty"`
	// Devices are what counts by its ResourceClaims, for each pod.
	Devices []Device `json:"devices,omitempty"`
	// Checks are the admission checks it waits for, or has passed.
	Checks []Check `json:"checks,omitempty"`
	// Policies are what QueuePolicies say of its queue.
	Policies []PolicyValue `json:"policies,omitempty"`
}

// PolicyValue is what a QueuePolicy sets a field to.
type PolicyValue struct {
	Field string `json:"field"`
	Value string `json:"value"`
	// Policy is the QueuePolicy, and From its target, as in Cohort/research.
	Policy string `json:"policy"`
	From   string `json:"from"`
}

// Device is what devices count as in quota.
type Device struct {
	PodSet   string `json:"podSet"`
	Resource string `json:"resource"`
	Amount   string `json:"amount"`
	// From is what asks for them, in words.
	From string `json:"from"`
	// Instead is the resource of the pod that they replace.
	Instead string `json:"instead,omitempty"`
}

// Missing is an amount that is lacking, and at which level.
type Missing struct {
	PodSet   string `json:"podSet,omitempty"`
	Resource string `json:"resource,omitempty"`
	Flavor   string `json:"flavor,omitempty"`
	Amount   string `json:"amount,omitempty"`
	// ClusterQueue or Cohort whose quota is used up.
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Cohort       string `json:"cohort,omitempty"`
	Reason       string `json:"reason"`
}

// WorkloadRef is another workload. Its name and namespace are left out if the user may not see
// them.
type WorkloadRef struct {
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name,omitempty"`
	Job          string `json:"job,omitempty"` // kind and name, as in tfjob/mnist
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Priority     int64  `json:"priority"`
	// Rule that allows preempting it.
	Rule string `json:"rule,omitempty"`
	// CheckpointedAt is when it last saved its work, as it says itself; for preemption targets.
	CheckpointedAt *metav1.Time `json:"checkpointedAt,omitempty"`
}

// PodSet is where pods go.
type PodSet struct {
	Name    string            `json:"name"`
	Count   int32             `json:"count"`
	Flavors map[string]string `json:"flavors,omitempty"` // by resource
	Nodes   []Node            `json:"nodes,omitempty"`
}

// Node has a number of the pods, on these cards.
type Node struct {
	Name  string `json:"name"`
	Pods  int    `json:"pods"`
	Cards []int  `json:"cards,omitempty"`
}

// Check is an admission check.
type Check struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}
