package index

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type heapItem struct {
	key, id int
	pos     int
}

func (x *heapItem) Before(o *heapItem) bool { return x.compare(o) < 0 }
func (x *heapItem) SetPos(at int)           { x.pos = at }

func (x *heapItem) compare(o *heapItem) int {
	if x.key != o.key {
		return x.key - o.key
	}
	return x.id - o.id
}

// A Heap has the first item of a sorted slice at 0, through any changes, and items know their places.
func TestHeapAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[*heapItem]
		var model []*heapItem
		pick := func() *heapItem { return rapid.SampledFrom(model).Draw(t, "item") }
		key := func() int { return rapid.IntRange(0, 20).Draw(t, "key") }
		for i := range rapid.IntRange(1, 80).Draw(t, "steps") {
			step := rapid.SampledFrom([]string{"push", "push", "push", "remove", "fix", "init"}).Draw(t, "step")
			if len(model) == 0 {
				step = "push"
			}
			switch step {
			case "push":
				x := &heapItem{key: key(), id: i, pos: -1}
				h.Push(x)
				model = append(model, x)
			case "remove":
				x := pick()
				h.Remove(x.pos)
				if x.pos != -1 {
					t.Fatalf("a removed item is at %d", x.pos)
				}
				model = slices.DeleteFunc(model, func(o *heapItem) bool { return o == x })
			case "fix":
				x := pick()
				x.key = key()
				h.Fix(x.pos)
			case "init":
				for _, x := range model {
					x.key = key()
				}
				h.Init()
			}
			checkHeap(t, h, model)
		}
		slices.SortFunc(model, (*heapItem).compare)
		for _, want := range model {
			if h[0] != want {
				t.Fatalf("the first item is %v, want %v", *h[0], *want)
			}
			h.Remove(0)
		}
	})
}

func checkHeap(t *rapid.T, h Heap[*heapItem], model []*heapItem) {
	if len(h) != len(model) {
		t.Fatalf("%d items, want %d", len(h), len(model))
	}
	for _, x := range model {
		if h[x.pos] != x {
			t.Fatalf("item %d is not where it thinks, at %d", x.id, x.pos)
		}
	}
	if len(model) > 0 && h[0] != slices.MinFunc(model, (*heapItem).compare) {
		t.Fatalf("item %d is first", h[0].id)
	}
}
