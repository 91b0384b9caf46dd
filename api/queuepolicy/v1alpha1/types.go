package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of QueuePolicy.
var GroupVersion = schema.GroupVersion{Group: "elasticai.io", Version: "v1alpha1"}

// What a job says of itself, by annotations.
const (
	// NeverPreemptAnnotation, "true": nobody is to preempt it. It counts where a policy honours it
	// (preemption.neverPreempt), and from before its quota is reserved.
	NeverPreemptAnnotation = "elasticai.io/never-preempt"
	// CheckpointedAtAnnotation is when it last saved its work, as in 2026-01-02T15:04:05Z: of equal victims the one
	// that loses least goes.
	CheckpointedAtAnnotation = "elasticai.io/checkpointed-at"
	// AfterAnnotation names the jobs that have to end before it is considered, and how, as in
	// "ok job/prepare, any job/clean"; of another namespace as in "ok job/data/prepare"; indexes of an indexed Job as in
	// "ok job/prepare[3]" or "ok job/prepare[0-9]".
	AfterAnnotation = "elasticai.io/after"
	// AfterMetAnnotation is what of that has come true. The queue writes it on the workload, so that it stays true when
	// the jobs are gone.
	AfterMetAnnotation = "elasticai.io/after-met"
	// EndedIndexesAnnotation says, on the workload of an indexed Job, how those of its indexes ended that others wait for, as in
	// "ok 0-3,5 notok 4". The queue writes it.
	EndedIndexesAnnotation = "elasticai.io/ended-indexes"
	// ArrayLabel is, on jobs that "elastic submit --array" made, the name of the array.
	ArrayLabel = "elasticai.io/array"
	// PodsAnnotation is how many pods it has at least and at most, as in "2-16", or "Worker=2-16" of one of its pod sets: it
	// starts with the least, and grows into idle quota where a policy lets it (elasticJobs).
	PodsAnnotation = "elasticai.io/pods"
	// ExtraOfAnnotation names, on a workload of pods beyond a job's least, the workload of the job.
	ExtraOfAnnotation = "elasticai.io/extra-of"
	// AvoidNodesAnnotation names, on a pod, nodes that are reserved for others when it could still run, with commas between
	// them. It stands there beside AvoidNodesGate, until that is removed.
	AvoidNodesAnnotation = "elasticai.io/avoid-nodes"
	// AvoidNodesGate holds such a pod until its node affinity says so.
	AvoidNodesGate = "elasticai.io/avoid-nodes"
	// FlavorsAnnotation names, on a workload, the only ResourceFlavors that will do, with commas between them.
	FlavorsAnnotation = "elasticai.io/flavors"
)

// AddToScheme makes QueuePolicy and BudgetAccount known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &QueuePolicy{}, &QueuePolicyList{}, &BudgetAccount{}, &BudgetAccountList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// QueuePolicy says how its targets' queues behave beyond what Kueue's objects say. A field that no
// policy sets is as elastic-queue's configuration says, and without that as in Kueue.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type QueuePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   QueuePolicySpec   `json:"spec"`
	Status QueuePolicyStatus `json:"status,omitempty"`
}

// QueuePolicyList is a list of QueuePolicies.
//
// +kubebuilder:object:root=true
type QueuePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []QueuePolicy `json:"items"`
}

