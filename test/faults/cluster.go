package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/faults/memapi"
)

// cluster is what surrounds the programs: it sees the API server's state as it is, and makes no mistakes.
type cluster struct {
	podsMade   int
	lost       []string           // nodes
	moves      int                // nodes lost and pods bound, so far
	scheduling map[string]bool    // pods that the GPU scheduler is being asked about
	refused    map[string]refusal // pods that it refused
}

// refusal is when and in which state of the cluster a pod was refused, and when it is tried again although
// nothing changed.
type refusal struct {
	at      time.Time
	version int64
	again   time.Duration
}

// When kube-scheduler tries a pod again: soon after an error, for which no change of the cluster need be the
// cure, and rarely where no node fits.
const (
	retryAfterError    = 10 * time.Second
	retryUnschedulable = 5 * time.Minute
)

// onNode is a finalizer of the simulation: a pod's containers end after its deletion.
const onNode = "faults.test/on-node"

func newCluster() cluster {
	return cluster{scheduling: map[string]bool{}, refused: map[string]refusal{}}
}

func (w *World) jobNames() []string {
	var names []string
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		names = append(names, job.Name)
	}
	return names
}

func (w *World) nodeNames() []string {
	var names []string
	for _, node := range memapi.Objects[*corev1.Node](w.api) {
		names = append(names, node.Name)
	}
	return names
}

func (w *World) lostNodes() []string { return w.cluster.lost }

// workloadOf a job, the newest one.
func (w *World) workloadOf(job string) *kueue.Workload {
	var found *kueue.Workload
	for _, wl := range memapi.Objects[*kueue.Workload](w.api) {
		if owner := metav1.GetControllerOf(wl); owner != nil && owner.Name == job {
			found = wl
		}
	}
	return found
}

func (w *World) podsOf(job *batchv1.Job) []*corev1.Pod {
	var list []*corev1.Pod
	for _, pod := range memapi.Objects[*corev1.Pod](w.api) {
		if metav1.IsControlledBy(pod, job) {
			list = append(list, pod)
		}
	}
	return list
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func jobEnded(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

// clusterProgress is what the cluster has to do.
func (w *World) clusterProgress() []Action {
	var list []Action
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		if w.jobStep(job) != nil {
			list = append(list, action("job-controller", job.Name))
		}
	}
	for _, pod := range memapi.Objects[*corev1.Pod](w.api) {
		switch {
		case w.kubeletStep(pod) != nil:
			list = append(list, action("kubelet", pod.Name))
		case w.canSchedule(pod):
			list = append(list, action("schedule", pod.Name))
		}
	}
	if len(w.api.Orphans()) > 0 {
		list = append(list, action("collect-garbage"))
	}
	return list
}

func (w *World) takeInCluster(a Action) {
	key := client.ObjectKey{Namespace: namespace, Name: a.arg(0)}
	switch a.Op {
	case "job-controller":
		if job := memapi.Object[*batchv1.Job](w.api, key); job != nil {
			if step := w.jobStep(job); step != nil {
				step()
			}
		}
	case "kubelet":
		if pod := memapi.Object[*corev1.Pod](w.api, key); pod != nil {
			if step := w.kubeletStep(pod); step != nil {
				step()
			}
		}
	case "schedule":
		if pod := memapi.Object[*corev1.Pod](w.api, key); pod != nil && w.canSchedule(pod) {
			w.schedule(pod)
		}
	case "finish":
		if pod := memapi.Object[*corev1.Pod](w.api, key); pod != nil && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			w.setPhase(pod, corev1.PodSucceeded)
		}
	default:
		w.takeAsControlPlane(a)
	}
}

// takeAsControlPlane does what garbage collection and nodes do.
func (w *World) takeAsControlPlane(a Action) {
	switch a.Op {
	case "collect-garbage":
		for _, orphan := range w.api.Orphans() {
			_ = w.api.Delete(orphan, &metav1.Preconditions{UID: ptr.To(orphan.GetUID())})
		}
	case "node-lost":
		if node := memapi.Object[*corev1.Node](w.api, client.ObjectKey{Name: a.arg(0)}); node != nil {
			for _, obj := range w.setting.node(a.arg(0)) {
				_ = w.api.Delete(obj, nil)
			}
			w.cluster.lost = append(w.cluster.lost, a.arg(0))
			w.cluster.moves++
			for uid := range w.checks.preempted {
				w.checks.excuse(uid) // what its victims left may be where the lost node's pods go
			}
		}
	case "node-back":
		if i := slices.Index(w.cluster.lost, a.arg(0)); i >= 0 {
			w.cluster.lost = slices.Delete(w.cluster.lost, i, i+1)
			for _, obj := range w.setting.node(a.arg(0)) {
				_, _ = w.api.Create(obj)
			}
		}
	}
}

