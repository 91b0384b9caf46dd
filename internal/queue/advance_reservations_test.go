package queue

import (
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// reservePolicy reserves all four CPUs of the queue for LocalQueue paper, tomorrow at nine in Berlin, which is eight in UTC.
func reservePolicy(job string) *v1alpha1.QueuePolicy {
	p := named(&v1alpha1.QueuePolicy{}, "ahead")
	p.UID, p.Generation = "ahead", 1
	p.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "paper"}}
	p.Spec.Reservations = []v1alpha1.Reservation{{
		Name: "deadline", Start: "2026-01-03T09:00", Duration: "2h", TimeZone: "Europe/Berlin", Job: job,
		Quotas: []v1alpha1.ReservedQuota{{Flavor: "default", Resource: "cpu", Amount: resource.MustParse("4")}},
	}}
	return p
}

func (p *harness) paperQueue() {
	p.oneQueue()
	lq := &kueue.LocalQueue{}
	lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", "paper", "paper", "cq"
	p.see(lq)
}

func (p *harness) runs(name, queue string, cpus string, seconds int32) {
	wl := p.workload(name, queue, "", 0, cpus)
	if seconds > 0 {
		wl.Spec.MaximumExecutionTimeSeconds = ptr.To(seconds)
	}
	p.see(wl)
}

func (p *harness) started(name string) bool { return workload.HasReservation(p.written[name]) }

// A reservation holds from the turn in which its policy comes until it is over or the policy goes; a new leader knows it, too.
func TestReservationComesAndGoes(t *testing.T) {
	p := newHarness(t)
	p.paperQueue()
	policy := reservePolicy("")
	p.see(policy)
	p.runs("unknown", "main", "1", 0)
	p.runs("long", "main", "1", 30*3600)
	p.runs("short", "main", "1", 3600)
	p.runs("mine", "paper", "1", 0)
	if p.started("unknown") || p.started("long") || !p.started("short") || !p.started("mine") {
		t.Fatal(p.started("unknown"), p.started("long"), p.started("short"), p.started("mine"))
	}
	if x := p.engine.Explain(admission.Key{Namespace: "ns", Name: "long"}, p.time); x.Reason != admission.ReasonReservedForOthers ||
		!strings.Contains(x.Message, "4 cpu of default are reserved for LocalQueue/ns/paper from Sat 3 Jan 2026 09:00 Europe/Berlin") {
		t.Errorf("%+v", x)
	}
	next := newHarness(t)
	next.paperQueue()
	next.see(policy, p.written["unknown"], p.written["long"], p.written["short"], p.written["mine"])
	if next.started("unknown") || next.started("long") {
		t.Error("another leader starts what this one does not")
	}
	p.turn([]message{{object: policy, deleted: true}})
	p.see()
	if !p.started("unknown") || !p.started("long") {
		t.Error("the policy is gone, and they still wait")
	}
}

// It is over at its minute, without any event.
func TestReservationEnds(t *testing.T) {
	p := newHarness(t)
	p.paperQueue()
	p.see(reservePolicy(""))
	p.runs("unknown", "main", "4", 0)
	if p.started("unknown") {
		t.Fatal("started on what is reserved")
	}
	end := time.Date(2026, 1, 3, 10, 0, 0, 0, time.UTC)
	for !p.time.Equal(end) {
		next := p.turn(nil)
		if !next.After(p.time) || next.After(end) {
			t.Fatalf("at %s the next turn is at %s", p.time, next)
		}
		p.time = next
	}
	p.see()
	if !p.started("unknown") {
		t.Error("the reservation is over, and it still waits")
	}
}

// One for a job is for no other job of its LocalQueue, whichever of the two comes first.
func TestReservationForOneJob(t *testing.T) {
	p := newHarness(t)
	p.paperQueue()
	of := func(name, job string) *kueue.Workload {
		wl := p.workload(name, "paper", "", 0, "2")
		wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID(job)}}
		return wl
	}
	stays := p.workload("stays", "main", "", 5, "4")
	p.see(stays)
	p.see(of("before", "paper"), of("other", "draft"))
	p.see(reservePolicy("job/paper"))
	p.turn([]message{{object: p.written["stays"], deleted: true}})
	p.see()
	if !p.started("before") || p.started("other") {
		t.Fatal(p.started("before"), p.started("other"))
	}
}