// QueuePolicySpec is what a policy says, and of which queues.
//
// +kubebuilder:validation:XValidation:rule="has(self.preemption) || has(self.capacity) || has(self.order) || has(self.backfill) || has(self.quota) || has(self.dependencies) || has(self.budgets) || has(self.reservations) || has(self.defragmentation) || has(self.elasticJobs)",message="sets nothing: give it preemption, capacity, order, backfill, quota, dependencies, budgets, reservations, defragmentation or elasticJobs"
// +kubebuilder:validation:XValidation:rule="!has(self.capacity) || self.targetRefs.exists(t, t.kind == 'Cohort')",message="capacity is how a tree of Cohorts is shared out: target its root Cohort",fieldPath=".capacity"
// +kubebuilder:validation:XValidation:rule="!has(self.reservations) || self.targetRefs.exists(t, t.kind != 'Cohort')",message="reservations are for queues: target a ClusterQueue or a LocalQueue",fieldPath=".reservations"
// +kubebuilder:validation:XValidation:rule="!has(self.reservations) || self.reservations.all(r, !has(r.job)) || self.targetRefs.all(t, t.kind == 'LocalQueue')",message="job is one of a LocalQueue's namespace: target that LocalQueue",fieldPath=".reservations"
type QueuePolicySpec struct {
	// TargetRefs are the objects that the policy is about: it holds for them and for what is below them, unless a
	// nearer policy sets the same field. Of two policies with the same target, the older one counts.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t.kind == u.kind && t.name == u.name && (has(t.__namespace__) ? t.__namespace__ : '') == (has(u.__namespace__) ? u.__namespace__ : '')))",message="the same target twice"
	TargetRefs []TargetRef `json:"targetRefs"`

	// Preemption in time.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Capacity is how a tree of Cohorts hands out what can be borrowed: first come, first served (FIFO), by the
	// weighted dominant share of what is borrowed (DRF, Kueue's fair sharing), or by that of all that is used (MaxMin).
	// It is looked up at the root Cohort alone.
	Capacity Capacity `json:"capacity,omitempty"`
	// Order is who of a ClusterQueue's workloads of one priority goes first: who came first (Age), or who has used
	// least, in cards times execution time (LeastAttainedService). Where the queue preempts lower priorities, one that has
	// used much less may then preempt one that has used more. It is looked up at the ClusterQueue and above.
	Order Order `json:"order,omitempty"`
	// Backfill is whether workloads may pass the blocked head of a ClusterQueue, and how long they are taken to run.
	Backfill *Backfill `json:"backfill,omitempty"`
	// Quota is what a ClusterQueue's nominal quotas are: a share of what nodes have, or others at other times. It is looked
	// up at the ClusterQueue and above.
	Quota *Quota `json:"quota,omitempty"`
	// Dependencies is what jobs may wait for that come after others (annotation elasticai.io/after).
	Dependencies *Dependencies `json:"dependencies,omitempty"`
	// Budgets are what the workloads of a target may use in a period, all together: each target has its own, and those of a
	// LocalQueue, its ClusterQueue and its Cohorts count side by side. What was used is counted from when the policy comes.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +listType=map
	// +listMapKey=period
	Budgets []Budget `json:"budgets,omitempty"`
	// Reservations set quota or nodes aside for a target's workloads, or for one job of them, for a time that is known beforehand.
	// Nothing else starts on it that could still run then: who says how long it runs, and is over by then, does. Those of a
	// LocalQueue and its ClusterQueue count side by side.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Reservations []Reservation `json:"reservations,omitempty"`
	// Defragmentation lets workloads move to other nodes for one that quota allows, and that fits on no nodes as they are.
	// It is looked up at the ClusterQueue and above: of the one that waits, whose bounds count, and of those that move.
	Defragmentation *Defragmentation `json:"defragmentation,omitempty"`
	// ElasticJobs lets jobs that say how many pods they have at least and at most (annotation elasticai.io/pods) grow into
	// idle quota, and has them shrink before anyone is preempted.
	ElasticJobs *ElasticJobs `json:"elasticJobs,omitempty"`
}

// ElasticJobs is how jobs grow. What a job has beyond its least has the lowest priority there is: those who wait in its
// ClusterQueue take it back, which therefore has to preempt lower priorities (withinClusterQueue).
type ElasticJobs struct {
	// GrowAfter is how long pods that a job had to give up stay away: most jobs pay for each change of size.
	GrowAfter *Duration `json:"growAfter"`
}

// Defragmentation bounds what may move for one workload. Those that move are stopped, and start at once on other nodes,
// where that was tried before. One that has a higher priority, asks never to be preempted, or is swapped when it is
// preempted, stays.
type Defragmentation struct {
	// Moves is how many workloads may move for one.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Moves *int32 `json:"moves"`
	// LostWork is how much time of work they may lose, all together: since each started, or last saved its work
	// (annotation elasticai.io/checkpointed-at).
	LostWork *Duration `json:"lostWork"`
}

// Dependencies is what jobs may wait for.
type Dependencies struct {
	// Namespaces whose jobs those of the targets may wait for, beside their own: names, or * for all. Who may wait for a
	// job learns whether it exists, and how it ends.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$`
	// +listType=set
	Namespaces []string `json:"namespaces"`
}

