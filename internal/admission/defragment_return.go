package admission

import "slices"

// Who moves finds other nodes as long as nobody takes them while it ends. So they are set aside: held, in the name of its
// return, beside those that it has still, from the decision that evicts it until it is tried again or does not come back.
// Where they are is not written anywhere: an engine that was started anew finds them again, as far as they are free.

// returnKey is what the nodes are held under that are set aside for a workload.
func (w *workload) returnKey() Key { return Key{w.spec.Namespace, w.spec.Name + " (moves)"} }

// inQueueOrder are those of a plan of moves in the order in which they are tried again.
func inQueueOrder(moves []victim) []victim {
	sorted := slices.Clone(moves)
	slices.SortFunc(sorted, func(a, b victim) int { return queueOrder(a.w, b.w) })
	return sorted
}

// setNodesAside for workloads that move, beside all that is held and without what is being left.
func (e *Engine) setNodesAside(moves []victim) {
	for _, v := range inQueueOrder(moves) {
		w := v.w
		if !w.moving || w.nodesAside || w.phase != phaseEvicting {
			continue
		}
		request := e.placeAgainRequest(w)
		request.Workload = w.returnKey()
		mark := e.tx.Checkpoint()
		e.removeEvicting()
		placed, refusal := e.opts.Placer.Find(request)
		e.tx.Rollback(mark)
		if refusal != nil || placed == nil {
			continue
		}
		e.nodeChanges++
		e.opts.Placer.Hold(request.Workload, placed)
		w.nodesAside = true
		e.nodesAside = append(e.nodesAside, w)
	}
}

// setNodesAsideAgain for those who move and have none: the engine was started anew, or there were none.
func (e *Engine) setNodesAsideAgain() {
	if e.opts.Placer == nil {
		return
	}
	var moves []victim
	for w := range e.evicting { // they are sorted
		if w.moving && !w.nodesAside {
			moves = append(moves, victim{w, ReasonDefragmentation})
		}
	}
	if len(moves) > 0 {
		e.setNodesAside(moves)
	}
}

// releaseNodesAside frees what is set aside for a workload that is tried again now, or does not come back. Others may find
// nodes then that they did not.
func (e *Engine) releaseNodesAside(w *workload) {
	if !w.nodesAside {
		return
	}
	w.nodesAside = false
	e.nodesAside = without(e.nodesAside, w)
	e.nodeChanges++
	e.opts.Placer.Remove(w.returnKey())
	e.nodesReleased = true
}

// reviewNodesAside frees what is set aside for workloads that do not move any more.
func (e *Engine) reviewNodesAside() {
	for _, w := range slices.Clone(e.nodesAside) {
		if !w.moving || w.phase != phaseEvicting && w.phase != phasePending {
			e.releaseNodesAside(w)
		}
	}
	e.announceNodesReleased()
}

// announceNodesReleased has those looked at again who found no nodes beside what was set aside.
func (e *Engine) announceNodesReleased() {
	if e.nodesReleased {
		e.nodesReleased = false
		CapacityChanged{}.apply(e)
	}
}
