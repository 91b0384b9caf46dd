package admission

import (
	"encoding/binary"
	"slices"
)

// requestShape is what a pending workload asks for, shared by all that ask the same in any queue.
type requestShape struct {
	key      string
	classes  int // of this shape
	podSets  []PodSet
	counts   []int32        // pods still to run
	requests [][]podRequest // by pod set; pods last
	groups   [][]int        // pod sets that share their flavors
	shrinks  bool           // some pod set has a smaller minimum
	simple   bool           // one pod set that asks for one resource, pods not counted
	last     sharedPodSets
	accepts  []flavorVerdict // by flavor: is it allowed for each pod set group
}

// sharedPodSets is what workloads of a shape got last.
type sharedPodSets struct {
	counts  []int32
	flavors [][]int32
	podSets []PodSetAssignment
}

type podRequest struct {
	resource int32
	v        int64
}

// flavorVerdict remembers, per group of pod sets, why a flavor is refused ("" accepted).
type flavorVerdict struct {
	version uint32 // of the flavor, plus one
	why     []string
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

// refuses says why a flavor cannot serve a group of pod sets, "" if it can.
func (s *requestShape) refuses(e *Engine, fl int32, g int) string {
	f := e.flavors[fl]
	for len(s.accepts) <= int(fl) {
		s.accepts = append(s.accepts, flavorVerdict{})
	}
	known := &s.accepts[fl]
	if known.version != f.version+1 {
		*known = flavorVerdict{version: f.version + 1, why: make([]string, len(s.groups))}
		for i, ids := range s.groups {
			for _, id := range ids {
				if why := f.accepts(&s.podSets[id]); why != "" {
					known.why[i] = why
					break
				}
			}
		}
	}
	return known.why[g]
}

// classKey spells out everything that makes the answer to one workload the
// answer to another, the shape last. The bytes are valid until the next call.
func (e *Engine) classKey(w *Workload, l *localQueue) (key, shape []byte) {
	b := e.scratch.key[:0]
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	num := func(v int64) { b = binary.AppendVarint(b, v) }
	requests := func(r Requests) {
		e.scratch.names = appendSorted(e.scratch.names[:0], r)
		num(int64(len(e.scratch.names)))
		for _, name := range e.scratch.names {
			str(name)
			num(r[name])
		}
	}
	num(w.Priority)
	if l != nil && l.queue != nil && l.queue.spec.UsageFairSharing {
		str(l.spec.Namespace)
		str(l.spec.Name)
	}
	if e.opts.Backfill {
		num(int64(w.MaxRunTime - w.RanBefore))
	}
	from := len(b)
	for i := range w.PodSets {
		ps := &w.PodSets[i]
		str(ps.Name)
		str(ps.Group)
		num(int64(len(ps.Flavors)))
		for _, f := range ps.Flavors {
			str(f)
		}
		num(int64(ps.Count))
		num(int64(ps.MinCount))
		num(int64(ps.Reclaimable))
		requests(ps.Requests)
		if num(int64(len(ps.NodeRequests))); ps.NodeRequests != nil {
			requests(ps.NodeRequests)
		}
		e.scratch.names = appendSorted(e.scratch.names[:0], ps.NodeSelector)
		num(int64(len(e.scratch.names)))
		for _, k := range e.scratch.names {
			str(k)
			str(ps.NodeSelector[k])
		}
		num(int64(len(ps.Affinity)))
		for _, t := range ps.Affinity {
			num(int64(len(t)))
			for _, r := range t {
				str(r.Key)
				str(r.Operator)
				num(int64(len(r.Values)))
				for _, v := range r.Values {
					str(v)
				}
			}
		}
		num(int64(len(ps.Tolerations)))
		for _, t := range ps.Tolerations {
			str(t.Key)
			str(t.Operator)
			str(t.Value)
			str(t.Effect)
		}
		if t := ps.Topology; t != nil {
			num(int64(t.Mode) + 1)
			str(t.Level)
			num(int64(len(t.Slices)))
			for _, slice := range t.Slices {
				str(slice.Level)
				num(int64(slice.Size))
			}
		} else {
			num(0)
		}
	}
	e.scratch.key = b
	return b, b[from:]
}

func appendSorted[V any](names []string, m map[string]V) []string {
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// classFor finds or makes the class a pending workload belongs to.
func (e *Engine) classFor(w *workload) *equivClass {
	q := w.queue
	key, like := e.classKey(&w.spec, w.local)
	c := q.classes[string(key)]
	if c == nil {
		c = &equivClass{key: string(key), queue: q, pos: -1}
		if c.shape = e.shapes[string(like)]; c.shape == nil {
			k := c.key[len(key)-len(like):]
			c.shape = e.newShape(w.spec.PodSets)
			c.shape.key = k
			e.shapes[k] = c.shape
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

// group is a resource group of a queue, compiled.
type group struct {
	resources []int32
	flavors   []groupFlavor
}

type groupFlavor struct {
	flavor int32
	frs    []int32 // parallel to group.resources
}

func (q *queue) compileGroups(e *Engine) {
	q.groups, q.choice = q.groups[:0], false
	for i := range q.groupOf {
		q.groupOf[i] = -1
	}
	for gi, rg := range q.spec.Groups {
		var g group
		for _, r := range rg.Resources {
			res := e.resource(r)
			for int(res) >= len(q.groupOf) {
				q.groupOf = append(q.groupOf, -1)
			}
			q.groupOf[res] = int32(gi)
			g.resources = append(g.resources, res)
		}
		for _, f := range rg.Flavors {
			gf := groupFlavor{flavor: e.flavor(f.Flavor)}
			for _, r := range rg.Resources {
				gf.frs = append(gf.frs, e.intern(f.Flavor, r))
			}
			g.flavors = append(g.flavors, gf)
		}
		q.groups = append(q.groups, g)
		q.choice = q.choice || len(g.flavors) > 1
	}
	q.demand = nil
	for _, c := range q.classes { // demand is kept in order; the order of insertion does not matter
		e.addDemand(c)
	}
}

func (q *queue) group(res int32) int32 {
	if int(res) >= len(q.groupOf) {
		return -1
	}
	return q.groupOf[res]
}

func (q *queue) usesFlavor(fl int32) bool {
	for _, g := range q.groups {
		for _, f := range g.flavors {
			if f.flavor == fl {
				return true
			}
		}
	}
	return false
}

// flavors lists the queue's flavors.
func (q *queue) flavors() []int32 {
	var fls []int32
	for _, g := range q.groups {
		for _, f := range g.flavors {
			if !slices.Contains(fls, f.flavor) {
				fls = append(fls, f.flavor)
			}
		}
	}
	return fls
}
