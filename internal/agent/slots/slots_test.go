package slots_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/backend/whole"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// fixture is a node whose kubelet says what holders holds.
type fixture struct {
	*slots.Slots
	holders map[string]slots.Holder
	failing error
	class   map[string]string
	whole   bool
	dir     string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{holders: map[string]slots.Holder{}, dir: t.TempDir()}
	library := filepath.Join(f.dir, "lib.so")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	driver := &backend.NodeDriver{Root: f.dir}
	f.Slots = &slots.Slots{
		Dir: filepath.Join(f.dir, "cdi"), Log: logr.Discard(),
		Backends: []backend.Backend{&gpushare.Backend{Driver: driver, Dir: filepath.Join(f.dir, "state"), Library: library}, &whole.Backend{Driver: driver}},
		Holders:  func(context.Context) (map[string]slots.Holder, error) { return f.holders, f.failing },
		Share: func(context.Context, slots.Holder) (share.Share, error) {
			s := conformance.Subject{Whole: f.whole}.Share("", 0)
			s.Parameters = f.class
			return *s, nil
		},
	}
	return f
}

func (f *fixture) there(t *testing.T, pattern string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestSlotsOfThoseWhoHaveGoneAreEmptied(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"3", "4"} {
		f.holders[id] = slots.Holder{Namespace: "team", Pod: "p" + id, Container: "main"}
		if err := f.Fill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	delete(f.holders, "3")
	f.failing = errors.New("the kubelet is away")
	if err := f.Clean(t.Context()); err == nil || f.there(t, "cdi/*.json") != 2 {
		t.Fatalf("%v: something was taken away while nobody knew whose it is", err)
	}
	f.failing = nil
	if err := f.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.there(t, "cdi/*-4.json") != 1 || f.there(t, "cdi/*.json") != 1 || f.there(t, "state/shares/*") != 1 {
		t.Fatal("want the slot 4 and nothing else")
	}
}

// A node that was rebooted has lost the specifications, which are not on a disk, and kept the folders.
func TestFoldersWithoutASpecificationAreFound(t *testing.T) {
	f := newFixture(t)
	f.holders["3"] = slots.Holder{Namespace: "team", Pod: "p", Container: "main"}
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		t.Fatal(err)
	}
	clear(f.holders)
	if err := f.Clean(t.Context()); err != nil || f.there(t, "state/shares/*") != 0 {
		t.Fatalf("%v: a folder is left", err)
	}
}

func TestClassChoosesTheBackend(t *testing.T) {
	f := newFixture(t)
	f.holders["3"] = slots.Holder{Namespace: "team", Pod: "p", Container: "main"}
	fill := func() (int, error) {
		err := f.Fill(t.Context(), "3")
		return f.there(t, "state/shares/*"), err
	}
	if shares, err := fill(); err != nil || shares != 1 {
		t.Fatalf("a share: %d folders, %v", shares, err)
	}
	f.whole = true
	if shares, err := fill(); err != nil || shares != 0 {
		t.Fatalf("whole cards: %d folders, %v: want none, and the former holder's gone", shares, err)
	}
	f.class = map[string]string{"backend": "gpushare"}
	if shares, err := fill(); err != nil || shares != 1 {
		t.Fatalf("whole cards by gpushare: %d folders, %v", shares, err)
	}
	f.class = map[string]string{"backend": "magic"}
	if _, err := fill(); err == nil {
		t.Fatal("a backend that is not there was used")
	}
}
