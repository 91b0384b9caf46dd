package engineview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// AdvanceReservation is an advance reservation, for one of its times, as the engine sees it.
func AdvanceReservation(r *policy.Reservation, at policy.Span) admission.AdvanceReservation {
	out := admission.AdvanceReservation{Name: r.ID(), Named: r.Job != "", From: at.From, Until: at.Until, Amounts: map[string]admission.Requests{}, For: r.Whom()}
	if r.For.Kind == v1alpha1.KindClusterQueue {
		out.Queue = r.For.Name
	} else {
		out.LocalQueue = admission.Key{Namespace: r.For.Namespace, Name: r.For.Name}
	}
	for _, q := range r.Quotas {
		if out.Amounts[q.Flavor] == nil {
			out.Amounts[q.Flavor] = admission.Requests{}
		}
		out.Amounts[q.Flavor][q.Resource] = workload.Amount(corev1.ResourceName(q.Resource), q.Amount)
	}
	return out
}
