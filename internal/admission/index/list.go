package index

import (
	"math"
	"slices"
)

// ListItem is what a List orders; its size is what searches look for.
type ListItem[T any] interface {
	Compare(T) int
	Size() int64
}

// List is a sorted list in chunks that know the least size of their items. An insertion moves
// little, and a search for small items skips the chunks that have none.
type List[T ListItem[T]] struct {
	Chunks []Chunk[T]
	Least  int64 // size of the smallest item
}

// Chunk is a part of a List; it is never empty.
type Chunk[T ListItem[T]] struct {
	Least int64
	Items []T
}

const chunkSize = 64

// Empty says whether there are no items.
func (l *List[T]) Empty() bool { return len(l.Chunks) == 0 }

// find is where x stands or would stand.
func (l *List[T]) find(x T) (i, j int) {
	i, _ = slices.BinarySearchFunc(l.Chunks, x, func(c Chunk[T], x T) int { return c.Items[len(c.Items)-1].Compare(x) })
	i = min(i, len(l.Chunks)-1)
	j, _ = slices.BinarySearchFunc(l.Chunks[i].Items, x, func(a, b T) int { return a.Compare(b) })
	return i, j
}

// Insert adds an item.
func (l *List[T]) Insert(x T) {
	size := x.Size()
	if len(l.Chunks) == 0 {
		l.Chunks, l.Least = append(l.Chunks, Chunk[T]{size, []T{x}}), size
		return
	}
	l.Least = min(l.Least, size)
	i, j := l.find(x)
	c := &l.Chunks[i]
	c.Items = slices.Insert(c.Items, j, x)
	c.Least = min(c.Least, size)
	if len(c.Items) > chunkSize {
		rest := Chunk[T]{Items: slices.Clone(c.Items[chunkSize/2:])}
		clear(c.Items[chunkSize/2:])
		c.Items = c.Items[:chunkSize/2]
		c.settle()
		rest.settle()
		l.Chunks = slices.Insert(l.Chunks, i+1, rest)
	}
}

// Remove takes out the item that compares equal to x, which must be there.
func (l *List[T]) Remove(x T) {
	i, j := l.find(x)
	c := &l.Chunks[i]
	size := c.Items[j].Size()
	c.Items = slices.Delete(c.Items, j, j+1)
	switch {
	case len(c.Items) == 0:
		l.Chunks = slices.Delete(l.Chunks, i, i+1)
	case size == c.Least:
		c.settle()
	}
	if size == l.Least {
		l.Least = math.MaxInt64
		for i := range l.Chunks {
			l.Least = min(l.Least, l.Chunks[i].Least)
		}
	}
}

func (c *Chunk[T]) settle() {
	c.Least = math.MaxInt64
	for _, x := range c.Items {
		c.Least = min(c.Least, x.Size())
	}
}
