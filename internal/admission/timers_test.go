package admission

import (
	"testing"
	"time"
)

// What a workload waits for may be over and come back: its timer is there again.
func TestTimerIsSetAnew(t *testing.T) {
	e, at := New(Options{}), time.Unix(1000, 0)
	w := &workload{spec: Workload{RequeueAt: at}}
	e.setTimer(at, w)
	w.spec.RequeueAt = time.Time{}
	if next := e.nextTimer(); !next.IsZero() {
		t.Fatalf("it waits for nothing, but is looked at at %v", next)
	}
	w.spec.RequeueAt = at
	e.setTimer(at, w)
	if next := e.nextTimer(); !next.Equal(at) {
		t.Errorf("it is looked at at %v, want %v", next, at)
	}
}
