package reconcile

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// The queue sees no jobs, so the workload of a job says how its indexes ended. Only those are
// written there that somebody waits for: of others nobody has to know, and most jobs have none.

// reportIndexes writes to a job's workload which of its indexes that others wait for have ended.
func (c *objectReconciler) reportIndexes(ctx context.Context, j kinds.Object, wl *kueue.Workload) error {
	if wl == nil || !j.HasIndexes() {
		return nil
	}
	awaited, err := c.awaitedIndexes(ctx, client.ObjectKeyFromObject(j))
	if err != nil || len(awaited) == 0 {
		return err
	}
	text := j.EndedIndexes(awaited).String()
	if text == "" || wl.Annotations[v1alpha1.EndedIndexesAnnotation] == text {
		return nil
	}
	reported := wl.DeepCopy()
	kinds.SetAnnotation(reported, v1alpha1.EndedIndexesAnnotation, text)
	return client.IgnoreNotFound(c.client.Patch(ctx, reported, kinds.OptimisticMerge(wl)))
}

// awaitedIndexes are the indexes of a job that others wait for, sorted.
func (c *objectReconciler) awaitedIndexes(ctx context.Context, job client.ObjectKey) ([]int, error) {
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list, client.MatchingFields{kinds.AwaitedIndex: job.String()}); err != nil {
		return nil, err
	}
	var awaited []int
	for i := range list.Items {
		awaited = append(awaited, workload.AwaitedIndexes(&list.Items[i])[job.String()]...)
	}
	slices.Sort(awaited)
	return slices.Compact(awaited), nil
}

// awaitedJobs are the jobs of a kind of which a workload waits for indexes.
func awaitedJobs(kind *kinds.Kind, wl client.Object) (out []reconcile.Request) {
	if !kind.HasIndexedJobs() {
		return nil
	}
	for _, job := range kinds.AwaitedJobs(wl) {
		namespace, name, _ := strings.Cut(job, "/")
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return out
}
