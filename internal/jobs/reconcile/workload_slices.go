package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// followCounts looks at a job with quota reserved whose number of pods has changed since. It
// reports whether it changed the workload.
//
// An elastic job that became smaller has its reclaimable pods reported. One that became larger gets
// a second workload, a slice, in its new size, which replaces the first when it is admitted; until
// then its additional pods are gated. Any other job is stopped and requeued.
func (c *controller) followCounts(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if workload.IsEvicted(wl) || hasFixedPods(j) {
		return false, nil
	}
	sets, err := j.PodSets(ctx, c.client)
	if err != nil {
		return false, err
	}
	grew, shrank, err := compareCounts(j, wl, sets)
	switch {
	case err != nil:
		return false, err
	case !grew && !shrank:
		return false, nil
	case !grew && serving(j):
		return false, nil // reportProgress reports its reclaimable pods
	case kinds.IsPrebuilt(j.Meta()):
		return true, c.finishOutOfSync(ctx, wl)
	case !grew && kinds.IsElastic(j):
		return false, nil
	case !kinds.IsElastic(j) || j.IsSuspended() || !describesAll(wl, sets):
		return true, c.requeueResized(ctx, j, wl)
	}
	return false, c.createSlice(ctx, j, wl, sets)
}

// hasFixedPods: the job consists of the pods it was created with, or their replacements.
func hasFixedPods(j GenericJob) bool {
	g, ok := j.(*podgroups.Group)
	return ok && g.Parent == nil
}

func serving(j GenericJob) bool {
	g, ok := j.(*podgroups.Group)
	return ok && g.Serving()
}

// compareCounts tells in which direction a job's pod counts differ from those of its workload: the
// requested counts while the job is suspended, the admitted ones while it runs, and for an elastic
// job the admitted ones without its reclaimed pods: quota that was released is requested again.
func compareCounts(j GenericJob, wl *kueue.Workload, sets []kueue.PodSet) (grew, shrank bool, err error) {
	counts := map[kueue.PodSetReference]int32{}
	for _, set := range sets {
		if set.Count > 0 { // workloads from before pod sets without pods were in them lack those
			counts[set.Name] = set.Count
		}
	}
	var done map[kueue.PodSetReference]int32
	o, isObject := j.(kinds.Object)
	if isObject && kinds.IsElastic(j) {
		if done, err = o.FinishedPods(); err != nil {
			return false, false, err
		}
	}
	for i, set := range wl.Spec.PodSets {
		want := set.Count
		if !j.IsSuspended() {
			want = kinds.AdmittedCount(wl, i)
		}
		count := counts[set.Name]
		delete(counts, set.Name)
		if done != nil && !j.IsSuspended() {
			want -= kinds.ReclaimedCount(wl, set.Name)
			count = max(0, count-done[set.Name])
		}
		grew, shrank = grew || count > want, shrank || count < want
	}
	return grew || len(counts) > 0, shrank, nil
}

// describesAll: the workload has all of the job's pod sets. The templates of others would lack what
// the admission adds.
func describesAll(wl *kueue.Workload, sets []kueue.PodSet) bool {
	for _, set := range sets {
		if set.Count > 0 && !slices.ContainsFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == set.Name }) {
			return false
		}
	}
	return true
}

// requeueResized stops a job that changed its size and has it queued again. Its templates are
// restored first, but not its counts: those are what the user wants now.
func (c *controller) requeueResized(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if !j.IsSuspended() {
		return c.stop(ctx, j, "its number of pods was changed")
	}
	if _, runsElsewhere := staysGated(j, wl); runsElsewhere {
		return c.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}) // its finalizer holds it until the job has stopped there
	}
	active, err := j.IsActive()
	if err != nil || active {
		return err
	}
	sets, err := j.PodSets(ctx, c.client)
	if err != nil {
		return err
	}
	old := wl.DeepCopy()
	for i := range old.Spec.PodSets {
		for _, set := range sets {
			if set.Name == old.Spec.PodSets[i].Name {
				old.Spec.PodSets[i].Count = set.Count
			}
		}
	}
	if err := c.restore(ctx, j, old); err != nil {
		return err
	}
	return c.deleteNotMatching(ctx, j, wl)
}

// deleteNotMatching deletes a workload that does not describe its job.
func (c *controller) deleteNotMatching(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if err := workload.Delete(ctx, c.client, wl); err != nil {
		return err
	}
	c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "DeletedWorkload", "Delete", "Deleted not matching Workload: %s/%s", wl.Namespace, wl.Name)
	return nil
}

