package conformance

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Subject is a backend under test.
type Subject struct {
	// New makes the backend anew over what an earlier one left in the folder, as an agent does that was killed.
	New func(t *testing.T, dir string) backend.Backend
	// Whole says that it gives whole cards only.
	Whole bool
	// Leaves says that a share leaves something on the node, which Held must show.
	Leaves bool
	// Paths of the device that its shares name, for a backend that needs some.
	Paths []string
	// Remote is for a backend whose cards are another node's.
	Remote *share.Remote
}

// Card of a node, for tests.
func Card(index int) discovery.Card {
	return discovery.Card{
		Index: index, UUID: fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", index), Model: "A100-40G",
		Path: fmt.Sprintf("/dev/nvidia%d", index), MemoryMB: 40960,
	}
}

// Share of a card, as large as the subject can make it.
func (s Subject) Share(id string, index int) *share.Share {
	c := share.Card{Card: Card(index), Percent: 30, MemoryMB: 1000}
	if s.Whole {
		c.Percent, c.MemoryMB = 100, c.Card.MemoryMB
	}
	return &share.Share{
		ID: id, Pod: types.NamespacedName{Namespace: "team", Name: "pod-" + id}, UID: types.UID("uid-" + id), Container: "main",
		Cards: []share.Card{c}, Paths: s.Paths, Remote: s.Remote,
	}
}

// Run the tests.
func Run(t *testing.T, s Subject) {
	held := func(t *testing.T, b backend.Backend, want ...string) {
		t.Helper()
		ids, err := b.Held(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !s.Leaves {
			want = nil
		}
		slices.Sort(ids)
		if !slices.Equal(ids, want) {
			t.Fatalf("it holds %v, want %v", ids, want)
		}
	}
	t.Run("a share shows its card and no other", func(t *testing.T) {
		edits, err := s.New(t, Folder(t)).Prepare(t.Context(), s.Share("1", 3))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range edits.DeviceNodes {
			if n.Path == "/dev/nvidia0" {
				t.Errorf("device nodes %v: card 0 is another container's", edits.DeviceNodes)
			}
		}
		if len(edits.DeviceNodes)+len(edits.Mounts)+len(edits.Env) == 0 {
			t.Error("the container would see nothing")
		}
	})
	t.Run("what is made is held until it is released", func(t *testing.T) {
		b := s.New(t, Folder(t))
		for i := range 3 {
			if _, err := b.Prepare(t.Context(), s.Share(fmt.Sprint(i), i)); err != nil {
				t.Fatal(err)
			}
		}
		held(t, b, "0", "1", "2")
		if err := b.Release(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
		held(t, b, "0", "2")
	})
	t.Run("again is the same, also after a restart", func(t *testing.T) {
		dir := Folder(t)
		first, err := s.New(t, dir).Prepare(t.Context(), s.Share("1", 0))
		if err != nil {
			t.Fatal(err)
		}
		b := s.New(t, dir)
		held(t, b, "1")
		again, err := b.Prepare(t.Context(), s.Share("1", 0))
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("%v, then %v: %v", first, again, err)
		}
		held(t, b, "1")
	})
	t.Run("release of what is not there is fine", func(t *testing.T) {
		b := s.New(t, Folder(t))
		for range 2 {
			if err := b.Release(t.Context(), "never"); err != nil {
				t.Fatal(err)
			}
		}
		held(t, b)
	})
	t.Run("a slot may go to another container", func(t *testing.T) {
		b := s.New(t, Folder(t))
		if _, err := b.Prepare(t.Context(), s.Share("1", 0)); err != nil {
			t.Fatal(err)
		}
		next := s.Share("1", 2)
		next.UID, next.Pod.Name = "another", "another"
		if _, err := b.Prepare(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		held(t, b, "1")
	})
}
