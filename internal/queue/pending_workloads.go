package queue

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Line is who waits in a ClusterQueue, in order.
func (s *Shell) PendingInClusterQueue(ctx context.Context, clusterQueue string) ([]visibility.PendingWorkload, error) {
	var line []visibility.PendingWorkload
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "line")
	err := s.ask(ctx, func() {
		if _, known = s.objects.ClusterQueues[clusterQueue]; known {
			line = s.pendingWorkloads(clusterQueue, nil)
		}
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return line, err
}

// LocalLine is who waits there from one LocalQueue.
func (s *Shell) PendingInLocalQueue(ctx context.Context, localQueue client.ObjectKey) ([]visibility.PendingWorkload, error) {
	var line []visibility.PendingWorkload
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "line")
	err := s.ask(ctx, func() {
		var lq *kueue.LocalQueue
		if lq, known = s.objects.LocalQueues[localQueue]; known {
			line = s.pendingWorkloads(string(lq.Spec.ClusterQueue), lq)
		}
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return line, err
}

// line is the engine's, in the words of Kueue's API; of one LocalQueue, or all.
func (s *Shell) pendingWorkloads(clusterQueue string, of *kueue.LocalQueue) []visibility.PendingWorkload {
	var line []visibility.PendingWorkload
	for _, place := range s.engine.PendingWorkloads(clusterQueue) {
		if of != nil && (place.Workload.Namespace != of.Namespace || place.LocalQueue != of.Name) {
			continue
		}
		if t := s.workloads[place.Workload]; t != nil {
			line = append(line, pendingWorkload(t.object, place))
		}
	}
	return line
}

func pendingWorkload(wl *kueue.Workload, place admission.PendingWorkload) visibility.PendingWorkload {
	out := visibility.PendingWorkload{
		ObjectMeta:             metav1.ObjectMeta{Name: wl.Name, Namespace: wl.Namespace, CreationTimestamp: wl.CreationTimestamp},
		Priority:               int32(place.Priority),
		LocalQueueName:         wl.Spec.QueueName,
		PositionInClusterQueue: int32(place.Position),
		PositionInLocalQueue:   int32(place.LocalPosition),
	}
	for _, owner := range wl.OwnerReferences {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID,
		})
	}
	return out
}
