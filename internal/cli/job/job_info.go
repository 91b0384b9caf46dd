package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// The status of a job. Suspended is not arena's: a user stopped the job.
const (
	Queuing   = "QUEUING"
	Pending   = "PENDING"
	Running   = "RUNNING"
	Succeeded = "SUCCEEDED"
	Failed    = "FAILED"
	Suspended = "SUSPENDED"
)

// NA is printed where there is no value.
const NA = "N/A"

// Info is a job as tables and JSON show it.
type Info struct {
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`
	Status    string  `json:"status"`
	Reason    string  `json:"reason,omitempty"`
	Queue     string  `json:"queue,omitempty"`
	Priority  string  `json:"priority,omitempty"`
	Trainer   string  `json:"trainer"`
	Type      string  `json:"type"`
	Seconds   int64   `json:"durationSeconds"`
	Requested float64 `json:"requestedGPUs"`
	// Allocated are the cards of its running pods; absent where none runs.
	Allocated *float64 `json:"allocatedGPUs,omitempty"`
	Nodes     []string `json:"nodes,omitempty"`
	// Pods is how many it has when all are created.
	Pods      int        `json:"pods"`
	Instances []Instance `json:"instances"`
	Created   time.Time  `json:"creationTimestamp"`
	// Cost is what nodes have cost that were bought for it, in all its runs, in US dollars; absent where none were.
	Cost *float64 `json:"costUSD,omitempty"`
}

// Instance is a pod of a job.
type Instance struct {
	Name      string  `json:"name"`
	Status    string  `json:"status"`
	Seconds   int64   `json:"ageSeconds"`
	Chief     bool    `json:"isChief"`
	Requested float64 `json:"requestedGPUs"`
	Node      string  `json:"node,omitempty"`
	Cards     string  `json:"cards,omitempty"`
}

// makers are the kinds between a job and its pods, by the job's row.
var makers = map[string][]schema.GroupVersionKind{
	"jobset.x-k8s.io/jobset":                   {{Group: "batch", Version: "v1", Kind: "Job"}},
	"trainer.kubeflow.org/trainjob":            {{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}, {Group: "batch", Version: "v1", Kind: "Job"}},
	"ray.io/rayjob":                            {{Group: "ray.io", Version: "v1", Kind: "RayCluster"}, {Group: "batch", Version: "v1", Kind: "Job"}},
	"ray.io/rayservice":                        {{Group: "ray.io", Version: "v1", Kind: "RayCluster"}},
	"kubeflow.org/mpijob":                      {{Group: "batch", Version: "v1", Kind: "Job"}},
	"deployment":                               {{Group: "apps", Version: "v1", Kind: "ReplicaSet"}},
	"leaderworkerset.x-k8s.io/leaderworkerset": {{Group: "apps", Version: "v1", Kind: "StatefulSet"}},
	"kubeflow.org/notebook":                    {{Group: "apps", Version: "v1", Kind: "StatefulSet"}},
	"serving.kserve.io/inferenceservice":       {{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "ReplicaSet"}},
	"workload.codeflare.dev/appwrapper":        {{Group: "batch", Version: "v1", Kind: "Job"}},
}

// Describe collects what is known of a job at a time.
func (j *Job) Describe(ctx context.Context, c client.Reader, now time.Time) (Info, error) {
	view, err := j.Kind.View(j.Object)
	if err != nil {
		return Info{}, fmt.Errorf("%s %s: %w", j.Kind.GVK.Kind, j.Object.GetName(), err)
	}
	info := Info{
		Name: j.Object.GetName(), Namespace: j.Object.GetNamespace(),
		Queue: queueOf(j.Object), Trainer: strings.ToUpper(j.Kind.GVK.Kind), Type: strings.ToLower(j.Kind.GVK.Kind),
		Created: j.Object.GetCreationTimestamp().Time, Instances: []Instance{},
	}
	sets := []kueue.PodSet{}
	if wl := j.Workload; wl != nil {
		sets = wl.Spec.PodSets
		info.Queue = cmp.Or(info.Queue, string(wl.Spec.QueueName))
		if class := wl.Spec.PriorityClassRef; class != nil {
			info.Priority = class.Name
		}
	} else if made, err := j.Kind.PodSets(ctx, c, j.Object); err == nil {
		sets = made // for a job that cannot be read, an event gives the reason
	}
	for i := range sets {
		info.Requested += float64(sets[i].Count) * Cards(&sets[i].Template.Spec)
		info.Pods += int(sets[i].Count)
	}
	running := 0
	for _, pod := range j.Pods {
		instance := describePod(pod, now)
		info.Instances = append(info.Instances, instance)
		if pod.Status.Phase == corev1.PodRunning {
			running++
			info.Allocated = ptr.To(ptr.Deref(info.Allocated, 0) + instance.Requested)
			if !slices.Contains(info.Nodes, pod.Spec.NodeName) {
				info.Nodes = append(info.Nodes, pod.Spec.NodeName)
			}
		}
	}
	slices.Sort(info.Nodes)
	info.Status, info.Reason = j.standing(view, info.Queue != "", running > 0)
	begin, end := j.times(view.Ended, now)
	info.Seconds = int64(end.Sub(begin).Seconds())
	info.Cost = j.costBy(now)
	return info, nil
}

// costBy is what the nodes have cost by now that were bought for a job, in all its runs; nil: none were.
func (j *Job) costBy(now time.Time) *float64 {
	if j.Workload == nil {
		return nil
	}
	cost, bought := workload.CostOf(j.Workload)
	if !bought {
		return nil
	}
	return ptr.To(cost.At(now))
}

// Price is what the nodes cost an hour that a workload has and that were bought for it, and what was paid for it before they were there, in US
// dollars.
func Price(wl *kueue.Workload) (perHour, paid float64) {
	cost, _ := workload.CostOf(wl)
	return cost.PerHour, cost.Paid
}

// standing is the status of a job, and the reason where there is one.
func (j *Job) standing(view kinds.View, queued, running bool) (status, reason string) {
	switch {
	case view.Ended && view.Succeeded:
		return Succeeded, view.Message
	case view.Ended:
		return Failed, view.Message
	case !j.Kind.Suspends() && j.ended():
		return j.outcome(), ""
	case view.Suspended && j.neverStarts() != "":
		return Failed, j.neverStarts()
	case j.Workload != nil && !ptr.Deref(j.Workload.Spec.Active, true):
		return Suspended, ""
	case j.Workload != nil && !apimeta.IsStatusConditionTrue(j.Workload.Status.Conditions, kueue.WorkloadAdmitted):
		return Queuing, whyQueued(j.Workload)
	case view.Suspended && queued:
		return Queuing, ""
	case view.Suspended:
		return Suspended, ""
	case running:
		return Running, ""
	}
	return Pending, ""
}

// neverStarts is why the queue gave a job up that contradicts its admission, as another try would end the same; empty otherwise.
func (j *Job) neverStarts() string {
	if j.Workload == nil {
		return ""
	}
	c := apimeta.FindStatusCondition(j.Workload.Status.Conditions, kueue.WorkloadFinished)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "FailedToStart" {
		return ""
	}
	return "it could not be started: " + c.Message
}

// ended: all pods of a job without a suspend flag have ended.
func (j *Job) ended() bool {
	if len(j.Pods) == 0 {
		return false
	}
	for _, pod := range j.Pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return false
		}
	}
	return true
}

func (j *Job) outcome() string {
	if slices.ContainsFunc(j.Pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }) {
		return Failed
	}
	return Succeeded
}

func whyQueued(wl *kueue.Workload) string {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}

// times are when a job was started, or created if it has not been, and when it ended.
func (j *Job) times(ended bool, now time.Time) (begin, end time.Time) {
	begin, end = j.Object.GetCreationTimestamp().Time, now
	if t, ok := timeAt(j.Object, "status", "startTime"); ok {
		begin = t
	}
	if t, ok := timeAt(j.Object, "status", "completionTime"); ok {
		end = t
	}
	if wl := j.Workload; wl != nil {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
			begin = c.LastTransitionTime.Time
		}
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); c != nil && ended {
			end = c.LastTransitionTime.Time
		}
	}
	return begin, end
}

func timeAt(object *unstructured.Unstructured, path ...string) (time.Time, bool) {
	text, _, _ := unstructured.NestedString(object.Object, path...)
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil
}

func describePod(pod *corev1.Pod, now time.Time) Instance {
	begin, end := pod.CreationTimestamp.Time, now
	if pod.Status.StartTime != nil {
		begin = pod.Status.StartTime.Time
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			end = t.FinishedAt.Time
		}
	}
	return Instance{
		Name: pod.Name, Status: podStatus(pod), Seconds: int64(end.Sub(begin).Seconds()),
		Chief: chiefRank(pod) == 0, Requested: Cards(&pod.Spec), Node: pod.Spec.NodeName, Cards: cardsOf(pod),
	}
}

// podStatus is the status kubectl shows.
func podStatus(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && pod.Status.Phase != corev1.PodRunning:
			return c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "" && pod.Status.Phase != corev1.PodRunning:
			return c.State.Terminated.Reason
		}
	}
	switch {
	case pod.Status.Reason != "":
		return pod.Status.Reason
	case pod.Status.Phase == corev1.PodSucceeded:
		return "Completed"
	case len(pod.Spec.SchedulingGates) > 0:
		return "SchedulingGated"
	}
	return cmp.Or(string(pod.Status.Phase), "Pending")
}

// cardsOf are the cards of a pod, as the GPU scheduler wrote them.
func cardsOf(pod *corev1.Pod) string {
	var all []string
	for _, c := range pod.Spec.Containers {
		if indexes := pod.Annotations["elasticgpu.io/container-"+c.Name]; indexes != "" {
			all = append(all, indexes)
		}
	}
	return strings.Join(all, ",")
}

// chiefRank is 0 for the pod that leads a job, by its operator's labels.
func chiefRank(pod *corev1.Pod) int {
	role := strings.ToLower(cmp.Or(pod.Labels["training.kubeflow.org/job-role"], pod.Labels["training.kubeflow.org/replica-type"],
		pod.Labels["ray.io/node-type"], pod.Labels["spark-role"], pod.Labels["leaderworkerset.sigs.k8s.io/worker-index"]))
	switch role {
	case "master", "chief", "launcher", "head", "driver", "0":
		return 0
	}
	return 1
}

// Cards is how many cards a pod requests: whole ones, or parts of one.
func Cards(pod *corev1.PodSpec) float64 {
	of := func(list corev1.ResourceList) float64 {
		whole := list["nvidia.com/gpu"]
		core := list[egpu.ResourceCore]
		return float64(whole.Value()) + float64(core.Value())/100
	}
	var total float64
	for i := range pod.Containers {
		r := pod.Containers[i].Resources
		total += max(of(r.Limits), of(r.Requests))
	}
	return total
}

// number of cards, without needless digits.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func (i *Info) allocated() string {
	if i.Allocated == nil {
		return NA
	}
	return number(*i.Allocated)
}

// node is where the job runs, in one cell.
func (i *Info) node() string {
	switch len(i.Nodes) {
	case 0:
		return NA
	case 1, 2:
		return strings.Join(i.Nodes, ",")
	}
	return fmt.Sprintf("%s,+%d", i.Nodes[0], len(i.Nodes)-1)
}

func (i *Info) cost() string {
	if i.Cost == nil {
		return NA
	}
	return fmt.Sprintf("$%.2f", *i.Cost)
}

func (i *Info) duration() string { return output.Duration(time.Duration(i.Seconds) * time.Second) }

// Up counts the pods that run or have completed.
func (i *Info) Up() int {
	n := 0
	for _, pod := range i.Instances {
		if pod.Status == "Running" || pod.Status == "Completed" {
			n++
		}
	}
	return n
}
