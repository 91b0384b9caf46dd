package admission

// heapItem is what a heap orders.
type heapItem[T any] interface {
	before(T) bool
	setPos(at int) // is told its place
}

// heap has its first at 0. Its members know their places, so that one in the middle can leave or move.
type heap[T heapItem[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

// remove takes out whoever stands at i.
func (h *heap[T]) remove(i int) {
	var none T
	last := len(*h) - 1
	(*h)[i].setPos(-1)
	(*h)[i], (*h)[last] = (*h)[last], none
	if *h = (*h)[:last]; i < last {
		h.fix(i)
	}
}

// fix finds the place of whoever stands at i anew.
func (h heap[T]) fix(i int) { h.down(h.up(i)) }

func (h heap[T]) up(i int) int {
	x := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if !x.before(h[p]) {
			break
		}
		h[i] = h[p]
		h[i].setPos(i)
		i = p
	}
	h[i] = x
	x.setPos(i)
	return i
}

func (h heap[T]) down(i int) {
	x := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if r := c + 1; r < len(h) && h[r].before(h[c]) {
			c = r
		}
		if !h[c].before(x) {
			break
		}
		h[i] = h[c]
		h[i].setPos(i)
		i = c
	}
	h[i] = x
	x.setPos(i)
}
