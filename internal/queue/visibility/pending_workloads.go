package visibility

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/visibility/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue"
)

// PendingLister is the queue's loop, as Kueue's visibility API needs it.
type PendingLister interface {
	// PendingInClusterQueue lists the pending workloads of a ClusterQueue, in queue order.
	PendingInClusterQueue(ctx context.Context, clusterQueue string) ([]kueue.PendingWorkload, error)
	// PendingInLocalQueue lists those from one LocalQueue.
	PendingInLocalQueue(ctx context.Context, localQueue client.ObjectKey) ([]kueue.PendingWorkload, error)
}

// Kueue's limits on one answer.
const (
	usualLimit = 1000
	mostLimit  = 100_000
)

// PendingWorkloads serves the pending workloads of a queue, in both of Kueue's versions.
func PendingWorkloads(l PendingLister) []Resource {
	var rows []Resource
	for _, version := range []string{kueue.SchemeGroupVersion.Version, kueuev1beta1.SchemeGroupVersion.Version} {
		row := Resource{
			Group: kueue.SchemeGroupVersion.Group, Version: version, Name: "clusterqueues", Subresource: "pendingworkloads",
			Kind: "PendingWorkloadsSummary", Verb: "get",
			Handle: func(ctx context.Context, q *Request) (any, error) {
				pending, err := l.PendingInClusterQueue(ctx, q.Name)
				return summary(version, q, pending, err, "clusterqueue")
			},
		}
		local := row
		local.Name, local.Namespaced = "localqueues", true
		local.Handle = func(ctx context.Context, q *Request) (any, error) {
			pending, err := l.PendingInLocalQueue(ctx, client.ObjectKey{Namespace: q.Namespace, Name: q.Name})
			return summary(version, q, pending, err, "localqueue")
		}
		rows = append(rows, row, local)
	}
	return rows
}

// summary is the part of the list that was asked for.
func summary(version string, q *Request, pending []kueue.PendingWorkload, err error, resource string) (any, error) {
	where := schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: resource}
	switch {
	case errors.Is(err, queue.ErrNotLeading):
		return nil, apierrors.NewGenericServerResponse(503, "get", where, q.Name, err.Error()+", ask again", 1, true)
	case errors.Is(err, queue.ErrUnknown):
		return nil, apierrors.NewNotFound(where, q.Name)
	case err != nil:
		return nil, err
	}
	limit, err := number(q, "limit", usualLimit)
	if err != nil {
		return nil, err
	}
	offset, err := number(q, "offset", 0)
	if err != nil {
		return nil, err
	}
	pending = pending[min(offset, len(pending)):]
	pending = pending[:min(limit, mostLimit, len(pending))]
	return &kueue.PendingWorkloadsSummary{
		TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.Group + "/" + version, Kind: "PendingWorkloadsSummary"},
		Items:    append([]kueue.PendingWorkload{}, pending...),
	}, nil
}

// number reads one from the query; below zero counts as zero, as in Kueue, and a limit of zero as
// the usual one.
func number(q *Request, name string, usual int) (int, error) {
	values := q.Query[name]
	if len(values) == 0 || values[0] == "" || values[0] == "0" {
		return usual, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%s: %q is not a number", name, values[0]))
	}
	return max(0, int(n)), nil
}
