package admission

import (
	"fmt"
	"runtime/debug"
)

// Panic is a defect that one workload brought to light. The others are decided as if it could not be admitted.
type Panic struct {
	Workload Key
	UID      string
	Value    string
	Stack    []byte
}

// containPanic turns a panic while a workload is evaluated into a refusal of that workload: what was
// tried is rolled back, and it waits as misconfigured.
func (e *Engine) containPanic(w *workload, a *assignment, mark int) {
	v := recover()
	if v == nil {
		return
	}
	e.tx.Rollback(mark)
	value := fmt.Sprint(v)
	a.mode, a.borrow, a.reason, a.failed, a.placed = noFit, 0, ReasonMisconfigured, nil, nil
	a.partial, a.refused, a.lacksReservedOnly = false, refusal{}, false
	a.usage, a.need, a.victims, a.overrides, a.reservation = a.usage[:0], a.need[:0], a.victims[:0], a.overrides[:0], a.reservation[:0]
	a.misses = append(a.misses[:0], miss{reason: ReasonMisconfigured, flavor: -1, resource: -1, fr: -1, text: "a defect in the queue (" + value + "); the other workloads are not affected"})
	a.version = w.queue.tree.version
	e.plan.Panics = append(e.plan.Panics, Panic{Workload: w.spec.Key, UID: w.spec.UID, Value: value, Stack: debug.Stack()})
}
