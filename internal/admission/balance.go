package admission

import "cmp"

// balance knows, for one flavor-resource, which queues of a tree have quota of their own left in the future and which
// use more than their own. Every look at who may be helped asks for one or the other, and few queues are either.
type balance struct {
	owners, borrowers []*queue // in no order
}

func (b *balance) side(side int8) *[]*queue {
	if side > 0 {
		return &b.owners
	}
	return &b.borrowers
}

// rebalance lists a queue on the right side after its future usage changed for good.
func (t *tree) rebalance(q *queue, fr int32) {
	c := &q.node.cells[fr]
	side := int8(cmp.Compare(c.nominal, c.use[future]))
	if side == c.side || int(fr) >= len(t.balance) { // the tree of a queue that is gone has no sides
		return
	}
	if c.side != 0 {
		list := t.balance[fr].side(c.side)
		last := (*list)[len(*list)-1]
		(*list)[c.place] = last
		last.node.cells[fr].place = c.place
		*list = (*list)[:len(*list)-1]
	}
	c.side = side
	if side != 0 {
		list := t.balance[fr].side(side)
		c.place = int32(len(*list))
		*list = append(*list, q)
	}
}

// rebalance does so after usage was moved out of the way and back.
func (q *queue) rebalance(usage []amount) {
	for _, u := range usage {
		q.node.root.tree.rebalance(q, u.fr)
	}
}

// rebalanceAll starts anew after the tree was linked.
func (t *tree) rebalanceAll(frs int) {
	t.balance = append(t.balance[:0], make([]balance, frs)...)
	for _, q := range t.queues {
		for fr := range q.node.cells {
			q.node.cells[fr].side = 0
			t.rebalance(q, int32(fr))
		}
	}
}
