package writes

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spend := func(b *Budget) (n int) {
		for b.Take() {
			n++
		}
		return n
	}
	b := Budget{PerDecision: 0.25, PerSecond: 2, PerIdleSecond: 20, Most: 60, Left: 60}
	b.Advance(start, 0)
	if got := spend(&b); got != 60 {
		t.Errorf("a quiet queue writes %d times at once", got)
	}
	if got := b.Next(); !got.Equal(start.Add(500 * time.Millisecond)) {
		t.Errorf("the next write is at %v", got)
	}
	b.Advance(start.Add(time.Second), 1)
	if got := spend(&b); got != 2 {
		t.Errorf("a busy second is worth %d writes", got)
	}
	b.Advance(start.Add(2*time.Second), 0)
	if got := spend(&b); got != 20 {
		t.Errorf("a quiet second is worth %d writes", got)
	}
	b.Decided(40, keepingUp, start.Add(2*time.Second))
	if got := spend(&b); got != 10 {
		t.Errorf("forty decisions are worth %d writes", got)
	}
	b.Decided(400, keepingUp+1, start.Add(2*time.Second))
	if got := spend(&b); got != 0 {
		t.Errorf("while decisions pile up, more of them are worth %d writes", got)
	}
	b.Advance(start.Add(2*time.Second+quietAfter-time.Millisecond), 0)
	if got := spend(&b); got != 0 {
		t.Errorf("a moment between decisions is worth %d writes, as if it were quiet", got)
	}
	b.Advance(start.Add(time.Hour), 0)
	if got := spend(&b); got != 60 {
		t.Errorf("it saved up %d writes", got)
	}
}
