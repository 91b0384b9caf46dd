package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// Reservation is an advance reservation in force, and for whom.
type Reservation struct {
	v1alpha1.Reservation

	For    v1alpha1.TargetRef
	Policy string
	Since  time.Time // when the policy was made
}

// ID is of no other reservation.
func (r *Reservation) ID() string { return targetOf(r.For).String() + ", " + r.Name }

// Whom are those it is for, as in LocalQueue/vision/main.
func (r *Reservation) Whom() string {
	if r.Job != "" {
		return r.Job + " of " + targetOf(r.For).String()
	}
	return targetOf(r.For).String()
}

// Reservations that come again are known this far ahead, and this many times. A workload that runs longer, or nobody knows
// how long, meets those that come later when they come nearer.
const (
	reservedAhead = 31 * 24 * time.Hour
	mostSpans     = 8
)

// Times are when a reservation lasts that is not over, and when to ask again.
func (r *Reservation) Times(now time.Time) (spans []Span, again time.Time) {
	schedule, err := scheduleOf(r.Start, r.Duration, r.TimeZone, true)
	if err != nil {
		return nil, time.Time{} // the policy was checked
	}
	day := now.UTC().Truncate(24 * time.Hour) // by the day, so that it does not matter when it was asked first
	spans = schedule.Spans(now, day.Add(reservedAhead), mostSpans)
	if len(spans) == 0 {
		return nil, time.Time{}
	}
	if again = day.Add(24 * time.Hour); spans[0].Until.Before(again) {
		again = spans[0].Until
	}
	return spans, again
}

// Reservations are those in force, by ID.
func (r *Resolved) Reservations() []Reservation {
	var list []Reservation
	for t, p := range r.counts {
		if len(p.Spec.Reservations) == 0 || t.kind == v1alpha1.KindCohort || !r.exists(t) || checkReservations(&p.Spec) != nil {
			continue
		}
		for i := range p.Spec.Reservations {
			list = append(list, Reservation{
				Reservation: p.Spec.Reservations[i], Policy: p.Name, Since: p.CreationTimestamp.Time,
				For: v1alpha1.TargetRef{Kind: t.kind, Name: t.name.Name, Namespace: t.name.Namespace},
			})
		}
	}
	slices.SortFunc(list, func(a, b Reservation) int { return strings.Compare(a.ID(), b.ID()) })
	return list
}

// reservationsText are reservations in a line.
func reservationsText(s *v1alpha1.QueuePolicySpec) string {
	var list []string
	for i := range s.Reservations {
		r := &s.Reservations[i]
		var amounts []string
		for _, q := range r.Quotas {
			amounts = append(amounts, q.Amount.String()+" "+q.Resource+" of "+q.Flavor)
		}
		if len(r.Nodes) > 0 {
			amounts = append(amounts, "nodes "+strings.Join(r.Nodes, " "))
		}
		text := fmt.Sprintf("%s (%s, %s, %s): %s", r.Name, r.Start, r.Duration, cmp.Or(r.TimeZone, "UTC"), strings.Join(amounts, ", "))
		if r.Job != "" {
			text += " for " + r.Job
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

var mostReserved = resource.MustParse("1E")

func checkReservations(s *v1alpha1.QueuePolicySpec) error {
	local := !slices.ContainsFunc(s.TargetRefs, func(t v1alpha1.TargetRef) bool { return t.Kind != v1alpha1.KindLocalQueue })
	seen := map[string]bool{}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		_, err := scheduleOf(r.Start, r.Duration, r.TimeZone, true)
		switch kind, name, _ := strings.Cut(r.Job, "/"); {
		case err != nil:
			return fmt.Errorf("%s: %w", r.Name, err)
		case seen[r.Name]:
			return fmt.Errorf("%s: there are two of this name", r.Name)
		case r.Job != "" && (kind == "" || name == "" || strings.Contains(name, "/")):
			return fmt.Errorf("%s: job: %q is no kind and name such as job/paper", r.Name, r.Job)
		case r.Job != "" && !local:
			return fmt.Errorf("%s: job: it is one of a LocalQueue's namespace: target that LocalQueue alone", r.Name)
		case len(r.Quotas)+len(r.Nodes) == 0:
			return fmt.Errorf("%s: quotas: it reserves nothing, nor does it name nodes", r.Name)
		}
		seen[r.Name] = true
		if err := checkNodes(r.Nodes); err != nil {
			return fmt.Errorf("%s: nodes: %w", r.Name, err)
		}
		for _, q := range r.Quotas {
			if q.Amount.Sign() <= 0 || q.Amount.Cmp(mostReserved) > 0 {
				return fmt.Errorf("%s: %s of %s: %s must be more than 0 and at most %s", r.Name, q.Resource, q.Flavor, q.Amount.String(), mostReserved.String())
			}
		}
	}
	return nil
}

// mostNodes is how many nodes a reservation may name.
const mostNodes = 64

// checkNodes says what is wrong with the names of nodes.
func checkNodes(nodes []string) error {
	if len(nodes) > mostNodes {
		return fmt.Errorf("%d are more than %d", len(nodes), mostNodes)
	}
	for i, name := range nodes {
		switch {
		case len(validation.IsDNS1123Subdomain(name)) > 0:
			return fmt.Errorf("%q is no name of a node", name)
		case slices.Contains(nodes[:i], name):
			return fmt.Errorf("%s is there twice", name)
		}
	}
	return nil
}
