package reconcile

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// GenericJob is what the controller needs of a job, whether a suspend flag of its own holds it
// (kinds.Object) or gates on its pods (podgroups.Group).
type GenericJob interface {
	kinds.Job
	// IsSuspended: nothing of it may run. IsStarted: nothing of it is suspended. A group whose pods are
	// replaced one by one can be neither.
	IsSuspended() bool
	IsStarted() bool
	IsActive() (bool, error)
	Finished() (kinds.Outcome, error)
	PodsReady(ctx context.Context, c client.Reader, wl *kueue.Workload) (bool, error)
	ReclaimablePods(ctx context.Context, c client.Reader, wl *kueue.Workload) ([]kueue.ReclaimablePod, error)

	Start(ctx context.Context, c client.Client, wl *kueue.Workload, infos []kinds.PodSetInfo) error
	// Stop returns what it stopped: the job, or pods.
	Stop(ctx context.Context, c client.Client, why kinds.Stop) ([]client.Object, error)
	// Restore removes what Start added, once nothing runs, and leaves a mark of this stop. It fails if the
	// job has been started since it was read.
	Restore(ctx context.Context, c client.Client, wl *kueue.Workload, mark string) error
	// CleanUp does what is left to do once the workload is up to date; nil stands for a job without one.
	CleanUp(ctx context.Context, c client.Client, wl *kueue.Workload) error
}
