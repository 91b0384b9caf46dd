package admission

import "cmp"

// borrowIndex knows, for one flavor-resource, which queues of a tree have quota of their own left in the future and which
// use more than their own. Every look at who may be helped asks for one or the other, and few queues are either.
type borrowIndex struct {
	unused, borrowing []*queue // in no order
}

func (b *borrowIndex) list(side int8) *[]*queue {
	if side > 0 {
		return &b.unused
	}
	return &b.borrowing
}

// updateBorrowing lists a queue on the right side after its future usage changed for good.
func (t *tree) updateBorrowing(q *queue, fr int32) {
	c := &q.node.cells[fr]
	side := int8(cmp.Compare(c.nominal, c.use[future]))
	if side == c.side || int(fr) >= len(t.borrowIndex) { // the tree of a queue that is gone has no sides
		return
	}
	if c.side != 0 {
		list := t.borrowIndex[fr].list(c.side)
		last := (*list)[len(*list)-1]
		(*list)[c.place] = last
		last.node.cells[fr].place = c.place
		*list = (*list)[:len(*list)-1]
	}
	c.side = side
	if side != 0 {
		list := t.borrowIndex[fr].list(side)
		c.place = int32(len(*list))
		*list = append(*list, q)
	}
}

// updateBorrowing does so after usage was moved out of the way and back.
func (q *queue) updateBorrowing(usage []amount) {
	for _, u := range usage {
		q.node.root.tree.updateBorrowing(q, u.fr)
	}
}

// resetBorrowing starts anew after the tree was linked.
func (t *tree) resetBorrowing(frs int) {
	t.borrowIndex = append(t.borrowIndex[:0], make([]borrowIndex, frs)...)
	for _, q := range t.queues {
		for fr := range q.node.cells {
			q.node.cells[fr].side = 0
			t.updateBorrowing(q, int32(fr))
		}
	}
}
