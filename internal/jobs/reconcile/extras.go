package reconcile

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A job that says how many pods it has at least and at most has its least as its workload, and for what it may have beyond
// that a workload for each pod, the extras. The queue gives these idle quota and takes it back as it does with any
// workload; here the job follows: it has its least and the pods of those extras that are admitted. One that is evicted
// has its quota until the pods are gone, and waits for its next turn.

// labelRanged marks the pods of such a job, so that they are watched. The template cannot be changed while the job runs, and
// what is reserved for others when it grows is not known before: so the pods are held until it is known which nodes to avoid.
func labelRanged(j GenericJob, infos []kinds.PodSetInfo) {
	object, ok := j.(kinds.Object)
	if !ok || object.PodRange() == nil {
		return
	}
	for i := range infos {
		if infos[i].Labels != nil { // of pods that another cluster makes nothing is added
			infos[i].Labels[kinds.JobUIDLabel] = string(j.Meta().GetUID())
			infos[i].HoldForAvoidNodes()
		}
	}
}

// extras are the workloads of a job's extra pods.
type extras struct {
	job  kinds.Object
	of   *kueue.Workload // the job's own
	pods *kinds.PodRange
	list []kueue.Workload
}

// followExtras makes the workloads of a job's extra pods, and gives the job its size.
func (c *objectReconciler) followExtras(ctx context.Context, j kinds.Object, wl *kueue.Workload) error {
	if wl == nil {
		return nil // they were its dependents
	}
	list := &kueue.WorkloadList{}
	if j.Row().CanRange() {
		if err := c.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{kinds.OwnerUIDIndex: string(wl.UID)}); err != nil {
			return err
		}
	}
	own := slices.DeleteFunc(list.Items, func(wl kueue.Workload) bool { return !workload.IsExtra(&wl) }) // it may have variants, too
	x := extras{job: j, of: wl, pods: j.PodRange(), list: own}
	if x.pods == nil && len(x.list) == 0 {
		return nil
	}
	if x.pods == nil || !x.mayGrow() {
		return c.endExtras(ctx, x)
	}
	if err := c.makeExtras(ctx, x); err != nil {
		return err
	}
	size := x.pods.Least + x.held()
	if resized, err := c.resizeJob(ctx, x, size); resized || err != nil {
		return err
	}
	return c.settleExtras(ctx, x, size)
}

// mayGrow: the job runs. One whose pods are placed by a topology has the places of its least alone.
func (x extras) mayGrow() bool {
	if !workload.IsAdmitted(x.of) || workload.IsEvicted(x.of) || workload.IsFinished(x.of) || x.of.DeletionTimestamp != nil || x.job.IsSuspended() {
		return false
	}
	at := x.assigned()
	return at != nil && at.TopologyAssignment == nil
}

// assigned is what the pod set that grows was admitted with.
func (x extras) assigned() *kueue.PodSetAssignment {
	sets := x.of.Status.Admission.PodSetAssignments
	if i := slices.IndexFunc(sets, func(a kueue.PodSetAssignment) bool { return a.Name == x.pods.Set }); i >= 0 {
		return &sets[i]
	}
	return nil
}

// endExtras deletes the extras of a job that stops, when none of its pods is left.
func (c *objectReconciler) endExtras(ctx context.Context, x extras) error {
	if end, err := x.job.Finished(); err != nil || !end.Ended {
		if active, err := x.job.IsActive(); err != nil || active {
			return err
		}
	}
	return c.deleteAll(ctx, x.list)
}

func (c *objectReconciler) deleteAll(ctx context.Context, list []kueue.Workload) error {
	var errs []error
	for i := range list {
		if list[i].DeletionTimestamp == nil {
			errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, &list[i], client.Preconditions{UID: &list[i].UID})))
		}
	}
	return errors.Join(errs...)
}

// wanted is how many pods each of the extras is to have: fewer, once pods of the job have finished for good.
func (c *objectReconciler) wanted(ctx context.Context, x extras) ([]int32, error) {
	useful, err := x.job.UsefulPods(ctx, c.client, x.pods)
	if err != nil {
		return nil, err
	}
	var steps []int32
	step := x.pods.Step()
	for left := useful - x.pods.Least; left > 0; left -= step {
		steps = append(steps, min(step, left))
	}
	return steps, nil
}

// makeExtras makes the extras that are lacking, and deletes those that the job has no use for.
func (c *objectReconciler) makeExtras(ctx context.Context, x extras) error {
	wanted, err := c.wanted(ctx, x)
	if err != nil {
		return err
	}
	has := map[string]int{}
	for i := range x.list {
		has[x.list[i].Name] = i
	}
	var errs []error
	for i, pods := range wanted {
		name := x.name(i)
		at, found := has[name]
		delete(has, name)
		switch {
		case !found:
			errs = append(errs, client.IgnoreAlreadyExists(c.client.Create(ctx, x.extra(name, pods))))
		case x.list[at].Spec.PodSets[0].Count != pods:
			errs = append(errs, c.deleteAll(ctx, x.list[at:at+1]))
		}
	}
	for _, at := range has {
		errs = append(errs, c.deleteAll(ctx, x.list[at:at+1]))
	}
	return errors.Join(errs...)
}