// countPods of a job: those that are not ended, how many of them run, and how many succeeded.
func (w *World) countPods(job *batchv1.Job) (running []*corev1.Pod, ready, succeeded int32) {
	for _, pod := range w.podsOf(job) {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
		case ended(pod) || pod.DeletionTimestamp != nil:
		default:
			running = append(running, pod)
			if pod.Status.Phase == corev1.PodRunning {
				ready++
			}
		}
	}
	return running, ready, succeeded
}

// jobStep is what Kubernetes' Job controller would do for a job; nil: nothing.
func (w *World) jobStep(job *batchv1.Job) func() {
	if jobEnded(job) || job.DeletionTimestamp != nil {
		return nil
	}
	running, ready, succeeded := w.countPods(job)
	active := int32(len(running))
	suspended := ptr.Deref(job.Spec.Suspend, false)
	missing := min(*job.Spec.Parallelism, *job.Spec.Completions-succeeded) - active
	switch {
	case suspended && len(running) > 0:
		return func() {
			for _, pod := range running {
				_ = w.api.Delete(pod, nil)
			}
		}
	case !suspended && missing > 0:
		return func() { w.makePods(job, missing) }
	}
	done := succeeded == *job.Spec.Completions
	if job.Status.Active == active && ptr.Deref(job.Status.Ready, 0) == ready && job.Status.Succeeded == succeeded &&
		(job.Status.StartTime == nil) == suspended && !done {
		return nil
	}
	return func() { w.updateJob(job, active, ready, succeeded, done) }
}

