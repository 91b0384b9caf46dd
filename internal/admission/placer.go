package admission

import "slices"

// Placer knows nodes and cards, and answers whether pods fit on them. The
// engine tells it which workload is where; what it knows of nodes comes from elsewhere.
// It is called from Apply and Decide only.
type Placer interface {
	// Place finds nodes for all pods of the request at once, beside everything held, and holds them.
	// It never uses what is held already. A nil Refusal means success, and the first value then goes
	// into the plan untouched.
	Place(PlaceRequest) (placement any, refusal *Refusal)
	// Find is Place in a what-if that is rolled back next, and so need not hold what it finds.
	Find(PlaceRequest) (placement any, refusal *Refusal)
	// Hold notes that a workload occupies a placement, even if that overcommits a card: so it is with
	// workloads found running, and with nominated ones while their victims are still leaving. Holding again
	// replaces; nil places nothing.
	Hold(workload Key, placement any)
	// Remove frees what a workload holds. Removing twice is harmless.
	Remove(workload Key)
	// RemoveLeaving takes pods off their nodes, in a what-if, that are about to end and whose workloads hold
	// nothing any more. It reports whether there are any.
	RemoveLeaving() bool
	// Defragment plans which workloads to move so that all pods of the request fit, and they elsewhere: as few as
	// possible, and of those the cheapest. nil: there is no plan. Nothing changes by asking.
	Defragment(PlaceRequest, DefragmentPlan) []Key
	// Checkpoint starts a what-if; Rollback undoes all changes since that mark.
	// Marks nest and are rolled back in reverse order.
	Checkpoint() (mark int)
	Rollback(mark int)
}

// PlaceRequest asks for nodes for all of a workload's pods that are to be placed now; it may be none.
type PlaceRequest struct {
	Workload   Key
	PodSets    []PlacePodSet // nobody changes them from here on: those who ask for the same may share them
	AvoidNodes []string      // no pod may be on one of these
}

// PlacePodSet is a pod set with the flavors quota gave it.
type PlacePodSet struct {
	Spec    *PodSet // nobody changes it from here on: a Placer may go by its address
	Count   int32
	Flavors []*Flavor // distinct, in order of resource name; nodes must carry all their labels
}

// Refusal says why pods do not fit.
type Refusal struct {
	PodSet string
	// Reason in words for the user, "62 of 64 pods fit": made only for those who are told.
	Reason error
	// NeverFits: not even empty nodes would do, so nobody is preempted for it.
	NeverFits bool
}

// sharedRequest is what was asked for a workload of a request shape last. Most ask again for the same, and what the nodes
// refused one they refuse the others, as long as nothing changes on them.
type sharedRequest struct {
	counts  []int32
	flavors [][]int32
	as      uint64 // Engine.flavorChanges as of which it holds
	podSets []PlacePodSet
	onNodes uint64 // Engine.nodeChanges when that was refused; 0: it was not
	refusal *Refusal
}

// requestOf is what to ask the Placer for an assignment, shared with others of its shape; nil where its queue asks in a way of
// its own.
func (e *Engine) requestOf(a *assignment) *sharedRequest {
	if len(a.w.queue.spec.DelayedPlacement)+len(e.advanceNodes) > 0 {
		return nil
	}
	last := &a.shape.request
	if last.as != e.flavorChanges || !slices.Equal(last.counts, a.counts) || !slices.EqualFunc(last.flavors, a.podSetFlavors(), slices.Equal) {
		*last = sharedRequest{counts: slices.Clone(a.counts), flavors: make([][]int32, len(a.shape.podSets)), as: e.flavorChanges, podSets: e.podSetsToPlace(a)}
		for i := range last.flavors {
			last.flavors[i] = slices.Clone(a.flavors[i])
		}
	}
	return last
}

func (e *Engine) placeRequest(a *assignment) PlaceRequest {
	if shared := e.requestOf(a); shared != nil {
		return PlaceRequest{Workload: a.w.spec.Key, PodSets: shared.podSets}
	}
	return PlaceRequest{Workload: a.w.spec.Key, PodSets: e.podSetsToPlace(a), AvoidNodes: e.avoidNodes(a.w)}
}

