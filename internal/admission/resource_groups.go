package admission

import "slices"

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
	for _, c := range q.classes { // demand is sorted; the order of insertion does not matter
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
