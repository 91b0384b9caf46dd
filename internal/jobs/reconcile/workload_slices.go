package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// An elastic job may change its size while it runs. When it becomes smaller, so does its workload. When it
// becomes larger it gets a second workload, a slice, in its new size, which replaces the first when it has its quota, as in
// Kueue, or is admitted, where that is the rule; until it is admitted its additional pods are gated, and a job that has yet to
// start waits for it. Any other job that changes its size is stopped and queued again.

// followCounts looks at a job with quota reserved whose number of pods has changed since. It reports
// whether it changed the workload.
func (c *controller) followCounts(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	if workload.IsEvicted(wl) || hasFixedPods(j) {
		return false, nil
	}
	sets, err := j.PodSets(ctx, c.client)
	if err != nil {
		return false, err
	}
	grew, shrank := compareCounts(j, wl, sets)
	switch {
	case !grew && !shrank || serving(j) && !sharesSets(wl, sets):
		return false, nil // in the latter case its sets had other names when it was admitted
	case !grew && serving(j):
		return false, nil // reportProgress reports its reclaimable pods
	case kinds.IsPrebuilt(j.Meta()) && (grew || !kinds.IsElastic(j) || j.IsSuspended()):
		return true, c.finishOutOfSync(ctx, wl)
	case !kinds.IsElastic(j) || !describesAll(wl, sets):
		return true, c.requeueResized(ctx, j, wl)
	case !grew:
		return true, c.resize(ctx, wl, sets)
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
// requested counts, or the admitted ones where a job that runs may have been admitted in part.
func compareCounts(j GenericJob, wl *kueue.Workload, sets []kueue.PodSet) (grew, shrank bool) {
	counts := map[kueue.PodSetReference]int32{}
	for _, set := range sets {
		if set.Count > 0 { // workloads from before pod sets without pods were in them lack those
			counts[set.Name] = set.Count
		}
	}
	for i, set := range wl.Spec.PodSets {
		want := set.Count
		if !j.IsSuspended() && set.MinCount != nil { // only then it was started with fewer
			want = kinds.AdmittedCount(wl, i)
		}
		grew, shrank = grew || counts[set.Name] > want, shrank || counts[set.Name] < want
		delete(counts, set.Name)
	}
	return grew || len(counts) > 0, shrank
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

// sharesSets: some pod set of the job is one of the workload.
func sharesSets(wl *kueue.Workload, sets []kueue.PodSet) bool {
	return slices.ContainsFunc(sets, func(set kueue.PodSet) bool {
		return slices.ContainsFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == set.Name })
	})
}

// resize gives a workload its job's counts.
func (c *controller) resize(ctx context.Context, wl *kueue.Workload, sets []kueue.PodSet) error {
	wanted := wl.DeepCopy()
	for i := range wanted.Spec.PodSets {
		for _, set := range sets {
			if set.Name == wanted.Spec.PodSets[i].Name {
				wanted.Spec.PodSets[i].Count = set.Count
			}
		}
	}
	return c.client.Update(ctx, wanted)
}

// requeueResized stops a job that changed its size and has it queued again, with its templates restored.
func (c *controller) requeueResized(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if !j.IsSuspended() {
		return c.stop(ctx, j, kinds.Stop{Reason: kinds.StopNoMatchingWorkload, Message: "No matching Workload; restoring pod templates according to existent Workload"})
	}
	if _, runsElsewhere := staysGated(j, wl); runsElsewhere {
		return c.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}) // its finalizer holds it until the job has stopped there
	}
	active, err := j.IsActive()
	if err != nil || active {
		return err
	}
	old := wl.DeepCopy()
	for i := range old.Spec.PodSets {
		old.Spec.PodSets[i].MinCount = nil // the count is what the user wants now
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

// sliceName is that of the first slice, which the pods of all carry.
func sliceName(wl *kueue.Workload) string { return workload.PodsNamedAfter(wl).Name }

// createSlice creates the workload slice that requests the quota of the job's new size.
func (c *controller) createSlice(ctx context.Context, j GenericJob, wl *kueue.Workload, sets []kueue.PodSet) error {
	if next, err := c.nextSlice(ctx, j, wl); next != nil || err != nil {
		return err // it is pending
	}
	name := j.WorkloadName()
	if job, ok := j.(kinds.Object); ok {
		name = job.NextWorkloadName(wl.Name)
	}
	slice, err := c.builder.Build(ctx, j, name)
	if err != nil {
		return err
	}
	kinds.SetAnnotation(slice, workload.ReplacesAnnotation, wl.Namespace+"/"+wl.Name)
	kinds.SetAnnotation(slice, kueue.WorkloadSliceNameAnnotation, sliceName(wl))
	slice.Spec.PodSets = nil
	for _, set := range sets {
		// The slice has the first workload's templates with other counts: the job's templates now
		// carry what the admission added. That names the first slice, to which their pods belong.
		for _, first := range wl.Spec.PodSets {
			if first.Name != set.Name {
				continue
			}
			first.Count, first.MinCount = set.Count, nil
			if name := set.Template.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
				first.Template.Annotations = maps.Clone(first.Template.Annotations)
				if first.Template.Annotations == nil {
					first.Template.Annotations = map[string]string{}
				}
				first.Template.Annotations[kueue.WorkloadSliceNameAnnotation] = name
			}
			slice.Spec.PodSets = append(slice.Spec.PodSets, first)
		}
	}
	if err := c.client.Create(ctx, slice); err != nil {
		return err
	}
	c.recorder.Eventf(j.Meta(), slice, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", slice.Namespace, slice.Name)
	return nil
}

// nextSlice is the slice that is to replace a workload; nil for none.
func (c *controller) nextSlice(ctx context.Context, j GenericJob, wl *kueue.Workload) (*kueue.Workload, error) {
	if !kinds.IsElastic(j) {
		return nil, nil
	}
	wls, err := c.workloadsOf(ctx, j.Meta())
	i := slices.IndexFunc(wls, func(other kueue.Workload) bool {
		return workload.Replaces(&other) == workload.KeyOf(wl) && !workload.IsFinished(&other)
	})
	if err != nil || i < 0 {
		return nil, err
	}
	return &wls[i], nil
}

// runsOnReplaced: the job runs as the slice before this one, which ended when this one got its quota, and may be gone by now.
// It goes on, as in Kueue, if the pods that it makes until this one is admitted are gated, or another cluster makes them.
func (c *controller) runsOnReplaced(ctx context.Context, j GenericJob, wl *kueue.Workload) (bool, error) {
	o, ok := j.(kinds.Object)
	if !ok || !kinds.IsElastic(j) {
		return false, nil
	}
	wls, err := c.workloadsOf(ctx, j.Meta())
	before := slices.IndexFunc(wls, func(other kueue.Workload) bool { return workload.Replaces(wl) == workload.KeyOf(&other) })
	switch {
	case err != nil || workload.Replaces(wl).Name == "":
		return false, err
	case before >= 0 && !wasReplaced(&wls[before]), before < 0 && !workload.HasReservation(wl):
		return false, nil
	}
	sets, err := j.PodSets(ctx, c.client)
	return err == nil && (o.HandedOver() || !slices.ContainsFunc(sets, isNotGated)), err
}

func isNotGated(set kueue.PodSet) bool {
	return !slices.Contains(set.Template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
}

// gateElasticPods adds the gate of elastic jobs to every pod of a job, and the name by which they are found.
func gateElasticPods(wl *kueue.Workload, infos []kinds.PodSetInfo) {
	for i := range infos {
		infos[i].Annotations[kueue.WorkloadSliceNameAnnotation] = sliceName(wl)
		infos[i].SchedulingGates = append(infos[i].SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
	}
}

// currentWorkload is the workload that counts for a job now. Of the slices of a job that grows it is the
// newest one that stands for the job. Those before it are finished; a pending one follows the job's size.
func (c *controller) currentWorkload(ctx context.Context, j kinds.Object, wls []kueue.Workload) (*kueue.Workload, error) {
	var live []*kueue.Workload
	for i := range wls {
		if len(wls) == 1 && !wasReplaced(&wls[i]) || !workload.IsFinished(&wls[i]) {
			live = append(live, &wls[i])
			continue
		}
		if err := workload.RemoveFinalizer(ctx, c.client, &wls[i]); err != nil {
			return nil, err
		}
	}
	switch len(live) {
	case 0:
		if len(wls) > 0 && !kinds.IsElastic(j) {
			return &wls[len(wls)-1], nil
		}
		return nil, nil // another chain of slices begins
	case 1:
		return live[0], nil
	}
	if !kinds.IsElastic(j) {
		return c.onlyMatching(ctx, j, live)
	}
	sortSlices(live)
	chosen := live[0]
	for _, wl := range live[1:] {
		// One that was evicted counts until the job has stopped, and has its quota until then.
		replaced := workload.IsEvicted(chosen) && !workload.HasReservation(chosen)
		stands := (workload.IsAdmitted(wl) || workload.HasReservation(wl) && !kinds.KeepSlices()) && !workload.IsEvicted(wl)
		if !replaced && !stands {
			if err := c.followPending(ctx, j, chosen, wl); err != nil {
				return nil, err
			}
			continue
		}
		if err := c.finishReplaced(ctx, chosen, wl); err != nil {
			return nil, err
		}
		chosen = wl
	}
	return chosen, nil
}

// wasReplaced: it ended because another slice stood for its job, which may be gone by now.
func wasReplaced(wl *kueue.Workload) bool {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return finished != nil && finished.Reason == kueue.WorkloadSliceReplaced
}

// sortSlices puts each slice behind the one that it replaces: several may be made within a second.
func sortSlices(live []*kueue.Workload) {
	replaces := map[string]string{}
	for _, wl := range live {
		replaces[wl.Name] = workload.Replaces(wl).Name
	}
	depth := func(wl *kueue.Workload) int {
		n := 0
		for name := replaces[wl.Name]; name != "" && n < len(live); name = replaces[name] {
			n++
		}
		return n
	}
	slices.SortStableFunc(live, func(a, b *kueue.Workload) int { return depth(a) - depth(b) })
}

// onlyMatching deletes all workloads of a job but the one that describes it.
func (c *controller) onlyMatching(ctx context.Context, j kinds.Object, live []*kueue.Workload) (*kueue.Workload, error) {
	sets, err := j.PodSets(ctx, c.client)
	if err != nil {
		return nil, err
	}
	chosen := max(0, slices.IndexFunc(live, func(wl *kueue.Workload) bool { return sameCounts(sets, wl.Spec.PodSets) }))
	for i, wl := range live {
		if i == chosen || wl.DeletionTimestamp != nil {
			continue
		}
		if err := c.deleteNotMatching(ctx, j, wl); err != nil {
			return nil, err
		}
	}
	return live[chosen], nil
}

// finishReplaced finishes a slice that another one stands for now.
func (c *controller) finishReplaced(ctx context.Context, old, by *kueue.Workload) error {
	message := "Replaced to accommodate a new workload slice"
	if workload.IsAdmitted(by) {
		message = fmt.Sprintf("Replaced to accommodate a workload (UID: %s, JobUID: %s) due to workload slice aggregation", by.UID, by.Labels[kinds.JobUIDLabel])
	}
	return c.report(ctx, old, func(old *kueue.Workload) bool {
		return workload.Finish(old, kueue.WorkloadSliceReplaced, message, c.now())
	})
}

// followPending gives a pending slice the size and the priority that its job has now. One that the job no
// longer needs is deleted.
func (c *controller) followPending(ctx context.Context, j kinds.Object, current, pending *kueue.Workload) error {
	if workload.HasReservation(pending) || workload.IsEvicted(current) || pending.DeletionTimestamp != nil {
		return nil
	}
	sets, err := j.PodSets(ctx, c.client)
	if err != nil {
		return err
	}
	if grew, _ := compareCounts(j, current, sets); !grew {
		return c.deleteNotMatching(ctx, j, pending)
	}
	wanted := pending.DeepCopy()
	if err := c.builder.SetPriority(ctx, j, wanted); err != nil {
		return err
	}
	if sameCounts(sets, pending.Spec.PodSets) && samePriority(wanted, pending) {
		return nil
	}
	return c.resize(ctx, wanted, sets)
}

func samePriority(a, b *kueue.Workload) bool {
	return ptr.Equal(a.Spec.Priority, b.Spec.Priority) && (a.Spec.PriorityClassRef == nil) == (b.Spec.PriorityClassRef == nil) &&
		(a.Spec.PriorityClassRef == nil || *a.Spec.PriorityClassRef == *b.Spec.PriorityClassRef)
}

func sameCounts(a, b []kueue.PodSet) bool {
	return slices.EqualFunc(a, b, func(a, b kueue.PodSet) bool { return a.Name == b.Name && a.Count == b.Count })
}
