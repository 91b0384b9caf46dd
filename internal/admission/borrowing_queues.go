package admission

import (
	"cmp"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// borrowIndex knows, for one flavor-resource, which queues of a tree will have nominal quota left
// and which will borrow. Whoever looks for workloads to requeue asks for one or the other, and few queues are either.
type borrowIndex struct {
	unused, borrowing []*queue // in no order
}

// borrowSide is where a queue stands in a borrowIndex.
type borrowSide struct {
	side  int8  // 1: nominal quota left, -1: borrows, 0: in neither list
	place int32 // in the list
}

func (b *borrowIndex) list(side int8) *[]*queue {
	if side > 0 {
		return &b.unused
	}
	return &b.borrowing
}

// updateBorrowing puts a queue into the right list after its future usage changed for good.
func (t *tree) updateBorrowing(q *queue, fr int32) {
	c := &q.node.Cells[fr]
	side := int8(cmp.Compare(c.Nominal, c.Use[quota.Future]))
	if int(fr) >= len(t.borrowIndex) { // the tree of a deleted queue has no lists
		return
	}
	s := &q.sides[fr]
	if side == s.side {
		return
	}
	if s.side != 0 {
		list := t.borrowIndex[fr].list(s.side)
		last := (*list)[len(*list)-1]
		(*list)[s.place] = last
		last.sides[fr].place = s.place
		*list = (*list)[:len(*list)-1]
	}
	s.side = side
	if side != 0 {
		list := t.borrowIndex[fr].list(side)
		s.place = int32(len(*list))
		*list = append(*list, q)
	}
}

// updateBorrowing does so for all amounts that were moved out of the way and back.
func (q *queue) updateBorrowing(usage []quota.Amount) {
	for _, u := range usage {
		q.tree.updateBorrowing(q, u.FR)
	}
}

// resetBorrowing starts anew after the tree was linked.
func (t *tree) resetBorrowing(frs int) {
	t.borrowIndex = append(t.borrowIndex[:0], make([]borrowIndex, frs)...)
	for _, q := range t.queues {
		q.sides = append(q.sides[:0], make([]borrowSide, frs)...)
		for fr := range q.node.Cells {
			t.updateBorrowing(q, int32(fr))
		}
	}
}
