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

// resize looks at a job that holds quota and whose number of pods is no longer
// the one it holds quota for. It reports whether it did something about that.
//
// A smaller one that may shrink gives back what it needs no more. A bigger one
// that may grow while it runs gets a second workload in its new size, which takes
// the place of the first when it is admitted; until then its additional pods are
// held by a gate. Any other is stopped and queued anew.
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
		return false, nil // reportProgress gives back what it needs no more
	case kinds.IsPrebuilt(j.Meta()):
		return true, c.finishOutOfSync(ctx, wl)
	case !grew && kinds.IsElastic(j):
		return false, nil
	case !kinds.IsElastic(j) || j.IsSuspended() || !describesAll(wl, sets):
		return true, c.requeueResized(ctx, j, wl)
	}
	return false, c.createSlice(ctx, j, wl, sets)
}

// unchanging jobs are the pods they began with, or replacements.
func hasFixedPods(j GenericJob) bool {
	g, ok := j.(*podgroups.Group)
	return ok && g.Parent == nil
}

func serving(j GenericJob) bool {
	g, ok := j.(*podgroups.Group)
	return ok && g.Serving()
}

// compareCounts says in which direction a job's pod counts have left what its
// workload says: what was asked for, for one that waits to be started, what was
// admitted, for one that runs, and what of that it still holds, if it is elastic:
// what was given back is asked for again.
func compareCounts(j GenericJob, wl *kueue.Workload, sets []kueue.PodSet) (grew, shrank bool, err error) {
	counts := map[kueue.PodSetReference]int32{}
	for _, set := range sets {
		counts[set.Name] = set.Count
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

// describes says the workload has all pod sets there are; the templates of
// others would not carry what the admission adds.
func describesAll(wl *kueue.Workload, sets []kueue.PodSet) bool {
	for _, set := range sets {
		if !slices.ContainsFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == set.Name }) {
			return false
		}
	}
	return true
}

// restart puts a job that changed its size back in line. Its templates are
// restored first, but not its counts: those are what the user wants now.
func (c *controller) requeueResized(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if !j.IsSuspended() {
		return c.stop(ctx, j, "its number of pods was changed")
	}
	if _, mute := staysGated(j, wl); mute {
		return c.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}) // it stays until the job has stopped there
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
	return c.drop(ctx, wl)
}

// grow asks for the quota of the job's new size, beside what it holds.
func (c *controller) createSlice(ctx context.Context, j GenericJob, wl *kueue.Workload, sets []kueue.PodSet) error {
	name := kinds.ShortName(j.WorkloadName(), j.WorkloadName(), strconv.FormatInt(j.Meta().GetGeneration(), 10))
	slice := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: wl.Namespace, Name: name}, slice)
	if err == nil {
		return nil // it waits
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
		// It asks for what the first asked for, in other numbers: the templates
		// now carry what that admission added.
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

// elasticPods is the managed label's value on pods of elastic jobs: each waits
// behind a gate until the job has quota for it.
const elasticPods = "elastic"

// gateGrowth makes every pod of an elastic job wait for its turn.
func gateElasticPods(j GenericJob, infos []kinds.PodSetInfo) {
	for i := range infos {
		infos[i].Labels[kinds.ManagedLabel], infos[i].Labels[kinds.JobUIDLabel] = elasticPods, string(j.Meta().GetUID())
		infos[i].SchedulingGates = append(infos[i].SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
	}
}

// letGrow takes the gate off as many pods of an elastic job as it holds quota
// for, the oldest first.
func (c *objectReconciler) ungateAdmitted(ctx context.Context, j kinds.Object, wl *kueue.Workload) error {
	if !kinds.IsElastic(j) || wl == nil || !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) {
		return nil
	}
	list := &corev1.PodList{}
	if err := c.pods.List(ctx, list, client.InNamespace(j.GetNamespace()), client.MatchingLabels{kinds.JobUIDLabel: string(j.GetUID())}); err != nil {
		return err
	}
	room := map[string]int32{}
	for i, set := range wl.Spec.PodSets {
		room[string(set.Name)] = kinds.AdmittedCount(wl, i) - kinds.ReclaimedCount(wl, set.Name)
	}
	role := func(pod *corev1.Pod) string { return pod.Labels[kinds.PodSetLabel] }
	var pods []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pods = append(pods, pod); podgroups.IsLive(pod) && !podgroups.HasGate(pod, kueue.ElasticJobSchedulingGate) {
			room[role(pod)]--
		}
	}
	podgroups.SortOldestFirst(pods)
	return podgroups.Ungate(ctx, c.client, pods, kueue.ElasticJobSchedulingGate, role, room, nil)
}

// current is the workload that speaks for a job now. Of several, which a job
// that grows has, it is the newest one admitted, and those before it are
// finished; those that wait for a size the job no longer wants are deleted.
func (c *controller) currentWorkload(ctx context.Context, j kinds.Object, wls []kueue.Workload) (*kueue.Workload, error) {
	var live []*kueue.Workload
	for i := range wls {
		if len(wls) == 1 || !workload.IsFinished(&wls[i]) {
			live = append(live, &wls[i])
			continue
		}
		if err := workload.LetGo(ctx, c.client, &wls[i]); err != nil {
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
			if err := c.drop(ctx, wl); err != nil {
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