// updateJob writes the status of a job that had not ended so far.
func (w *World) updateJob(job *batchv1.Job, active, ready, succeeded int32, done bool) {
	now := job.DeepCopy()
	now.Status.Active, now.Status.Ready, now.Status.Succeeded = active, ptr.To(ready), succeeded
	switch {
	case ptr.Deref(job.Spec.Suspend, false):
		now.Status.StartTime = nil
	case now.Status.StartTime == nil:
		now.Status.StartTime = ptr.To(metav1.NewTime(w.clock().Truncate(time.Second)))
	}
	if done {
		now.Status.Conditions = append(now.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
	}
	_, _ = w.api.Update(now, true)
}

func (w *World) makePods(job *batchv1.Job, n int32) {
	for range n {
		w.cluster.podsMade++
		pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = job.Namespace, fmt.Sprintf("%s-%d", job.Name, w.cluster.podsMade)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		pod.Finalizers = []string{onNode}
		pod.Status.Phase = corev1.PodPending
		if _, err := w.api.Create(pod); err != nil {
			w.t.Fatal(err)
		}
	}
}

// kubeletStep is what the pod's node, or the collector of pods without one, would do; nil: nothing.
func (w *World) kubeletStep(pod *corev1.Pod) func() {
	lost := pod.Spec.NodeName != "" && !ended(pod) && memapi.Object[*corev1.Node](w.api, client.ObjectKey{Name: pod.Spec.NodeName}) == nil
	switch {
	case pod.DeletionTimestamp != nil, lost:
		return func() {
			now := pod.DeepCopy()
			now.Finalizers = nil
			_, _ = w.api.Update(now, false)
			_ = w.api.Delete(pod, nil)
			delete(w.cluster.refused, pod.Name)
		}
	case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending:
		return func() { w.setPhase(pod, corev1.PodRunning) }
	}
	return nil
}

func (w *World) setPhase(pod *corev1.Pod, phase corev1.PodPhase) {
	now := pod.DeepCopy()
	now.Status.Phase = phase
	_, _ = w.api.Update(now, true)
}

// canSchedule says that kube-scheduler would try a pod now.
func (w *World) canSchedule(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || ended(pod) || len(pod.Spec.SchedulingGates) > 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cluster.scheduling[pod.Name] {
		return false
	}
	r, was := w.cluster.refused[pod.Name]
	return !was || r.version != w.api.Version() || time.Since(r.at) >= r.again
}

// schedule asks the GPU scheduler, as kube-scheduler does: filter, and bind to a node that fits.
func (w *World) schedule(pod *corev1.Pod) {
	nodes := w.nodeNames()
	if !w.setting.Cards {
		if len(nodes) > 0 {
			_ = w.api.Bind(pod, &corev1.Binding{Target: corev1.ObjectReference{Name: nodes[0]}})
		}
		return
	}
	leader := w.processes[roleGPU]
	if old := w.processes[roleGPU+oldSuffix]; old != nil && len(pod.Name)%2 == 0 {
		leader = old
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	refused := refusal{time.Now(), w.api.Version(), retryAfterError}
	w.cluster.refused[pod.Name] = refused
	if leader == nil {
		return
	}
	w.cluster.scheduling[pod.Name] = true
	leader.group.Go(func() {
		err := w.scheduleAt(leader, pod, nodes)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.cluster.scheduling, pod.Name)
		if err == nil {
			refused.again = retryUnschedulable
			w.cluster.refused[pod.Name] = refused
		}
	})
}

// scheduleAt returns an error where kube-scheduler got no answer; that no node fits is one.
func (w *World) scheduleAt(leader *process, pod *corev1.Pod, nodes []string) error {
	ctx, cancel := context.WithTimeout(leader.ctx, 30*time.Second)
	defer cancel()
	verdicts, err := leader.gpu.Filter(ctx, pod, nodes)
	if refused := (*gpu.Refused)(nil); errors.As(err, &refused) {
		return nil // by all nodes
	}
	if err != nil {
		return err
	}
	for i, v := range verdicts {
		if v.Reason == placement.Fits {
			return leader.gpu.Bind(ctx, client.ObjectKeyFromObject(pod), pod.UID, nodes[i])
		}
	}
	return nil
}

// heal undoes what users and nodes did, so that all jobs can run to their end.
func (w *World) heal() {
	for _, name := range slices.Clone(w.cluster.lost) {
		w.do(action("node-back", name))
	}
	for _, name := range w.setting.queueNames() {
		w.do(action("hold", name, "None"))
	}
	for _, name := range w.jobNames() {
		w.do(action("activate", name))
	}
}

// runningPods that could end.
func (w *World) runningPods() []string {
	var names []string
	for _, pod := range memapi.Objects[*corev1.Pod](w.api) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// finishRunning ends the pods that run, and reports whether there were any.
func (w *World) finishRunning() bool {
	running := w.runningPods()
	for _, name := range running {
		w.do(action("finish", name))
	}
	return len(running) > 0
}

// decisions in force: which workloads have quota, which jobs run, where pods are.
func (w *World) decisions() string {
	var b strings.Builder
	for _, wl := range memapi.Objects[*kueue.Workload](w.api) {
		fmt.Fprintf(&b, "%s quota=%t admitted=%t evicted=%t finished=%t\n", wl.Name, workload.HasReservation(wl), workload.IsAdmitted(wl), workload.IsEvicted(wl), workload.IsFinished(wl))
	}
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		fmt.Fprintf(&b, "%s suspended=%t active=%d\n", job.Name, *job.Spec.Suspend, job.Status.Active)
	}
	for _, pod := range memapi.Objects[*corev1.Pod](w.api) {
		fmt.Fprintf(&b, "%s on %q %s\n", pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	}
	return b.String()
}

// awaitsPods: a workload is evicted by time alone, because its pods do not start.
func (w *World) awaitsPods() bool {
	return w.setting.PodsReady && slices.ContainsFunc(memapi.Objects[*kueue.Workload](w.api), func(wl *kueue.Workload) bool {
		return workload.IsAdmitted(wl) && !workload.IsFinished(wl) && !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady)
	})
}

// reasons why workloads wait or were evicted, as they say.
func (w *World) reasons() string {
	var b strings.Builder
	for _, wl := range memapi.Objects[*kueue.Workload](w.api) {
		if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
			fmt.Fprintf(&b, "%s waits: %s %s\n", wl.Name, c.Reason, c.Message)
		}
		if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
			fmt.Fprintf(&b, "%s was evicted: %s %s\n", wl.Name, c.Reason, c.Message)
		}
	}
	return b.String()
}
