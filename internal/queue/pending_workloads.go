package queue

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
)

// PendingInClusterQueue lists the pending workloads of a ClusterQueue, in queue order.
func (s *Shell) PendingInClusterQueue(ctx context.Context, clusterQueue string) ([]visibility.PendingWorkload, error) {
	var pending []visibility.PendingWorkload
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "line")
	err := s.ask(ctx, func() {
		if _, known = s.objects.ClusterQueues[clusterQueue]; known {
			pending = s.pendingWorkloads(clusterQueue, nil)
		}
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return pending, err
}

// PendingInLocalQueue lists those from one LocalQueue.
func (s *Shell) PendingInLocalQueue(ctx context.Context, localQueue client.ObjectKey) ([]visibility.PendingWorkload, error) {
	var pending []visibility.PendingWorkload
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "line")
	err := s.ask(ctx, func() {
		var lq *kueue.LocalQueue
		if lq, known = s.objects.LocalQueues[localQueue]; known {
			pending = s.pendingWorkloads(string(lq.Spec.ClusterQueue), lq)
		}
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return pending, err
}

// pendingWorkloads are the engine's, in the types of Kueue's API; from one LocalQueue, or from all.
func (s *Shell) pendingWorkloads(clusterQueue string, of *kueue.LocalQueue) []visibility.PendingWorkload {
	var pending []visibility.PendingWorkload
	for _, entry := range s.engine.PendingWorkloads(clusterQueue) {
		if of != nil && (entry.Workload.Namespace != of.Namespace || entry.LocalQueue != of.Name) {
			continue
		}
		if t := s.workloads[entry.Workload]; t != nil {
			pending = append(pending, pendingWorkload(t.object, entry))
		}
	}
	return pending
}

func pendingWorkload(wl *kueue.Workload, entry admission.PendingWorkload) visibility.PendingWorkload {
	out := visibility.PendingWorkload{
		ObjectMeta:             metav1.ObjectMeta{Name: wl.Name, Namespace: wl.Namespace, CreationTimestamp: wl.CreationTimestamp},
		Priority:               int32(entry.Priority),
		LocalQueueName:         wl.Spec.QueueName,
		PositionInClusterQueue: int32(entry.Position),
		PositionInLocalQueue:   int32(entry.LocalPosition),
	}
	for _, owner := range wl.OwnerReferences {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID,
		})
	}
	return out
}
