package admission

import (
	"maps"
	"reflect"
	"slices"
	"time"
)

// Events about cohorts, queues, flavors, namespaces and nodes. Objects are reported again for changes
// that are none to us, their status above all; those must cost nothing.

func (ev CohortChanged) apply(e *Engine) {
	if was, ok := e.cohortSpecs[ev.Cohort.Name]; ok && reflect.DeepEqual(was, ev.Cohort) {
		return
	}
	n := e.cohort(ev.Cohort.Name)
	e.cohortSpecs[ev.Cohort.Name] = ev.Cohort
	if ev.Cohort.Parent != "" {
		e.cohort(ev.Cohort.Parent)
	}
	n.Weight = weight(ev.Cohort.FairWeight)
	e.setQuotas(n, ev.Cohort.Groups)
}

func (ev CohortGone) apply(e *Engine) {
	n := e.cohorts[ev.Name]
	if n == nil {
		return
	}
	delete(e.cohortSpecs, ev.Name)
	n.Weight = 1
	e.setQuotas(n, nil)
}

func (ev QueueChanged) apply(e *Engine) {
	q := e.queue(ev.Queue.Name)
	if q.exists && reflect.DeepEqual(q.spec, ev.Queue) {
		return
	}
	reorder := q.spec.Order != ev.Queue.Order
	reclass := reorder || q.spec.UsageFairSharing != ev.Queue.UsageFairSharing || q.spec.Backfill != ev.Queue.Backfill || q.spec.StrictFIFO != ev.Queue.StrictFIFO
	q.spec, q.exists = ev.Queue, true
	if ev.Queue.Cohort != "" {
		e.cohort(ev.Queue.Cohort)
	}
	q.node.Weight = weight(ev.Queue.FairWeight)
	e.setQuotas(q.at, ev.Queue.Groups)
	q.compileGroups(e)
	q.backfilled = 0
	e.requeueMembers(q, reclass)
	if reorder {
		for _, w := range slices.Clone(q.quotaReserved) {
			e.rerankReserved(w)
		}
	}
}

func (ev QueueGone) apply(e *Engine) {
	q := e.queues[ev.Name]
	if q == nil {
		return
	}
	q.tree.dropNominations(e)
	q.at.top.changed = true // the others of its tree lose what it lends, and may use what it used
	q.spec, q.exists = Queue{Name: ev.Name}, false
	e.setQuotas(q.at, nil)
	q.compileGroups(e)
	q.node.Parent, q.node.Root, q.at.top = nil, q.node, q.at
	q.at.tree = e.newTree(q.at)
	q.tree = q.at.tree
	e.requeueMembers(q, true)
	e.dropUnused(q)
}

// dropUnused forgets a queue that nobody describes, names or uses.
func (e *Engine) dropUnused(q *queue) {
	if !q.exists && len(q.locals) == 0 && len(q.quotaReserved) == 0 {
		delete(e.queues, q.name)
	}
}

func weight(w *float64) float64 {
	if w == nil {
		return 1
	}
	return *w
}

// requeueMembers looks again at every workload of a queue whose settings changed.
func (e *Engine) requeueMembers(q *queue, reclass bool) {
	for _, l := range q.locals {
		for _, w := range l.members {
			if !w.hasQuota() {
				if reclass && w.phase == phasePending {
					e.dequeue(w)
				}
				e.enqueueOrHoldBack(w)
			}
		}
	}
	for _, w := range q.quotaReserved {
		e.reviewLater(w)
	}
}

func (ev LocalQueueChanged) apply(e *Engine) {
	l := e.localQueue(ev.LocalQueue.Key)
	spec := ev.LocalQueue
	spec.Consumed, spec.ConsumedAt = l.spec.Consumed, l.spec.ConsumedAt
	if l.exists && reflect.DeepEqual(l.spec, spec) {
		return
	}
	l.exists = true
	retimed := !reflect.DeepEqual(l.spec.Timing, spec.Timing) || spec.Timing != nil && l.spec.Queue != spec.Queue
	if retimed {
		e.timingChanged(l)
	}
	l.setQueue(e.queue(ev.LocalQueue.Queue))
	l.spec = ev.LocalQueue
	l.seedUsage(e, ev.LocalQueue)
	e.notesAt = time.Time{}
	if retimed {
		e.timingChanged(l)
	}
	e.requeueLocal(l)
}

func (ev LocalQueueGone) apply(e *Engine) {
	l := e.locals[ev.Key]
	if l == nil {
		return
	}
	if l.spec.Timing != nil {
		e.timingChanged(l)
	}
	l.exists = false
	l.spec = LocalQueue{Key: ev.Key}
	l.usage.Forget()
	e.requeueLocal(l)
	q := l.queue
	l.setQueue(nil)
	if q != nil {
		e.dropUnused(q)
	}
	if len(l.members) == 0 {
		delete(e.locals, ev.Key)
	}
}

func (l *localQueue) setQueue(q *queue) {
	if l.queue == q {
		return
	}
	if l.queue != nil {
		i := slices.Index(l.queue.locals, l)
		l.queue.locals = slices.Delete(l.queue.locals, i, i+1)
	}
	l.queue = q
	if q != nil {
		q.locals = append(q.locals, l)
	}
}

func (e *Engine) requeueLocal(l *localQueue) {
	for _, w := range l.members {
		if w.hasQuota() {
			e.reviewLater(w)
		} else {
			e.enqueueOrHoldBack(w)
		}
	}
}

func (ev FlavorChanged) apply(e *Engine) { e.changeFlavor(ev.Flavor, true) }

func (ev FlavorGone) apply(e *Engine) { e.changeFlavor(Flavor{Name: ev.Name}, false) }

func (e *Engine) changeFlavor(spec Flavor, exists bool) {
	i := e.flavor(spec.Name)
	f := e.flavors[i]
	if f.exists == exists && reflect.DeepEqual(f.spec, spec) {
		return
	}
	f.spec, f.exists = spec, exists
	e.nodesChanged(i)
}

// nodesChanged looks again at all for whom a flavor's nodes would do, or would not.
func (e *Engine) nodesChanged(i int32) {
	e.flavors[i].version++
	e.flavorChanges++
	e.capacityChanged()
	for _, q := range e.queues { // requeueing is per queue; the order does not matter
		if q.usesFlavor(i) {
			q.requeueAll(e)
		}
	}
}

func (ev NamespaceChanged) apply(e *Engine) {
	if was, ok := e.namespaces[ev.Name]; ok && maps.Equal(was, ev.Labels) {
		return
	}
	e.namespaces[ev.Name] = ev.Labels
	e.requeueNamespace(ev.Name)
}

func (ev NamespaceGone) apply(e *Engine) {
	delete(e.namespaces, ev.Name)
	e.requeueNamespace(ev.Name)
}

func (e *Engine) requeueNamespace(name string) {
	for k, l := range e.locals { // each workload is looked at on its own; the order does not matter
		if k.Namespace == name {
			e.requeueLocal(l)
		}
	}
}

func (ev CapacityChanged) apply(e *Engine) {
	e.capacityChanged()
	if len(ev.Flavors) == 0 {
		for _, f := range e.flavors {
			e.requeueForNodes(f)
		}
	}
	for _, name := range ev.Flavors {
		e.requeueForNodes(e.flavors[e.flavor(name)])
	}
}
