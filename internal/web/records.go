package web

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/job"
	"github.com/elastic-ai/elastic/internal/cli/queues"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// The kinds of records.
const (
	kindNodes    = "nodes"
	kindQueues   = "queues"
	kindCohorts  = "cohorts"
	kindJobs     = "jobs"
	kindProblems = "problems"
)

// nodeRecord is a node with its cards.
type nodeRecord struct {
	Name string `json:"name"`
	// Ready is false for a node that is lost; Cordoned ones take no new pods.
	Ready    bool         `json:"ready"`
	Cordoned bool         `json:"cordoned,omitempty"`
	Model    string       `json:"model,omitempty"`
	Cards    []cardRecord `json:"cards"`
}

// cardRecord is a card with the shares of it. Core and load are in percent, memory in MiB.
type cardRecord struct {
	Name    string        `json:"name"`
	Index   int           `json:"index"`
	Model   string        `json:"model,omitempty"`
	State   string        `json:"state"`
	Message string        `json:"message,omitempty"`
	Memory  int64         `json:"memory"`
	Load    *int          `json:"load,omitempty"`
	Power   int           `json:"power,omitempty"`
	Shares  []shareRecord `json:"shares,omitempty"`
	// Processes that the node's agent sees on the card.
	Processes []egpu.GPUProcess `json:"processes,omitempty"`
}

// shareRecord is what a pod has of a card, and whose it is where that may be seen.
type shareRecord struct {
	Pod      string `json:"pod"`
	Core     int64  `json:"core"`
	Memory   int64  `json:"memory"`
	Queue    string `json:"queue,omitempty"`
	Workload string `json:"workload,omitempty"`
}

// queueRecord is a ClusterQueue, with amounts as numbers.
type queueRecord struct {
	queues.Queue
	Quotas []quotaRecord `json:"quotas"`
}

type quotaRecord struct {
	Flavor   string   `json:"flavor"`
	Resource string   `json:"resource"`
	Nominal  float64  `json:"nominal"`
	Used     float64  `json:"used"`
	Borrowed float64  `json:"borrowed"`
	Lends    *float64 `json:"lends,omitempty"`   // at most; absent is all
	Borrows  *float64 `json:"borrows,omitempty"` // at most; absent is all
}

// cohortRecord is a Cohort with quota of its own.
type cohortRecord struct {
	Name   string        `json:"name"`
	Parent string        `json:"parent,omitempty"`
	Share  int64         `json:"share,omitempty"`
	Quotas []quotaRecord `json:"quotas"`
}

// jobRecord is a Workload and the job it was made for. Times are in seconds.
type jobRecord struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of the Workload
	Kind      string `json:"kind,omitempty"`
	Job       string `json:"job,omitempty"`
	Local     string `json:"local"`
	Queue     string `json:"queue,omitempty"` // absent where no LocalQueue leads to one
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	Priority  int32  `json:"priority"`
	Class     string `json:"class,omitempty"`
	Created   int64  `json:"created"`
	Since     int64  `json:"since"`
	// Admitted is when it last started, Ends when it has to end at the latest.
	Admitted int64   `json:"admitted,omitempty"`
	Ends     int64   `json:"ends,omitempty"`
	Pods     int32   `json:"pods"`
	Cards    float64 `json:"cards"`
	Largest  float64 `json:"largest,omitempty"` // cards of one pod
	Evicted  int32   `json:"evicted,omitempty"`
	// PricePerHour is what the nodes cost that it has and that were bought for it, and Paid what was paid for it before it was admitted: in earlier
	// runs, and for nodes that started. US dollars; absent: none were.
	PricePerHour float64 `json:"pricePerHour,omitempty"`
	Paid         float64 `json:"paid,omitempty"`
}

// problemRecord is something the server cannot read.
type problemRecord struct {
	What    string `json:"what"`
	Denied  bool   `json:"denied,omitempty"`
	Message string `json:"message"`
}

// States of a job, as the page shows them.
const (
	stateWaiting  = "Waiting"
	stateHeld     = "Held back"
	stateReserved = "Starting"
	stateRunning  = "Running"
	stateEvicting = "Stopping"
	stateFinished = "Finished"
	stateFailed   = "Failed"
)

// longestMessage of a workload in the list; the job's own page has all of it.
const longestMessage = 160

func jobOf(wl *kueue.Workload) jobRecord {
	r := jobRecord{
		Namespace: wl.Namespace, Name: wl.Name, Local: string(wl.Spec.QueueName), Priority: ptr.Deref(wl.Spec.Priority, 0),
		Created: wl.CreationTimestamp.Unix(),
	}
	if owner := controllerOf(wl); owner != nil {
		r.Kind, r.Job = strings.ToLower(owner.Kind), owner.Name
	}
	if wl.Spec.PriorityClassRef != nil {
		r.Class = wl.Spec.PriorityClassRef.Name
	}
	if wl.Status.Admission != nil {
		r.Queue = string(wl.Status.Admission.ClusterQueue)
	}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		each := job.Cards(&set.Template.Spec)
		r.Pods += set.Count
		r.Cards += float64(set.Count) * each
		r.Largest = max(r.Largest, each)
	}
	if stats := wl.Status.SchedulingStats; stats != nil {
		for _, e := range stats.Evictions {
			r.Evicted += e.Count
		}
	}
	var since time.Time
	r.State, r.Reason, r.Message, since = standing(wl, wl.CreationTimestamp.Time)
	if len(r.Message) > longestMessage {
		r.Message = strings.ToValidUTF8(r.Message[:longestMessage], "") + "…"
	}
	r.Since = since.Unix()
	r.PricePerHour, r.Paid = job.Price(wl)
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		r.Admitted = c.LastTransitionTime.Unix()
		if longest := wl.Spec.MaximumExecutionTimeSeconds; longest != nil {
			r.Ends = r.Admitted + int64(*longest)
		}
	}
	return r
}

