package queue

import (
	"testing"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

func TestBudget(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spend := func(b *budget) (n int) {
		for b.take() {
			n++
		}
		return n
	}
	b := budget{perDecision: 0.25, perSecond: 2, perIdleSecond: 20, most: 60, left: 60}
	b.pass(start, 0)
	if got := spend(&b); got != 60 {
		t.Errorf("a quiet queue tells %d things at once", got)
	}
	if got := b.next(); !got.Equal(start.Add(500 * time.Millisecond)) {
		t.Errorf("the next write is at %v", got)
	}
	b.pass(start.Add(time.Second), 1)
	if got := spend(&b); got != 2 {
		t.Errorf("a busy second is worth %d writes", got)
	}
	b.pass(start.Add(2*time.Second), 0)
	if got := spend(&b); got != 20 {
		t.Errorf("a quiet second is worth %d writes", got)
	}
	b.decided(40, keepingUp, start.Add(2*time.Second))
	if got := spend(&b); got != 10 {
		t.Errorf("forty decisions are worth %d writes", got)
	}
	b.decided(400, keepingUp+1, start.Add(2*time.Second))
	if got := spend(&b); got != 0 {
		t.Errorf("while decisions pile up, more of them are worth %d writes", got)
	}
	b.pass(start.Add(2*time.Second+lull-time.Millisecond), 0)
	if got := spend(&b); got != 0 {
		t.Errorf("a moment between decisions is worth %d writes, as if it were quiet", got)
	}
	b.pass(start.Add(time.Hour), 0)
	if got := spend(&b); got != 60 {
		t.Errorf("it saved up %d writes", got)
	}
}

func TestReasons(t *testing.T) {
	park := func(name, message string) admission.Pending {
		return admission.Pending{Workload: admission.Key{Namespace: "ns", Name: name}, Message: message}
	}
	r := newReasons()
	r.budget = budget{left: 2, most: 2, perSecond: 1, perIdleSecond: 1}
	r.add(park("a", "old"))
	r.add(park("b", "admitted meanwhile"))
	r.add(park("c", "third"))
	r.add(park("d", "fourth"))
	r.add(park("a", "new"))
	r.drop(admission.Key{Namespace: "ns", Name: "b"})
	var told []string
	for p, ok := r.pop(); ok; p, ok = r.pop() {
		told = append(told, p.Message)
	}
	if len(told) != 2 || told[0] != "new" || told[1] != "third" {
		t.Errorf("told %v, want the newest word of each, in order, two of them", told)
	}
	if r.next().IsZero() {
		t.Error("somebody still waits to be told")
	}
	r.budget.left = 1
	if p, ok := r.pop(); !ok || p.Message != "fourth" || !r.next().IsZero() {
		t.Errorf("then told %v", p)
	}
}
