package admission

import (
	"cmp"
	"maps"
	"slices"
)

// requestShape is what pending workloads ask for: their pods and constraints. Equal ones share it, in any queue.
type requestShape struct {
	classes  int // of this request shape
	podSets  []PodSet
	counts   []int32        // pods still to run
	requests [][]podRequest // by pod set; pods last
	groups   [][]int        // pod sets that share their flavors
	shrinks  bool           // some pod set has a smaller minimum
	simple   bool           // one pod set that asks for one resource, pods not counted
	last     sharedPodSets
	request  sharedRequest
	accepts  []flavorVerdict // by flavor: is it allowed for each pod set group
}

// sharedPodSets is what a workload of a request shape got last.
type sharedPodSets struct {
	counts  []int32
	flavors [][]int32
	podSets []PodSetAssignment
}

type podRequest struct {
	resource int32
	v        int64
}

// flavorVerdict remembers, per group of pod sets, why a flavor is refused ("" accepted), and why for resources that
// the pods do not ask of nodes.
type flavorVerdict struct {
	version   uint32 // of the flavor, plus one
	why       []string
	quotaOnly []string
}

func (e *Engine) newShape(podSets []PodSet) *requestShape {
	s := &requestShape{podSets: podSets, counts: make([]int32, len(podSets)), requests: make([][]podRequest, len(podSets)), groups: make([][]int, 0, len(podSets))}
	members := make([]int, len(podSets))
	for i := range podSets {
		ps := &podSets[i]
		left := ps.Left()
		s.counts[i] = left
		e.scratch.names = appendSorted(e.scratch.names[:0], ps.Requests)
		reqs := make([]podRequest, 0, len(ps.Requests)+1)
		for _, res := range e.scratch.names {
			if res != Pods {
				reqs = append(reqs, podRequest{e.resource(res), ps.Requests[res]})
			}
		}
		s.requests[i] = append(reqs, podRequest{e.resource(Pods), 1})
		if ps.MinCount > 0 && ps.MinCount < left {
			s.shrinks = true
		}
		if g := slices.IndexFunc(s.groups, func(ids []int) bool { return podSets[ids[0]].Group == ps.Group }); g >= 0 && ps.Group != "" {
			s.groups[g] = append(s.groups[g], i)
			continue
		}
		members[i] = i
		s.groups = append(s.groups, members[i:i+1:i+1])
	}
	s.simple = len(podSets) == 1 && len(s.requests[0]) == 2 && !s.shrinks
	return s
}

// refuses says why a flavor cannot serve a group of pod sets with some resources, "" if it can.
func (s *requestShape) refuses(e *Engine, fl int32, g int, resources []int32) string {
	f := e.flavors[fl]
	for len(s.accepts) <= int(fl) {
		s.accepts = append(s.accepts, flavorVerdict{})
	}
	known := &s.accepts[fl]
	if known.version != f.version+1 {
		*known = flavorVerdict{version: f.version + 1, why: make([]string, len(s.groups)), quotaOnly: make([]string, len(s.groups))}
		for i, ids := range s.groups {
			for _, id := range ids {
				known.why[i] = cmp.Or(known.why[i], f.accepts(&s.podSets[id], false))
				known.quotaOnly[i] = cmp.Or(known.quotaOnly[i], f.accepts(&s.podSets[id], true))
			}
		}
	}
	if known.why[g] != known.quotaOnly[g] && s.quotaOnly(e, g, resources) {
		return known.quotaOnly[g]
	}
	return known.why[g]
}

// quotaOnly says that no pod of a group asks its node for one of the resources: transformations made them.
func (s *requestShape) quotaOnly(e *Engine, g int, resources []int32) bool {
	for _, id := range s.groups[g] {
		for name := range s.podSets[id].OnNode() {
			if slices.Contains(resources, e.resource(name)) {
				return false
			}
		}
	}
	return true
}

func appendSorted[V any](names []string, m map[string]V) []string {
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// idleShapes is how many request shapes are kept that no pending workload has: the next one often asks for what
// the last did.
const idleShapes = 64

// leaveShape notes that a class of a request shape is gone. Now and then, shapes that nobody has are forgotten.
func (e *Engine) leaveShape(s *requestShape) {
	if s.classes--; s.classes > 0 {
		return
	}
	if e.shapesIdle++; e.shapesIdle > max(idleShapes, len(e.shapes)/2) {
		maps.DeleteFunc(e.shapes, func(_ string, s *requestShape) bool { return s.classes == 0 })
		e.shapesIdle = 0
	}
}

// classFor finds or makes the class a pending workload belongs to.
func (e *Engine) classFor(w *workload) *equivClass {
	q := w.queue
	key, like := e.classKey(&w.spec, w.local, w.rank)
	c := q.classes[string(key)]
	if c == nil {
		c = &equivClass{key: string(key), queue: q, pos: -1}
		c.shape = e.shapes[string(like)]
		switch {
		case c.shape == nil:
			c.shape = e.newShape(w.spec.PodSets)
			e.shapes[c.key[len(key)-len(like):]] = c.shape
		case c.shape.classes == 0:
			e.shapesIdle--
		}
		c.shape.classes++
		if q.spec.UsageFairSharing {
			c.by = w.local
		}
		q.classes[c.key] = c
		e.addDemand(c)
	}
	return c
}