// What others have who may run longer is told in the status.
func TestReservationIsLacking(t *testing.T) {
	p := newHarness(t)
	p.paperQueue()
	p.runs("unknown", "main", "3", 0)
	policy := reservePolicy("")
	p.turn([]message{{object: policy}})
	lacking := func() *metav1.Condition {
		t.Helper()
		writes := p.policyWrites()
		if len(writes) != 1 {
			t.Fatalf("%d writes", len(writes))
		}
		p.turn([]message{{statusWritten: &statusResult{queue: writes[0]}}})
		return apimeta.FindStatusCondition(writes[0].Status.Conditions, v1alpha1.ReservationsLacking)
	}
	if got := lacking(); got == nil || got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "3 cpu of default are lacking") {
		t.Fatalf("%+v", got)
	}
	p.turn([]message{{object: p.written["unknown"], deleted: true}})
	p.advance(lackingInterval)
	p.turn(nil)
	if got := lacking(); got == nil || got.Status != metav1.ConditionFalse {
		t.Errorf("%+v", got)
	}
}

// With nodes by name an admission says which to avoid, in the same write; another leader, and who comes later, knows the same.
func TestReservationOfNodes(t *testing.T) {
	p := newHarness(t)
	p.paperQueue()
	policy := reservePolicy("")
	policy.Spec.Reservations[0].Quotas, policy.Spec.Reservations[0].Nodes = nil, []string{"n2", "n1"}
	p.see(policy)
	p.runs("unknown", "main", "1", 0)
	p.runs("short", "main", "1", 3600)
	p.runs("mine", "paper", "1", 0)
	for name, want := range map[string]string{"unknown": "n1,n2", "short": "", "mine": ""} {
		if got := strings.Join(workload.AvoidNodes(p.written[name]), ","); got != want || !p.started(name) {
			t.Errorf("%s avoids %q, not %q", name, got, want)
		}
	}
	p.turn([]message{{object: policy, deleted: true}})
	p.runs("later", "main", "1", 0)
	if !p.started("later") || len(workload.AvoidNodes(p.written["later"])) > 0 {
		t.Error("the policy is gone, and nodes are avoided still")
	}
}

// What is not reserved, and what is over, is in the status.
func TestReservationOfNodesInStatus(t *testing.T) {
	p := newHarness(t)
	p.paperQueue()
	older, younger := reservePolicy(""), reservePolicy("")
	older.Spec.Reservations[0].Nodes = []string{"n1"}
	younger.Name, younger.UID, younger.CreationTimestamp = "younger", "younger", metav1.NewTime(p.time)
	younger.Spec.TargetRefs[0].Name = "main"
	younger.Spec.Reservations[0].Quotas, younger.Spec.Reservations[0].Nodes = nil, []string{"n1"}
	younger.Spec.Reservations = append(younger.Spec.Reservations, v1alpha1.Reservation{Name: "past", Start: "2020-01-03T09:00", Duration: "2h", Nodes: []string{"n3"}})
	p.turn([]message{{object: older}, {object: younger}})
	for _, written := range p.policyWrites() {
		c := apimeta.FindStatusCondition(written.Status.Conditions, v1alpha1.ReservationsLacking)
		lacks := strings.Contains(c.Message, "LocalQueue/ns/main, deadline: nodes: n1 is not reserved from 2026-01-03T09:00:00+01:00 on, since it is for LocalQueue/ns/paper")
		if want := written.Name == "younger"; want != (c.Status == metav1.ConditionTrue) || want != lacks {
			t.Errorf("%s: %+v", written.Name, c)
		}
		p.turn([]message{{statusWritten: &statusResult{queue: written}}})
	}
	younger.Spec.Reservations, younger.Generation = younger.Spec.Reservations[1:], 2
	p.turn([]message{{object: younger.DeepCopy()}})
	writes := p.policyWrites()
	last := writes[len(writes)-1]
	c := apimeta.FindStatusCondition(last.Status.Conditions, v1alpha1.ReservationsLacking)
	if last.Name != "younger" || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "Over, with a start that does not come again: LocalQueue/ns/main, past") {
		t.Errorf("%s: %+v", last.Name, c)
	}
}
