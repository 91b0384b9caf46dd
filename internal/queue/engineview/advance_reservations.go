package engineview

import (
	"cmp"
	"fmt"
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

// Ahead is when what is reserved.
type Ahead struct {
	List  []admission.AdvanceReservation // as far ahead as that is known
	Again time.Time                      // when to ask again; zero: never
	Over  []string                       // IDs of those that do not come again
	// Lacking is what is not reserved, and why, by ID.
	Lacking map[string][]string
}

// AdvanceReservations are when what is reserved. A node is reserved for one at a time: of two reservations that overlap, the
// one of the older policy has it.
func AdvanceReservations(reservations []policy.Reservation, now time.Time) Ahead {
	a, taken := Ahead{Lacking: map[string][]string{}}, reservedNodes{by: map[string][]*admission.AdvanceReservation{}}
	byAge := slices.Clone(reservations)
	slices.SortStableFunc(byAge, func(a, b policy.Reservation) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Policy, b.Policy))
	})
	for i := range byAge {
		r := &byAge[i]
		spans, next := r.Times(now)
		if a.Again.IsZero() || !next.IsZero() && next.Before(a.Again) {
			a.Again = next
		}
		if len(spans) == 0 {
			a.Over = append(a.Over, r.ID())
		}
		for _, span := range spans {
			one := AdvanceReservation(r, span)
			for _, name := range r.Nodes {
				if ok, why := taken.take(name, &one); ok {
					one.Nodes = append(one.Nodes, name)
				} else {
					a.Lacking[r.ID()] = append(a.Lacking[r.ID()], "nodes: "+why)
				}
			}
			slices.Sort(one.Nodes)
			a.List = append(a.List, one)
		}
	}
	return a
}

// mostNodeNames bounds how long the names of all nodes are that are reserved at any time: an admission names those that its
// pods are to avoid.
const mostNodeNames = 24 << 10

// reservedNodes are for whom nodes are reserved, and when.
type reservedNodes struct {
	by    map[string][]*admission.AdvanceReservation
	names int // how long their names are
}

// take notes that a node is reserved; if it cannot be, why.
func (n *reservedNodes) take(name string, r *admission.AdvanceReservation) (bool, string) {
	for _, o := range n.by[name] {
		if o.Name != r.Name && o.From.Before(r.Until) && r.From.Before(o.Until) {
			return false, fmt.Sprintf("%s is not reserved from %s on, since it is for %s until %s", name, r.From.Format(time.RFC3339), o.For, o.Until.Format(time.RFC3339))
		}
	}
	if n.by[name] == nil {
		if n.names+len(name)+1 > mostNodeNames {
			return false, fmt.Sprintf("%s is not reserved: %d other nodes are, and no more can be", name, len(n.by))
		}
		n.names += len(name) + 1
	}
	n.by[name] = append(n.by[name], r)
	return true, ""
}

// SameAdvanceReservations says that nothing has changed.
func SameAdvanceReservations(a, b []admission.AdvanceReservation) bool {
	return slices.EqualFunc(a, b, func(a, b admission.AdvanceReservation) bool {
		return a.Name == b.Name && a.LocalQueue == b.LocalQueue && a.Queue == b.Queue && a.Named == b.Named && a.From.Equal(b.From) && a.Until.Equal(b.Until) &&
			slices.Equal(a.Nodes, b.Nodes) && reflect.DeepEqual(a.Amounts, b.Amounts)
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
