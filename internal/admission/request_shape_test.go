package admission

import (
	"testing"
	"time"
)

// Request shapes outlive their workloads, for those that ask for the same again; of many that nobody has, few are kept.
func TestShapesThatNobodyHas(t *testing.T) {
	e := New(Options{})
	fill(e, 1, 1, 1_000, Preemption{})
	at := time.Unix(1_000_000, 0)
	asks := func(i int, cpu int64) *requestShape {
		w := benchWorkload(i, "c0-q0", cpu, 0)
		e.Apply(WorkloadChanged{w})
		shape := e.workloads[w.Key].class.shape
		e.Decide(at)
		e.Apply(WorkloadGone{w.Key})
		return shape
	}
	first := asks(0, 100)
	if asks(1, 100) != first {
		t.Error("the same request has another shape")
	}
	for i := range 10 * idleShapes {
		asks(2+i, int64(101+i))
	}
	if n := len(e.shapes); n > 2*idleShapes || n != e.shapesIdle {
		t.Errorf("%d shapes are kept, and %d counted as nobody's", n, e.shapesIdle)
	}
	// Those that somebody has stay, however many.
	for i := range 10 * idleShapes {
		e.Apply(WorkloadChanged{benchWorkload(i, "c0-q0", int64(2_000+i), 0)})
	}
	if n := len(e.shapes) - e.shapesIdle; n != 10*idleShapes {
		t.Errorf("%d shapes are in use, want %d", n, 10*idleShapes)
	}
}
