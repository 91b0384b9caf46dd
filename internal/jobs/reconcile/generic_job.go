package reconcile

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// job is what the controller wants of a job, whatever holds it back: a flag of
// its own (object), or gates on its pods (podGroup).
type GenericJob interface {
	kinds.Job
	// held: nothing of it may run. started: nothing of it is held back. Pods that
	// are replaced one by one can be neither.
	IsSuspended() bool
	IsStarted() bool
	IsActive() (bool, error)
	Finished() (kinds.Outcome, error)
	PodsReady(wl *kueue.Workload) (bool, error)
	ReclaimablePods(wl *kueue.Workload) ([]kueue.ReclaimablePod, error)

	Start(ctx context.Context, c client.Client, wl *kueue.Workload, additions []kinds.PodSetInfo) error
	Stop(ctx context.Context, c client.Client, why string) error
	// restore takes away what start added, once nothing runs.
	Restore(ctx context.Context, c client.Client, wl *kueue.Workload) error
	// settle does what is left to do once the workload is as it should be.
	CleanUp(ctx context.Context, c client.Client, wl *kueue.Workload) error
}