// controllerOf is the job of a workload; pod groups have several owners and no controller.
func controllerOf(wl *kueue.Workload) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(wl); owner != nil || len(wl.OwnerReferences) == 0 {
		return owner
	}
	return &wl.OwnerReferences[0]
}

// standing is a workload's state by its conditions, why, and since when.
func standing(wl *kueue.Workload, created time.Time) (state, reason, message string, since time.Time) {
	find := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kind); c != nil && c.Status == status {
			return c
		}
		return nil
	}
	of := func(state string, c *metav1.Condition) (string, string, string, time.Time) {
		return state, c.Reason, c.Message, c.LastTransitionTime.Time
	}
	if c := find(kueue.WorkloadFinished, metav1.ConditionTrue); c != nil {
		if c.Reason == kueue.WorkloadFinishedReasonFailed {
			return of(stateFailed, c)
		}
		return of(stateFinished, c)
	}
	reserved := find(kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
	if c := find(kueue.WorkloadEvicted, metav1.ConditionTrue); c != nil && reserved != nil {
		return of(stateEvicting, c)
	}
	if c := find(kueue.WorkloadAdmitted, metav1.ConditionTrue); c != nil {
		return of(stateRunning, c)
	}
	if reserved != nil {
		return of(stateReserved, reserved)
	}
	waiting := &metav1.Condition{LastTransitionTime: metav1.NewTime(created)}
	if c := find(kueue.WorkloadQuotaReserved, metav1.ConditionFalse); c != nil {
		waiting = c
	}
	if !ptr.Deref(wl.Spec.Active, true) {
		return of(stateHeld, &metav1.Condition{Reason: "Deactivated", Message: cmp.Or(waiting.Message, "suspended"), LastTransitionTime: waiting.LastTransitionTime})
	}
	return of(stateWaiting, waiting)
}

func queueOf(cq *kueue.ClusterQueue) queueRecord {
	r := queueRecord{Queue: queues.Describe(cq, nil), Quotas: []quotaRecord{}}
	r.Queue.Quotas, r.LocalQueues = nil, []string{}
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, resource := range flavor.Resources {
				q := quotaOf(flavor.Name, resource)
				used, borrowed := queues.Usage(cq, flavor.Name, resource.Name)
				q.Used, q.Borrowed = used.AsApproximateFloat64(), borrowed.AsApproximateFloat64()
				r.Quotas = append(r.Quotas, q)
			}
		}
	}
	return r
}

func cohortOf(c *kueue.Cohort) cohortRecord {
	r := cohortRecord{Name: c.Name, Parent: string(c.Spec.ParentName), Quotas: []quotaRecord{}}
	if c.Status.FairSharing != nil {
		r.Share = c.Status.FairSharing.WeightedShare
	}
	for _, group := range c.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, resource := range flavor.Resources {
				r.Quotas = append(r.Quotas, quotaOf(flavor.Name, resource))
			}
		}
	}
	return r
}

func quotaOf(flavor kueue.ResourceFlavorReference, r kueue.ResourceQuota) quotaRecord {
	q := quotaRecord{Flavor: string(flavor), Resource: string(r.Name), Nominal: r.NominalQuota.AsApproximateFloat64()}
	if r.LendingLimit != nil {
		q.Lends = ptr.To(r.LendingLimit.AsApproximateFloat64())
	}
	if r.BorrowingLimit != nil {
		q.Borrows = ptr.To(r.BorrowingLimit.AsApproximateFloat64())
	}
	return q
}

func nodeOf(n *corev1.Node) nodeRecord {
	r := nodeRecord{Name: n.Name, Cordoned: n.Spec.Unschedulable, Model: n.Labels[modelLabel]}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			r.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return r
}

// modelLabel of a node says which cards it has.
const modelLabel = "elasticgpu.io/gpu-model"

func cardOf(g *egpu.GPU) cardRecord {
	r := cardRecord{Name: g.Name, Index: g.Spec.Index, Model: g.Spec.Model, State: cmp.Or(g.Status.State, egpu.GPUReady), Message: g.Status.Message, Memory: g.Spec.Memory, Processes: g.Status.Processes}
	if g.Status.Load != nil {
		r.Load, r.Power = &g.Status.Load.Core, g.Status.Load.Power
	}
	for pod, held := range g.Status.Allocated {
		if held == nil {
			continue
		}
		s := shareRecord{Pod: pod}
		for _, container := range held.Containers {
			s.Core += container.Resource.Name(egpu.ResourceCore, "").Value()
			s.Memory += container.Resource.Name(egpu.ResourceMemory, "").Value()
		}
		r.Shares = append(r.Shares, s)
	}
	slices.SortFunc(r.Shares, func(a, b shareRecord) int { return strings.Compare(a.Pod, b.Pod) })
	return r
}

// podOwner is whose a pod is: the queue it was admitted from and its workload.
type podOwner struct{ queue, workload string }

func ownerOf(pod *metav1.PartialObjectMetadata) podOwner {
	return podOwner{queue: pod.Labels[kueuelabels.ClusterQueue], workload: pod.Annotations[kueue.WorkloadAnnotation]}
}

func encode(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(err) // records have only types that can be encoded
	}
	return data
}
