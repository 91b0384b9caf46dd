package engineview

import (
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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

// AdvanceReservations are when what is reserved, as far ahead as that is known, and when to ask again; zero: never.
func AdvanceReservations(reservations []policy.Reservation, now time.Time) (list []admission.AdvanceReservation, again time.Time) {
	for i := range reservations {
		spans, next := reservations[i].Times(now)
		if again.IsZero() || !next.IsZero() && next.Before(again) {
			again = next
		}
		for _, span := range spans {
			list = append(list, AdvanceReservation(&reservations[i], span))
		}
	}
	return list, again
}

// SameAdvanceReservations says that nothing has changed.
func SameAdvanceReservations(a, b []admission.AdvanceReservation) bool {
	return slices.EqualFunc(a, b, func(a, b admission.AdvanceReservation) bool {
		return a.Name == b.Name && a.LocalQueue == b.LocalQueue && a.Queue == b.Queue && a.Named == b.Named && a.From.Equal(b.From) && a.Until.Equal(b.Until) &&
			reflect.DeepEqual(a.Amounts, b.Amounts)
	})
}

// ReservedJobs are the reservations that are for one job each.
type ReservedJobs map[reservedJob]string

// reservedJob is a job that a reservation is for, by its LocalQueue, kind and name.
type reservedJob struct {
	localQueue types.NamespacedName
	job        string
}

// NewReservedJobs finds those of some reservations.
func NewReservedJobs(reservations []policy.Reservation) ReservedJobs {
	jobs := ReservedJobs{}
	for i := range reservations {
		if r := &reservations[i]; r.Job != "" {
			jobs[reservedJob{types.NamespacedName{Namespace: r.For.Namespace, Name: r.For.Name}, r.Job}] = r.ID()
		}
	}
	return jobs
}

// Of is the reservation that is for a workload's job; "": none.
func (j ReservedJobs) Of(wl *kueue.Workload) string {
	for i := range wl.OwnerReferences {
		owner := &wl.OwnerReferences[i]
		if id := j.Named(types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}, strings.ToLower(owner.Kind), owner.Name); id != "" {
			return id
		}
	}
	return ""
}

// Named is the reservation that is for a job of a LocalQueue by its kind and name; "": none.
func (j ReservedJobs) Named(localQueue types.NamespacedName, kind, name string) string {
	if len(j) == 0 {
		return ""
	}
	return j[reservedJob{localQueue, kind + "/" + name}]
}