// Quota makes nominal quotas follow the nodes and the hour. They are written to the ClusterQueue, so all that reads Kueue's objects
// sees them; what was declared comes back when no policy asks for this any more.
//
// +kubebuilder:validation:MinProperties=1
type Quota struct {
	// ShareOfNodes, in percent, makes the nominal quota of every resource that nodes have this share of what the nodes of
	// the flavor can allocate: nodes that are ready and not cordoned, with the flavor's labels and taints.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ShareOfNodes *int32 `json:"shareOfNodes,omitempty"`
	// Headroom, in percent of what the nodes have, is handed out to nobody: for DaemonSets, and for nodes that are lost.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	Headroom *int32 `json:"headroom,omitempty"`
	// Grace is how long what nodes had still counts, 10m unless set: the quota is the most that they had at any time
	// within it, so a node that goes and comes back changes nothing.
	Grace *Duration `json:"grace,omitempty"`
	// Windows are times at which quotas are others. Of windows that are open at once, the first in the list that names a
	// quota counts.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Windows []Window `json:"windows,omitempty"`
}

// Window is a time that comes again and again, and the quotas in it.
//
// +kubebuilder:validation:XValidation:rule="has(self.shareOfNodes) || has(self.quotas)",message="changes nothing: give it shareOfNodes or quotas"
type Window struct {
	// Name is for people.
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// Start is when it opens, as in a CronJob: minute, hour, day of the month, month, day of the week.
	//
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	Start string `json:"start"`
	// Duration is how long it stays open.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	Duration Duration `json:"duration"`
	// TimeZone is where the clock hangs, as in Europe/Berlin; UTC unless set.
	//
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// ShareOfNodes is in place of the one outside of windows, in percent.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ShareOfNodes *int32 `json:"shareOfNodes,omitempty"`
	// Quotas are nominal quotas while it is open.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=flavor
	// +listMapKey=resource
	Quotas []WindowQuota `json:"quotas,omitempty"`
}

// WindowQuota is one nominal quota in a window.
type WindowQuota struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Flavor string `json:"flavor"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Resource     string            `json:"resource"`
	NominalQuota resource.Quantity `json:"nominalQuota"`
}

// Backfill lets workloads pass the blocked head of a ClusterQueue if they cannot delay it.
//
// +kubebuilder:validation:MinProperties=1
type Backfill struct {
	// Strategy is EASY or None. With EASY the ClusterQueue is ordered strictly, whatever its queueingStrategy: a head that
	// does not fit gets a reservation for when enough of what runs has ended, and who comes after it starts ahead of it
	// only if it ends before that, or leaves enough for it. None is Kueue's behaviour. It is looked up at the ClusterQueue
	// and above.
	Strategy BackfillStrategy `json:"strategy,omitempty"`
	// RunTime is how long a workload is taken to run that does not say so itself (maximumExecutionTimeSeconds), and of
	// which nothing was learned. Nobody is stopped for it.
	RunTime *Duration `json:"runTime,omitempty"`
	// Quantile, in percent, learns run times from workloads of the same LocalQueue and with the same requests that
	// succeeded and still exist, five at least: with 90, nine of ten took no longer.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Quantile *int32 `json:"quantile,omitempty"`
}

// BackfillStrategy is how workloads may pass the blocked head of a queue.
//
// +kubebuilder:validation:Enum=EASY;None
type BackfillStrategy string

// The strategies.
const (
	BackfillEASY BackfillStrategy = "EASY"
	BackfillNone BackfillStrategy = "None"
)

// Order is who goes first among workloads of one priority.
//
// +kubebuilder:validation:Enum=Age;LeastAttainedService
type Order string

// The orders.
const (
	OrderAge                  Order = "Age"
	OrderLeastAttainedService Order = "LeastAttainedService"
)

// Capacity is how a tree of Cohorts is shared out.
//
// +kubebuilder:validation:Enum=FIFO;DRF;MaxMin
type Capacity string

// The capacity policies.
const (
	CapacityFIFO   Capacity = "FIFO"
	CapacityDRF    Capacity = "DRF"
	CapacityMaxMin Capacity = "MaxMin"
)

// TargetKind is a kind of object that policies are about.
//
// +kubebuilder:validation:Enum=Cohort;ClusterQueue;LocalQueue
type TargetKind string

// The kinds of targets.
const (
	KindCohort       TargetKind = "Cohort"
	KindClusterQueue TargetKind = "ClusterQueue"
	KindLocalQueue   TargetKind = "LocalQueue"
)

// TargetRef names an object that a policy is about.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'LocalQueue') == has(self.__namespace__)",message="a LocalQueue needs a namespace, and nothing else has one"
type TargetRef struct {
	Kind TargetKind `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of a LocalQueue.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// Preemption says when workloads preempt, and for how long they are not preempted. 0s is Kueue's behaviour.
