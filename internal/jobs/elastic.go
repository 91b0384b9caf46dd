package jobs

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ReplacesAnnotation names the workload, as namespace/name, whose quota a
// workload takes over when it is admitted: the same job in another size.
const ReplacesAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"

// resize looks at a job that holds quota and whose number of pods is no longer
// the one it holds quota for. It reports whether it did something about that.
//
// A smaller one that may shrink gives back what it needs no more. A bigger one that may grow
// while it runs gets a second workload in its new size, which takes the place
// of the first when it is admitted. Any other is stopped and queued anew.
func (c *controller) resize(ctx context.Context, j job, wl *kueue.Workload) (bool, error) {
	if workload.IsEvicted(wl) || unchanging(j) {
		return false, nil
	}
	sets, err := j.podSets(ctx, c.client)
	if err != nil {
		return false, err
	}
	grew, shrank := compareCounts(j, wl, sets)
	switch {
	case !grew && !shrank:
		return false, nil
	case prebuilt(j.meta()):
		return true, c.outOfSync(ctx, wl)
	case !grew && (elastic(j) || serving(j)):
		return false, nil // reportProgress gives back what it needs no more
	case !elastic(j):
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
// workload says: what was admitted, for one that runs, and what was asked for,
// for one that waits to be started.
func compareCounts(j job, wl *kueue.Workload, sets []kueue.PodSet) (grew, shrank bool) {
	counts := map[kueue.PodSetReference]int32{}
	for _, set := range sets {
		counts[set.Name] = set.Count
	}
	for i, set := range wl.Spec.PodSets {
		want := set.Count
		if !j.held() {
			want = admittedCount(wl, i)
		}
		count := counts[set.Name]
		delete(counts, set.Name)
		grew, shrank = grew || count > want, shrank || count < want
	}
	return grew || len(counts) > 0, shrank
}

func elastic(j job) bool {
	return j.row().Spec.Elastic && j.meta().GetAnnotations()[ElasticAnnotation] == "true"
}

// restart puts a job that changed its size back in line. Its templates are
// restored first, but not its counts: those are what the user wants now.
func (c *controller) restart(ctx context.Context, j job, wl *kueue.Workload) error {
	if !j.held() {
		return c.stop(ctx, j, "its number of pods was changed")
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
	// What it asks for is what the first asked for, in other numbers: the
	// templates now carry what that admission added.
	slice.Spec.PodSets = wl.DeepCopy().Spec.PodSets
	for i := range slice.Spec.PodSets {
		for _, set := range sets {
			if set.Name == slice.Spec.PodSets[i].Name {
				slice.Spec.PodSets[i].Count, slice.Spec.PodSets[i].MinCount = set.Count, nil
			}
		}
	}
	if slice.Annotations == nil {
		slice.Annotations = map[string]string{}
	}
	slice.Annotations[ReplacesAnnotation] = wl.Namespace + "/" + wl.Name
	if err := c.client.Create(ctx, slice); err != nil {
		return err
	}
	c.recorder.Eventf(j.meta(), slice, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", slice.Namespace, slice.Name)
	return nil
}

// current is the workload that speaks for a job now. Of several, which a job
// that grows has, it is the newest one admitted, and those before it are
// finished; those that wait for a size the job no longer wants are deleted.
func (c *controller) current(ctx context.Context, j object, wls []kueue.Workload) (*kueue.Workload, error) {
	var live []*kueue.Workload
	for i := range wls {
		if len(wls) == 1 || !workload.IsFinished(&wls[i]) {
			live = append(live, &wls[i])
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
				return workload.Finish(old, kueue.WorkloadSliceReplaced, fmt.Sprintf("Replaced to accommodate a workload (UID: %s) with a different size", wl.UID), c.now())
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
		if grew, shrank := compareCounts(j, chosen, sets); !grew && !shrank || !sameCounts(sets, wl.Spec.PodSets) || workload.IsEvicted(chosen) {
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
