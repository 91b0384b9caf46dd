package jobs

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// resize looks at a job that holds quota and whose number of pods is no longer
// the one it holds quota for. It reports whether it did something about that.
//
// A smaller one that may shrink gives back what it needs no more. A bigger one
// that may grow while it runs gets a second workload in its new size, which takes
// the place of the first when it is admitted; until then its additional pods are
// held by a gate. Any other is stopped and queued anew.
func (c *controller) resize(ctx context.Context, j job, wl *kueue.Workload) (bool, error) {
	if workload.IsEvicted(wl) || unchanging(j) {
		return false, nil
	}
	sets, err := j.podSets(ctx, c.client)
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
	case prebuilt(j.meta()):
		return true, c.outOfSync(ctx, wl)
	case !grew && elastic(j):
		return false, nil
	case !elastic(j) || j.held() || !describes(wl, sets):
		return true, c.restart(ctx, j, wl)
	}
	return false, c.grow(ctx, j, wl, sets)
}

// unchanging jobs are the pods they began with, or replacements.
func unchanging(j job) bool {
	g, ok := j.(*podGroup)
	return ok && g.parent == nil
}

func serving(j job) bool {
	g, ok := j.(*podGroup)
	return ok && g.serving()
}

// compareCounts says in which direction a job's pod counts have left what its
// workload says: what was asked for, for one that waits to be started, what was
// admitted, for one that runs, and what of that it still holds, if it is elastic:
// what was given back is asked for again.
func compareCounts(j job, wl *kueue.Workload, sets []kueue.PodSet) (grew, shrank bool, err error) {
	counts := map[kueue.PodSetReference]int32{}
	for _, set := range sets {
		counts[set.Name] = set.Count
	}
	var done map[kueue.PodSetReference]int32
	o, isObject := j.(object)
	if isObject && elastic(j) {
		if done, err = o.done(); err != nil {
			return false, false, err
		}
	}
	for i, set := range wl.Spec.PodSets {
		want := set.Count
		if !j.held() {
			want = admittedCount(wl, i)
		}
		count := counts[set.Name]
		delete(counts, set.Name)
		if done != nil && !j.held() {
			want -= givenBack(wl, set.Name)
			count = max(0, count-done[set.Name])
		}
		grew, shrank = grew || count > want, shrank || count < want
	}
	return grew || len(counts) > 0, shrank, nil
}

// describes says the workload has all pod sets there are; the templates of
// others would not carry what the admission adds.
func describes(wl *kueue.Workload, sets []kueue.PodSet) bool {
	for _, set := range sets {
		if !slices.ContainsFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == set.Name }) {
			return false
		}
	}
	return true
}

// givenBack is the number of pods of a set that the workload needs no more.
func givenBack(wl *kueue.Workload, name kueue.PodSetReference) int32 {
	for _, pods := range wl.Status.ReclaimablePods {
		if pods.Name == name {
			return pods.Count
		}
	}
	return 0
}

// elastic: a job that another cluster runs keeps the size it was sent in.
func elastic(j job) bool {
	return j.row().Spec.Elastic && j.meta().GetAnnotations()[ElasticAnnotation] == "true" && !handedOver(j)
}

// restart puts a job that changed its size back in line. Its templates are
// restored first, but not its counts: those are what the user wants now.
func (c *controller) restart(ctx context.Context, j job, wl *kueue.Workload) error {
	if !j.held() {
		return c.stop(ctx, j, "its number of pods was changed")
	}
	if _, mute := staysGated(j, wl); mute {
		return c.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}) // it stays until the job has stopped there
	}
	active, err := j.active()
	if err != nil || active {
		return err
	}
	sets, err := j.podSets(ctx, c.client)
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
	if err := j.restore(ctx, c.client, old); err != nil {
		return err
	}
	return c.drop(ctx, wl)
}

// grow asks for the quota of the job's new size, beside what it holds.
func (c *controller) grow(ctx context.Context, j job, wl *kueue.Workload, sets []kueue.PodSet) error {
	name := shortName(j.workloadName(), j.workloadName(), strconv.FormatInt(j.meta().GetGeneration(), 10))
	slice := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: wl.Namespace, Name: name}, slice)
	if err == nil {
		return nil // it waits
	}
	if slice, err = c.build(ctx, j, name); err != nil {
		return err
	}
	setAnnotation(slice, workload.ReplacesAnnotation, wl.Namespace+"/"+wl.Name)
	setAnnotation(slice, kueue.WorkloadSliceNameAnnotation, wl.Name)
	slice.Spec.PodSets = nil
	for _, set := range sets {
		if started := set.Template.Annotations[kueue.WorkloadAnnotation]; started != "" {
			setAnnotation(slice, kueue.WorkloadSliceNameAnnotation, started)
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
	c.recorder.Eventf(j.meta(), slice, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", slice.Namespace, slice.Name)
	return nil
}

// elasticPods is the managed label's value on pods of elastic jobs: each waits
// behind a gate until the job has quota for it.
const elasticPods = "elastic"

// gateGrowth makes every pod of an elastic job wait for its turn.
func gateGrowth(j job, infos []podSetInfo) {
	for i := range infos {
		infos[i].labels[ManagedLabel], infos[i].labels[JobUIDLabel] = elasticPods, string(j.meta().GetUID())
		infos[i].gates = append(infos[i].gates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
	}
}

// letGrow takes the gate off as many pods of an elastic job as it holds quota
// for, the oldest first.
func (c *objects) letGrow(ctx context.Context, j object, wl *kueue.Workload) error {
	if !elastic(j) || wl == nil || !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) {
		return nil
	}
	list := &corev1.PodList{}
	if err := c.pods.List(ctx, list, client.InNamespace(j.GetNamespace()), client.MatchingLabels{JobUIDLabel: string(j.GetUID())}); err != nil {
		return err
	}
	room := map[string]int32{}
	for i, set := range wl.Spec.PodSets {
		room[string(set.Name)] = admittedCount(wl, i) - givenBack(wl, set.Name)
	}
	role := func(pod *corev1.Pod) string { return pod.Labels[PodSetLabel] }
	var pods []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if pods = append(pods, pod); live(pod) && !hasGate(pod, kueue.ElasticJobSchedulingGate) {
			room[role(pod)]--
		}
	}
	oldestFirst(pods)
	return letIn(ctx, c.client, pods, kueue.ElasticJobSchedulingGate, role, room, nil)
}

// current is the workload that speaks for a job now. Of several, which a job
// that grows has, it is the newest one admitted, and those before it are
// finished; those that wait for a size the job no longer wants are deleted.
func (c *controller) current(ctx context.Context, j object, wls []kueue.Workload) (*kueue.Workload, error) {
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
					fmt.Sprintf("Replaced to accommodate a workload (UID: %s, JobUID: %s) due to workload slice aggregation", wl.UID, wl.Labels[JobUIDLabel]), c.now())
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
		sets, err := j.podSets(ctx, c.client)
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