func (x extras) name(i int) string {
	return kinds.WorkloadName(x.job.Row().GVK, x.job.GetName(), x.of.UID, "extra", strconv.Itoa(i))
}

// extra is the workload of some extra pods: as the job's own ones, on the same flavors.
func (x extras) extra(name string, pods int32) *kueue.Workload {
	at := slices.IndexFunc(x.of.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == x.pods.Set })
	set := *x.of.Spec.PodSets[at].DeepCopy()
	set.Count, set.MinCount, set.TopologyRequest = pods, nil, nil
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.of.Namespace, Name: name,
			Annotations:     map[string]string{v1alpha1.ExtraOfAnnotation: x.of.Name, v1alpha1.FlavorsAnnotation: workload.FlavorsText(x.assigned())},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(x.of, kueue.SchemeGroupVersion.WithKind("Workload"))},
		},
		Spec: kueue.WorkloadSpec{QueueName: x.of.Spec.QueueName, PodSets: []kueue.PodSet{set}, Priority: ptr.To[int32](math.MinInt32)},
	}
	return wl
}

// holds: the extra's pods are there to stay.
func holds(wl *kueue.Workload) bool {
	return workload.IsAdmitted(wl) && !workload.IsEvicted(wl) && wl.DeletionTimestamp == nil
}

// held is how many extra pods the job may have.
func (x extras) held() int32 {
	n := int32(0)
	for i := range x.list {
		if holds(&x.list[i]) {
			n += x.list[i].Spec.PodSets[0].Count
		}
	}
	return min(n, x.pods.Most-x.pods.Least)
}

// resizeJob gives the job its size, and reports whether it had another.
func (c *objectReconciler) resizeJob(ctx context.Context, x extras, size int32) (bool, error) {
	sized, found, err := x.job.Sized(ctx, c.client)
	switch {
	case err != nil:
		return false, err
	case !found: // its operator has not made it yet
		return true, &requeueError{time.Second}
	}
	counts, err := sized.Counts()
	had := counts[x.pods.Set]
	if err != nil || had == size {
		return false, err
	}
	err = sized.Resize(ctx, c.client, []kueue.PodSet{{Name: x.pods.Set, Count: size}})
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return true, &kinds.UnretryableError{Err: err} // it is as large as it can be
	case err != nil:
		return true, err
	}
	reason, what := "Grown", "grew from %d to %d pods: quota is idle"
	if size < had {
		reason, what = "Shrunk", "shrank from %d to %d pods: others need the quota, or it has no use for it"
	}
	c.recorder.Eventf(x.job.Unstructured, x.of, corev1.EventTypeNormal, reason, "Resize", what, had, size)
	return true, nil
}

// settleExtras releases the quota of extras that were evicted once their pods are gone, and says of the others when
// their pods run.
func (c *objectReconciler) settleExtras(ctx context.Context, x extras, size int32) error {
	leaves := func(wl kueue.Workload) bool { return workload.IsEvicted(&wl) && workload.HasReservation(&wl) }
	comes := func(wl kueue.Workload) bool { return holds(&wl) && !workload.HadPodsReady(&wl) && !c.noPodsReady }
	if !slices.ContainsFunc(x.list, leaves) && !slices.ContainsFunc(x.list, comes) {
		return nil
	}
	live, running, err := c.countPods(ctx, x, size)
	if err != nil {
		return err
	}
	var errs []error
	for i := range x.list {
		switch wl := &x.list[i]; {
		case leaves(*wl) && live <= size:
			errs = append(errs, c.releaseQuota(ctx, wl, false))
		case comes(*wl) && running >= size:
			errs = append(errs, c.report(ctx, wl, func(wl *kueue.Workload) bool { return c.reportReadiness(wl, true) }))
		}
	}
	return errors.Join(errs...)
}

// countPods counts the pods of the set that grows: those that have not ended, and of them those that run.
func (c *objectReconciler) countPods(ctx context.Context, x extras, size int32) (live, running int32, err error) {
	if c.elastic == nil { // nobody watches pods
		return size, size, nil
	}
	pods, err := c.elastic.of(ctx, x.job, "")
	for _, pod := range pods {
		switch phase := pod.Status.Phase; {
		case pod.Labels[kinds.PodSetLabel] != string(x.pods.Set), phase == corev1.PodSucceeded, phase == corev1.PodFailed:
		case phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
			live, running = live+1, running+1
		default:
			live++
		}
	}
	return live, running, err
}
