package index

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type listItem struct {
	key  int
	size int64
}

func (x listItem) Compare(o listItem) int { return cmp.Compare(x.key, o.key) }
func (x listItem) Size() int64            { return x.size }

// A List has the items of a sorted slice in its order, and chunks and list know their least sizes.
func TestListAgainstSlice(t *testing.T) {
	const keys = 401 // a prime: any stride visits all of them
	split := false
	rapid.Check(t, func(t *rapid.T) {
		var l List[listItem]
		var model []listItem
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			insert := rapid.Bool().Draw(t, "insert")
			from, stride := rapid.IntRange(0, keys-1).Draw(t, "from"), rapid.IntRange(1, keys-1).Draw(t, "stride")
			for n := range rapid.SampledFrom([]int{1, 10, 100, keys}).Draw(t, "how many") {
				key := (from + n*stride) % keys
				i, found := slices.BinarySearchFunc(model, key, func(x listItem, key int) int { return x.key - key })
				switch {
				case insert && !found:
					x := listItem{key, rapid.Int64Range(0, 1000).Draw(t, "size")}
					l.Insert(x)
					model = slices.Insert(model, i, x)
				case !insert && found:
					l.Remove(listItem{key: key})
					model = slices.Delete(model, i, i+1)
				}
			}
			checkList(t, &l, model)
			split = split || len(l.Chunks) > 1
		}
	})
	if !split {
		t.Error("no list had several chunks")
	}
}

func checkList(t *rapid.T, l *List[listItem], model []listItem) {
	var all []listItem
	least := int64(math.MaxInt64)
	for _, c := range l.Chunks {
		if len(c.Items) == 0 || len(c.Items) > chunkSize {
			t.Fatalf("a chunk has %d items", len(c.Items))
		}
		smallest := slices.MinFunc(c.Items, func(a, b listItem) int { return cmp.Compare(a.size, b.size) })
		if c.Least != smallest.size {
			t.Fatalf("a chunk's least size is %d, want %d", c.Least, smallest.size)
		}
		least = min(least, smallest.size)
		all = append(all, c.Items...)
	}
	if !slices.Equal(all, model) || l.Empty() != (len(model) == 0) {
		t.Fatalf("the list has %v, want %v", all, model)
	}
	if !l.Empty() && l.Least != least {
		t.Fatalf("the least size is %d, want %d", l.Least, least)
	}
}
