package index

// HeapItem is what a Heap orders.
type HeapItem[T any] interface {
	Before(T) bool
	SetPos(at int) // is told its place; -1: not in the heap
}

// Heap has its first item at 0. Items know their places, so that one in the middle can leave or move.
type Heap[T HeapItem[T]] []T

// Push adds an item.
func (h *Heap[T]) Push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

// Remove takes out the item at i.
func (h *Heap[T]) Remove(i int) {
	var none T
	last := len(*h) - 1
	(*h)[i].SetPos(-1)
	(*h)[i], (*h)[last] = (*h)[last], none
	if *h = (*h)[:last]; i < last {
		h.Fix(i)
	}
}

// Fix restores the order after the item at i changed.
func (h Heap[T]) Fix(i int) { h.down(h.up(i)) }

// Init restores the order after any items changed.
func (h Heap[T]) Init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h Heap[T]) up(i int) int {
	x := h[i]
	for i > 0 {
		p := (i - 1) / 2
		if !x.Before(h[p]) {
			break
		}
		h[i] = h[p]
		h[i].SetPos(i)
		i = p
	}
	h[i] = x
	x.SetPos(i)
	return i
}

func (h Heap[T]) down(i int) {
	x := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if r := c + 1; r < len(h) && h[r].Before(h[c]) {
			c = r
		}
		if !h[c].Before(x) {
			break
		}
		h[i] = h[c]
		h[i].SetPos(i)
		i = c
	}
	h[i] = x
	x.SetPos(i)
}