// createSlice creates the workload slice that requests the quota of the job's new size.
func (c *controller) createSlice(ctx context.Context, j GenericJob, wl *kueue.Workload, sets []kueue.PodSet) error {
	name := kinds.ShortName(j.WorkloadName(), j.WorkloadName(), strconv.FormatInt(j.Meta().GetGeneration(), 10))
	slice := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: wl.Namespace, Name: name}, slice)
	if err == nil {
		return nil // it is pending
	}
	if slice, err = c.builder.Build(ctx, j, name); err != nil {
		return err
	}
	kinds.SetAnnotation(slice, workload.ReplacesAnnotation, wl.Namespace+"/"+wl.Name)
	kinds.SetAnnotation(slice, kueue.WorkloadSliceNameAnnotation, wl.Name)
	slice.Spec.PodSets = nil
	for _, set := range sets {
		if started := set.Template.Annotations[kueue.WorkloadAnnotation]; started != "" {
			kinds.SetAnnotation(slice, kueue.WorkloadSliceNameAnnotation, started)
		}
		// The slice has the first workload's templates with other counts: the job's templates now
		// carry what the admission added.
		for _, first := range wl.Spec.PodSets {
			if first.Name == set.Name {
				first.Count, first.MinCount = set.Count, nil
				slice.Spec.PodSets = append(slice.Spec.PodSets, first)
			}
		}
	}
	if err := c.client.Create(ctx, slice); err != nil {
		return err
	}
	c.recorder.Eventf(j.Meta(), slice, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", slice.Namespace, slice.Name)
	return nil
}

// elasticPods is the managed label's value on pods of elastic jobs: each is gated until the job has
// quota for it.
const elasticPods = "elastic"

// gateElasticPods adds the gate of elastic jobs to every pod of a job.
func gateElasticPods(j GenericJob, infos []kinds.PodSetInfo) {
	for i := range infos {
		infos[i].Labels[kinds.ManagedLabel], infos[i].Labels[kinds.JobUIDLabel] = elasticPods, string(j.Meta().GetUID())
		infos[i].SchedulingGates = append(infos[i].SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
	}
}

// ungateAdmitted removes the gate of as many pods of an elastic job as it has quota for, the oldest
// first.
func (c *objectReconciler) ungateAdmitted(ctx context.Context, j kinds.Object, wl *kueue.Workload) error {
	if !kinds.IsElastic(j) || wl == nil || !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) {
		return nil
	}
	list := &corev1.PodList{}
	if err := c.pods.List(ctx, list, client.InNamespace(j.GetNamespace()), client.MatchingLabels{kinds.JobUIDLabel: string(j.GetUID())}); err != nil {
		return err
	}
	free := map[string]int32{}
	for i, set := range wl.Spec.PodSets {
		free[string(set.Name)] = kinds.AdmittedCount(wl, i) - kinds.ReclaimedCount(wl, set.Name)
	}
	role := func(pod *corev1.Pod) string { return pod.Labels[kinds.PodSetLabel] }
	var pods []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pods = append(pods, pod); podgroups.IsLive(pod) && !podgroups.HasGate(pod, kueue.ElasticJobSchedulingGate) {
			free[role(pod)]--
		}
	}
	podgroups.SortOldestFirst(pods)
	return podgroups.Ungate(ctx, c.client, pods, kueue.ElasticJobSchedulingGate, role, free, nil)
}

// currentWorkload is the workload that counts for a job now. Of the slices of a job that grows it
// is the newest admitted one, and those before it are finished; pending slices of a size the job no
// longer wants are deleted.
func (c *controller) currentWorkload(ctx context.Context, j kinds.Object, wls []kueue.Workload) (*kueue.Workload, error) {
	var live []*kueue.Workload
	for i := range wls {
		if len(wls) == 1 || !workload.IsFinished(&wls[i]) {
			live = append(live, &wls[i])
			continue
		}
		if err := workload.RemoveFinalizer(ctx, c.client, &wls[i]); err != nil {
			return nil, err
		}
	}
	if len(live) == 0 {
		if len(wls) > 0 {
			return &wls[len(wls)-1], nil
		}
		return nil, nil
	}
	chosen := live[0]
	for _, wl := range live[1:] {
		if workload.IsAdmitted(wl) && !workload.IsEvicted(wl) {
			err := c.report(ctx, chosen, func(old *kueue.Workload) bool {
				return workload.Finish(old, kueue.WorkloadSliceReplaced,
					fmt.Sprintf("Replaced to accommodate a workload (UID: %s, JobUID: %s) due to workload slice aggregation", wl.UID, wl.Labels[kinds.JobUIDLabel]), c.now())
			})
			if err != nil {
				return nil, err
			}
			chosen = wl
			continue
		}
		if workload.HasReservation(wl) {
			continue
		}
		sets, err := j.PodSets(ctx, c.client)
		if err != nil {
			return nil, err
		}
		grew, _, err := compareCounts(j, chosen, sets)
		if err != nil {
			return nil, err
		}
		if !grew || !sameCounts(sets, wl.Spec.PodSets) || workload.IsEvicted(chosen) {
			if err := c.deleteNotMatching(ctx, j, wl); err != nil {
				return nil, err
			}
		}
	}
	return chosen, nil
}

func sameCounts(a, b []kueue.PodSet) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Count != b[i].Count {
			return false
		}
	}
	return true
}
