package kinds

import (
	"context"
	"errors"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Indexes that find the workload of a job: by the job's UID while it exists, by its kind and name
// when it is gone.
const (
	OwnerUIDIndex  = "metadata.ownerReferences.uid"
	OwnerNameIndex = "metadata.ownerReferences.name"
)

// PriorityClassIndex finds the workloads of a WorkloadPriorityClass.
const PriorityClassIndex = "spec.priorityClassRef.name"

// PriorityClassOf is the WorkloadPriorityClass of a workload, as a value of PriorityClassIndex.
func PriorityClassOf(obj client.Object) []string {
	wl, ok := obj.(*kueue.Workload)
	if !ok || wl.Spec.PriorityClassRef == nil || wl.Spec.PriorityClassRef.Kind != kueue.WorkloadPriorityClassKind {
		return nil
	}
	return []string{wl.Spec.PriorityClassRef.Name}
}

// AwaitedIndex finds the workloads that wait for indexes of a job, by its namespace and name.
const AwaitedIndex = "elasticai.io/after.indexes"

// AwaitedJobs are the jobs of which a workload waits for indexes, as values of AwaitedIndex.
func AwaitedJobs(obj client.Object) []string {
	wl, ok := obj.(*kueue.Workload)
	if !ok {
		return nil
	}
	return slices.Sorted(maps.Keys(workload.AwaitedIndexes(wl)))
}

// IndexWorkloads adds the indexes of workloads by their controlling owner, by their class, and by the jobs whose indexes they
// wait for.
func IndexWorkloads(ctx context.Context, indexer client.FieldIndexer) error {
	for field, value := range map[string]func(*metav1.OwnerReference) string{
		OwnerUIDIndex: func(owner *metav1.OwnerReference) string { return string(owner.UID) },
		OwnerNameIndex: func(owner *metav1.OwnerReference) string {
			return OwnerKey(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(), owner.Name)
		},
	} {
		err := indexer.IndexField(ctx, &kueue.Workload{}, field, func(obj client.Object) []string {
			if owner := metav1.GetControllerOf(obj); owner != nil {
				return []string{value(owner)}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(
		indexer.IndexField(ctx, &kueue.Workload{}, PriorityClassIndex, PriorityClassOf),
		indexer.IndexField(ctx, &kueue.Workload{}, AwaitedIndex, AwaitedJobs),
	)
}

// OwnerKey is a job's key in OwnerNameIndex.
func OwnerKey(kind schema.GroupKind, name string) string { return kind.String() + "/" + name }
