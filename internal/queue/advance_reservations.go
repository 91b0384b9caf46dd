package queue

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// reservations is what the loop notes of advance reservations. The engine knows times, not calendars.
type reservations struct {
	inForce []policy.Reservation
	jobs    map[reservedJob]string         // the reservation that is for a job
	known   []admission.AdvanceReservation // to the engine
	again   time.Time                      // when there are others; zero: never
	lacking map[string]string              // what is lacking of a policy's, in words
	checkAt time.Time                      // when to look at that again
}

// reservedJob is a job that a reservation is for, by its LocalQueue, kind and name.
type reservedJob struct {
	localQueue types.NamespacedName
	job        string
}

// lackingInterval is how often the statuses of policies say how much is lacking of their reservations.
const lackingInterval = time.Minute

// resolveReservations takes in what policies say of reservations.
func (s *Shell) resolveReservations() {
	r := &s.reservations
	before := r.jobs
	r.inForce, r.jobs = s.objects.Reservations(), map[reservedJob]string{}
	for i := range r.inForce {
		if one := &r.inForce[i]; one.Job != "" {
			r.jobs[reservedJob{types.NamespacedName{Namespace: one.For.Namespace, Name: one.For.Name}, one.Job}] = one.ID()
		}
	}
	s.tellReservations(s.now())
	if len(before)+len(r.jobs) == 0 {
		return
	}
	for _, t := range s.workloads {
		if reservationOf(before, t.object) != reservationOf(r.jobs, t.object) {
			s.tellEngine(t.object)
		}
	}
}

// reservationOf is the reservation that is for a workload's job; "": none.
func reservationOf(jobs map[reservedJob]string, wl *kueue.Workload) string {
	if len(jobs) == 0 {
		return ""
	}
	localQueue := types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	for i := range wl.OwnerReferences {
		owner := &wl.OwnerReferences[i]
		if id := jobs[reservedJob{localQueue, strings.ToLower(owner.Kind) + "/" + owner.Name}]; id != "" {
			return id
		}
	}
	return ""
}

// tellReservations tells the engine when what is reserved, if that is other than it knows.
func (s *Shell) tellReservations(now time.Time) {
	r := &s.reservations
	var list []admission.AdvanceReservation
	r.again = time.Time{}
	for i := range r.inForce {
		one := &r.inForce[i]
		spans, again := one.Times(now)
		r.again = earliest(r.again, again)
		for _, span := range spans {
			list = append(list, engineview.AdvanceReservation(one, span))
		}
	}
	if !slices.EqualFunc(list, r.known, sameReservation) {
		r.known, r.checkAt = list, time.Time{}
		s.engine.Apply(admission.AdvanceReservationsChanged{Reservations: list})
	}
}

func sameReservation(a, b admission.AdvanceReservation) bool {
	return a.Name == b.Name && a.LocalQueue == b.LocalQueue && a.Queue == b.Queue && a.Named == b.Named && a.From.Equal(b.From) && a.Until.Equal(b.Until) &&
		reflect.DeepEqual(a.Amounts, b.Amounts)
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
	for _, one := range s.engine.AdvanceLacking(now) {
		name := policies[one.Name]
		text := fmt.Sprintf("%s: from %s on %s are lacking, because others have them who could still run then", one.Name, one.From.Format(time.RFC3339), one.Words)
		if lacking[name] != "" {
			text = lacking[name] + "; " + text
		}
		lacking[name] = text
	}
	if !reflect.DeepEqual(lacking, r.lacking) {
		r.lacking, s.policies.reported = lacking, false
	}
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
	if text := s.reservations.lacking[p.Name]; text != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "QuotaInUse", text
	}
	apimeta.SetStatusCondition(&next.Conditions, c)
}
