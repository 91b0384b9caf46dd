package queue

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// reservations is what the loop notes of advance reservations. The engine knows times, not calendars.
type reservations struct {
	inForce []policy.Reservation
	jobs    engineview.ReservedJobs
	known   []admission.AdvanceReservation // to the engine
	lacks   map[string][]string            // what is not reserved, and why, by ID
	over    []string                       // those that do not come again, by ID
	again   time.Time                      // when there are others; zero: never
	lacking map[string]string              // what is lacking of a policy's, in words
	checkAt time.Time                      // when to look at that again
}

// lackingInterval is how often the statuses of policies say how much is lacking of their reservations.
const lackingInterval = time.Minute

// resolveReservations takes in what policies say of reservations.
func (s *Shell) resolveReservations() {
	r := &s.reservations
	before := r.jobs
	r.inForce = s.objects.Reservations()
	r.jobs = engineview.NewReservedJobs(r.inForce)
	s.tellReservations(s.now())
	if len(before)+len(r.jobs) == 0 {
		return
	}
	for _, t := range s.workloads {
		if before.Of(t.object) != r.jobs.Of(t.object) {
			s.tellEngine(t.object)
		}
	}
}

// tellReservations tells the engine when what is reserved, if that is other than it knows.
func (s *Shell) tellReservations(now time.Time) {
	r := &s.reservations
	ahead := engineview.AdvanceReservations(r.inForce, now)
	if !reflect.DeepEqual(ahead.Lacking, r.lacks) || !slices.Equal(ahead.Over, r.over) {
		r.lacks, r.over, r.checkAt = ahead.Lacking, ahead.Over, time.Time{}
		s.policies.reported = false
	}
	r.again = ahead.Again
	if !engineview.SameAdvanceReservations(ahead.List, r.known) {
		r.known, r.checkAt = ahead.List, time.Time{}
		s.engine.Apply(admission.AdvanceReservationsChanged{Reservations: ahead.List})
	}
}

// updateReservations has reservations begin anew that come again, and notes what is lacking. It returns when to call it
// again; zero: after the next event.
func (s *Shell) updateReservations(now time.Time) time.Time {
	r := &s.reservations
	if len(r.inForce)+len(r.known) == 0 {
		return time.Time{}
	}
	if !r.again.IsZero() && !now.Before(r.again) {
		s.tellReservations(now)
	}
	if !now.Before(r.checkAt) {
		r.checkAt = now.Add(lackingInterval)
		s.noteLacking(now)
	}
	return earliest(r.again, r.checkAt)
}

// noteLacking finds out what of each policy's reservations others have who could still run then.
func (s *Shell) noteLacking(now time.Time) {
	r := &s.reservations
	policies := map[string]string{}
	for i := range r.inForce {
		policies[r.inForce[i].ID()] = r.inForce[i].Policy
	}
	lacking := map[string]string{}
	tell := func(id, text string) {
		name := policies[id]
		if text = id + ": " + text; lacking[name] != "" {
			text = lacking[name] + "; " + text
		}
		lacking[name] = text
	}
	for _, one := range s.engine.AdvanceLacking(now) {
		tell(one.Name, fmt.Sprintf("from %s on %s are lacking, because others have them who could still run then", one.From.Format(time.RFC3339), one.Words))
	}
	for i := range r.known {
		for _, text := range s.lackingNodes(&r.known[i], now) {
			tell(r.known[i].Name, text)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.lacks)) {
		for _, text := range r.lacks[id] {
			tell(id, text)
		}
	}
	if !reflect.DeepEqual(lacking, r.lacking) {
		r.lacking, s.policies.reported = lacking, false
	}
}

// overOf are the reservations of a policy that do not come again.
func (r *reservations) overOf(policy string) string {
	var ids []string
	for i := range r.inForce {
		if one := &r.inForce[i]; one.Policy == policy && slices.Contains(r.over, one.ID()) {
			ids = append(ids, one.ID())
		}
	}
	return strings.Join(ids, "; ")
}

// lackingNodes says which nodes of a reservation do not exist, or have others on them who could still run when it begins.
func (s *Shell) lackingNodes(r *admission.AdvanceReservation, now time.Time) []string {
	if s.options.Placer == nil {
		return nil // nobody looks at nodes
	}
	moment := r.From
	if moment.Before(now) {
		moment = now
	}
	var texts []string
	for _, node := range r.Nodes {
		if !s.options.Placer.Has(node) {
			texts = append(texts, "nodes: there is no node "+node)
			continue
		}
		for _, key := range s.options.Placer.On(node) {
			if !s.engine.IsFor(r, key) && !s.engine.EndsBy(key, now, moment) {
				texts = append(texts, fmt.Sprintf("from %s on %s has pods of %s, which could still run then", moment.Format(time.RFC3339), node, key))
				break
			}
		}
	}
	return texts
}

// setReservationCondition tells a policy of what is lacking of its reservations.
func (s *Shell) setReservationCondition(p *v1alpha1.QueuePolicy, next *v1alpha1.QueuePolicyStatus, now time.Time) {
	if len(p.Spec.Reservations) == 0 {
		apimeta.RemoveStatusCondition(&next.Conditions, v1alpha1.ReservationsLacking)
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.ReservationsLacking, Status: metav1.ConditionFalse, Reason: "NothingLacking", Message: "What is reserved is there, or will be in time",
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if over := s.reservations.overOf(p.Name); over != "" {
		c.Message += ". Over, with a start that does not come again: " + over
	}
	if text := s.reservations.lacking[p.Name]; text != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "NotAllOfIt", policy.Truncate(text)
	}
	apimeta.SetStatusCondition(&next.Conditions, c)
}
