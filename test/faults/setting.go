package faults

import (
	"fmt"
	"math/rand/v2"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

const namespace = "team"

// Setting is what a world is made of. The seed chooses it.
type Setting struct {
	// Cards: jobs ask for shares of cards, and the GPU scheduler binds their pods.
	Cards bool
	// Fair sharing between the queues.
	Fair bool
	// PodsReady evicts workloads whose pods do not become ready in time.
	PodsReady bool
	// TwoLeaders: it happens that a process goes on although another one leads.
	TwoLeaders bool
	// Policies: a QueuePolicy has the first queue keep a budget, backfill, and wait before it preempts.
	Policies bool
	// MostJobs that are submitted.
	MostJobs int
	Nodes    int
	Queues   []queueSetting
}

type queueSetting struct {
	Name, Cohort string
	Nominal      int
	Borrowing    int // limit; -1: none
	Lending      int // limit; -1: none
	Strict       bool
	Reclaim      kueue.PreemptionPolicy
	Within       kueue.PreemptionPolicy
}

func newSetting(seed uint64) Setting {
	r := rand.New(rand.NewPCG(seed, 0x0a11))
	s := Setting{Cards: r.IntN(2) == 0, Fair: r.IntN(4) == 0, PodsReady: r.IntN(4) == 0, MostJobs: 4 + r.IntN(8), Nodes: 2 + r.IntN(2)}
	s.TwoLeaders = r.IntN(6) == 0
	unit := 1
	if s.Cards {
		unit = 50
	}
	for i := range 1 + r.IntN(3) {
		q := queueSetting{Name: fmt.Sprintf("q%d", i), Nominal: unit * (2 + r.IntN(4)), Borrowing: -1, Lending: -1, Strict: r.IntN(3) == 0}
		if r.IntN(4) > 0 {
			q.Cohort = []string{"org", "unit"}[r.IntN(2)]
			if r.IntN(3) == 0 {
				q.Borrowing = unit * r.IntN(4)
			}
			if r.IntN(3) == 0 {
				q.Lending = unit * r.IntN(3)
			}
		}
		policies := []kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny}
		q.Reclaim, q.Within = policies[r.IntN(3)], policies[r.IntN(2)]
		s.Queues = append(s.Queues, q)
	}
	s.Policies = r.IntN(3) == 0
	return s
}

func (s Setting) queueNames() []string {
	var names []string
	for _, q := range s.Queues {
		names = append(names, q.Name)
	}
	return names
}

// resource that quota counts.
func (s Setting) resource() corev1.ResourceName {
	if s.Cards {
		return egpu.ResourceCore
	}
	return corev1.ResourceCPU
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func optional(n int) *resource.Quantity {
	if n < 0 {
		return nil
	}
	return ptr.To(quantity(n))
}

// objects that are there from the start.
func (s Setting) objects() []client.Object {
	list := []client.Object{
		named(&corev1.Namespace{}, namespace), named(&kueue.ResourceFlavor{}, "default"),
		named(&kueue.Cohort{}, "org"),
		named(&kueue.Cohort{Spec: kueue.CohortSpec{ParentName: "org"}}, "unit"),
	}
	for i := range 3 {
		list = append(list, named(&kueue.WorkloadPriorityClass{Value: int32(i)}, fmt.Sprintf("p%d", i)))
	}
	for _, q := range s.Queues {
		list = append(list, s.clusterQueue(q))
		lq := named(&kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(q.Name)}}, q.Name)
		lq.Namespace = namespace
		list = append(list, lq)
	}
	for i := range s.Nodes {
		list = append(list, s.node(fmt.Sprintf("n%d", i))...)
	}
	if s.Policies {
		list = append(list, s.policy())
	}
	for _, obj := range list {
		switch obj.(type) {
		case *kueue.ClusterQueue, *kueue.ResourceFlavor: // as the webhook has them
			obj.SetFinalizers([]string{kueue.ResourceInUseFinalizerName})
		}
	}
	return list
}

func (s Setting) clusterQueue(q queueSetting) *kueue.ClusterQueue {
	cq := named(&kueue.ClusterQueue{}, q.Name)
	cq.Spec.CohortName = kueue.CohortReference(q.Cohort)
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.QueueingStrategy = kueue.BestEffortFIFO
	if q.Strict {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	}
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
		ReclaimWithinCohort: q.Reclaim, WithinClusterQueue: q.Within,
		BorrowWithinCohort: &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyNever},
	}
	quota := kueue.ResourceQuota{Name: s.resource(), NominalQuota: quantity(q.Nominal)}
	if q.Cohort != "" {
		quota.BorrowingLimit, quota.LendingLimit = optional(q.Borrowing), optional(q.Lending)
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{s.resource()},
		Flavors:          []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{quota}}},
	}}
	return cq
}

// policy of the first queue. Its budget is never spent: what runs is counted, and nobody waits for another day.
func (s Setting) policy() *queuepolicy.QueuePolicy {
	p := named(&queuepolicy.QueuePolicy{}, "policy")
	p.Spec = queuepolicy.QueuePolicySpec{
		TargetRefs: []queuepolicy.TargetRef{{Kind: queuepolicy.KindClusterQueue, Name: s.Queues[0].Name}},
		Preemption: &queuepolicy.Preemption{Delay: ptr.To(queuepolicy.Duration("30s"))},
		Backfill:   &queuepolicy.Backfill{Strategy: queuepolicy.BackfillEASY, RunTime: ptr.To(queuepolicy.Duration("10m"))},
		Budgets: []queuepolicy.Budget{{
			Period: queuepolicy.PeriodDay, Amount: resource.MustParse("1000000"), Currency: "EUR",
			Rates: []queuepolicy.Rate{{Resource: string(s.resource()), PerHour: resource.MustParse("1")}},
		}},
	}
	return p
}

// ordersStrictly says that a queue lets nobody pass its blocked head, or those alone that cannot delay it.
func (s Setting) ordersStrictly(q queueSetting) bool {
	return q.Strict || s.Policies && q.Name == s.Queues[0].Name
}

// cardsPerNode of a world with cards.
const cardsPerNode = 2

// node with its cards.
func (s Setting) node(name string) []client.Object {
	n := named(&corev1.Node{}, name)
	n.Labels = map[string]string{corev1.LabelHostname: name}
	n.Status.Allocatable = corev1.ResourceList{"cpu": quantity(64), "memory": resource.MustParse("256Gi"), "pods": quantity(110)}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if !s.Cards {
		return []client.Object{n}
	}
	n.Status.Allocatable[egpu.ResourceCore] = quantity(100 * cardsPerNode)
	list := []client.Object{n}
	for i := range cardsPerNode {
		g := named(&egpu.GPU{Spec: egpu.GPUSpec{NodeName: name, Index: i, Model: "T4", Memory: 16000}}, fmt.Sprintf("%s-%d", name, i))
		list = append(list, g)
	}
	return list
}

// job of a user, suspended as the webhook has it.
func (s Setting) job(name, queue string, priority, pods, size int) *batchv1.Job {
	job := named(&batchv1.Job{}, name)
	job.Namespace = namespace
	job.Labels = map[string]string{kinds.QueueNameLabel: queue, kinds.PriorityClassLabel: fmt.Sprintf("p%d", priority)}
	job.Spec.Parallelism, job.Spec.Completions, job.Spec.Suspend = ptr.To(int32(pods)), ptr.To(int32(pods)), ptr.To(true)
	asks := corev1.ResourceList{s.resource(): quantity(size)}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks},
	}}}
	return job
}

func named[T client.Object](obj T, name string) T {
	obj.SetName(name)
	return obj
}