type Preemption struct {
	// Delay is how long a workload waits, from its creation or its last eviction, before it preempts others. What
	// comes free meanwhile is reserved for it.
	Delay *Duration `json:"delay,omitempty"`
	// MinRuntime is how long a workload that got its quota is not preempted.
	MinRuntime *MinRuntime `json:"minRuntime,omitempty"`
	// Cooldown is how long a workload that another ClusterQueue preempted preempts nothing in other ClusterQueues. The
	// nominal quota of its own it reclaims all the same.
	Cooldown *Duration `json:"cooldown,omitempty"`
	// NeverPreempt says whether jobs that ask never to be preempted (annotation elasticai.io/never-preempt) get their way:
	// Honor or Ignore. Those of a ClusterQueue that do have together at most its nominal quota; their own ClusterQueue never
	// preempts them, and others only to get their nominal quota back where nothing else is left to preempt.
	NeverPreempt NeverPreempt `json:"neverPreempt,omitempty"`
}

// NeverPreempt is what becomes of jobs that ask never to be preempted.
//
// +kubebuilder:validation:Enum=Honor;Ignore
type NeverPreempt string

// What becomes of them; Ignore without a policy.
const (
	NeverPreemptHonor  NeverPreempt = "Honor"
	NeverPreemptIgnore NeverPreempt = "Ignore"
)

// MinRuntime is how long a workload is not preempted, by the rule that would allow it.
type MinRuntime struct {
	// WithinClusterQueue protects it from workloads of its own ClusterQueue.
	WithinClusterQueue *Duration `json:"withinClusterQueue,omitempty"`
	// Reclaim protects it from workloads that reclaim their ClusterQueue's nominal quota.
	Reclaim *Duration `json:"reclaim,omitempty"`
	// Borrowed protects it from workloads that would borrow what it uses: borrowWithinCohort, fair sharing.
	Borrowed *Duration `json:"borrowed,omitempty"`
}

// Duration is a time span as in Go: 90s, 10m, 36h.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="must be at least 0s and at most 720h"
type Duration string

// The conditions of a policy.
const (
	// Accepted says whether all of a policy is in force, and if not, why.
	Accepted = "Accepted"
	// BudgetsNearlySpent says whether more than warnAt of a budget is spent, and of which.
	BudgetsNearlySpent = "BudgetsNearlySpent"
	// ReservationsLacking says whether others have what is reserved who could still run when the reservation begins.
	ReservationsLacking = "ReservationsLacking"
)

// Reasons of the Accepted condition.
const (
	ReasonAccepted       = "Accepted"
	ReasonInvalid        = "Invalid"        // a value is wrong; the message names the field
	ReasonConflicted     = "Conflicted"     // an older policy has the same target
	ReasonTargetNotFound = "TargetNotFound" // a target does not exist
	ReasonNoEffect       = "NoEffect"       // a field means nothing at its targets
)

// QueuePolicyStatus says what of a policy is in force.
type QueuePolicyStatus struct {
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Targets are the policy's targets, in their order.
	//
	// +listType=atomic
	Targets []TargetStatus `json:"targets,omitempty"`
}

// TargetStatus is what is in force at a target.
type TargetStatus struct {
	// Target is its kind and name, as in Cohort/research or LocalQueue/vision/nightly.
	Target string `json:"target"`
	// Problem is why the policy does not count here; empty: it does.
	Problem string `json:"problem,omitempty"`
	// InForce are the values in force at the target, of whatever policy.
	//
	// +listType=atomic
	InForce []Value `json:"inForce,omitempty"`
}

// Value is what a field is set to, and where that comes from.
type Value struct {
	// Field is a path within the spec: preemption.delay.
	Field string `json:"field"`
	Value string `json:"value"`
	// Policy is the QueuePolicy that sets it, and From the target of that policy, as in Cohort/research.
	Policy string `json:"policy"`
	From   string `json:"from"`
}