func (e *Engine) podSetsToPlace(a *assignment) []PlacePodSet {
	podSets := make([]PlacePodSet, 0, len(a.shape.podSets))
	for i := range a.shape.podSets {
		if a.shape.podSets[i].Elsewhere {
			continue
		}
		ps, later := PlacePodSet{Spec: &a.shape.podSets[i], Count: a.counts[i]}, false
		for _, fl := range a.flavors[i] {
			if fl < 0 {
				continue
			}
			f := &e.flavors[fl].spec
			later = later || slices.Contains(a.w.queue.spec.DelayedPlacement, f.Name)
			if len(ps.Flavors) == 0 || ps.Flavors[len(ps.Flavors)-1] != f && ps.Flavors[0] != f {
				ps.Flavors = append(ps.Flavors, f)
			}
		}
		if !later {
			podSets = append(podSets, ps)
		}
	}
	return podSets
}

// tryPlace asks the Placer without holding what it finds.
func (e *Engine) tryPlace(a *assignment) bool {
	asTheyAre, shared := e.tx.NodesAsTheyAre(), e.requestOf(a)
	a.onNodes = 0
	if asTheyAre && shared != nil && shared.onNodes == e.nodeChanges {
		a.failed = shared.refusal
		return false
	}
	mark := e.tx.Checkpoint()
	e.tx.ChangeNodes()
	placed, refusal := e.opts.Placer.Find(e.placeRequest(a))
	e.tx.Rollback(mark)
	if refusal != nil {
		if a.failed = refusal; asTheyAre && shared != nil {
			shared.onNodes, shared.refusal = e.nodeChanges, refusal
		}
		return false
	}
	if a.placed, a.failed = placed, nil; asTheyAre {
		a.onNodes = e.nodeChanges
	}
	return true
}

// place holds nodes for an assignment: those that were found for it, unless something changed since.
func (e *Engine) place(a *assignment) (any, *Refusal) {
	if a.placed != nil && a.onNodes == e.nodeChanges {
		e.hold(a.w, a.placed)
		return a.placed, nil
	}
	placed, refusal := e.opts.Placer.Place(e.placeRequest(a))
	if refusal == nil {
		e.nodeChanges++
	}
	return placed, refusal
}

// hold and removePlacement change what is on nodes for good.
func (e *Engine) hold(w *workload, placement any) {
	e.nodeChanges++
	e.opts.Placer.Hold(w.spec.Key, placement)
}

func (e *Engine) removePlacement(w *workload) {
	e.nodeChanges++
	e.opts.Placer.Remove(w.spec.Key)
}

// removeEvicting takes workloads that are being evicted off their nodes, and pods of those that were (in a
// what-if). It reports whether there are any.
func (e *Engine) removeEvicting() bool {
	e.tx.ChangeNodes()
	for w := range e.evicting { // removal commutes; the order does not matter
		e.opts.Placer.Remove(w.spec.Key)
	}
	return e.opts.Placer.RemoveLeaving() || len(e.evicting) > 0
}

// findPlacement looks for real nodes for an assignment that quota allows. If the nodes of a flavor
// have no capacity the next flavor is tried; if none has, the assignment needs preemption, or never fits.
func (e *Engine) findPlacement(a *assignment) bool {
	var first *Refusal
	wanted := a.mode
	for {
		if e.placeable(a) {
			return true
		}
		if first == nil {
			first = a.failed
		}
		fl := a.flavorOf(a.failed.PodSet)
		if fl < 0 || len(a.avoid) > len(e.flavors) || !a.w.queue.choice {
			break
		}
		a.avoid = append(a.avoid, fl)
		e.assign(a)
		if a.mode < deferred {
			break
		}
	}
	if len(a.avoid) > 0 {
		a.avoid = a.avoid[:0]
		e.assign(a)
	}
	if a.mode == fit && e.placeableLater(a) {
		a.mode, a.failed = deferred, first
		return true
	}
	a.failed = first
	if first.NeverFits || wanted < deferred {
		a.mode, a.reason = noFit, ReasonTopologyPlacementFailed
		return false
	}
	a.mode = preempt
	for _, u := range a.usage {
		a.need = append(a.need, u.FR)
	}
	return true
}

// placeable checks an assignment on the nodes, as they are or will be.
func (e *Engine) placeable(a *assignment) bool {
	if a.mode == fit {
		return e.tryPlace(a)
	}
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.removeEvicting()
	return e.tryPlace(a)
}

// placeableLater checks an assignment that found no nodes on those that are being left.
func (e *Engine) placeableLater(a *assignment) bool {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	return e.removeEvicting() && e.tryPlace(a)
}

func (a *assignment) flavorOf(podSet string) int32 {
	for i := range a.shape.podSets {
		if a.shape.podSets[i].Name == podSet {
			for _, fl := range a.flavors[i] {
				if fl >= 0 {
					return fl
				}
			}
		}
	}
	return -1
}
