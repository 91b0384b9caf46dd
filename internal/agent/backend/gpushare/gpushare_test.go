package gpushare_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

func TestMain(m *testing.M) { conformance.Apart(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Leaves: true,
		New: func(t *testing.T, dir string) backend.Backend {
			return newBackend(t, dir)
		},
	})
}

func newBackend(t *testing.T, dir string) *gpushare.Backend {
	t.Helper()
	library := filepath.Join(t.TempDir(), "libelasticgpu.so")
	if dir != "" {
		library = filepath.Join(dir, "libelasticgpu.so")
	}
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return &gpushare.Backend{Driver: &backend.NodeDriver{Root: t.TempDir()}, Dir: dir, Library: library}
}

func TestLimitsFile(t *testing.T) {
	s := conformance.Subject{}.Share("7", 2)
	s.Parameters = map[string]string{"lend": "on", "swap": "on", "policy": "spread"}
	text, err := gpushare.Limits(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `elastic-gpu 1
container uid-7/main
swap on
device GPU-00000002-0000-0000-0000-000000000000 memory 1048576000 compute 30.00 lend on
`
	if string(text) != want {
		t.Fatalf("got\n%s", text)
	}
	s.Parameters = map[string]string{"latency": "low"}
	if text, err := gpushare.Limits(s); err != nil || !strings.HasSuffix(string(text), " lend off latency low\n") {
		t.Errorf("%s %v", text, err)
	}
	s.Parameters = map[string]string{"latency": "throughput"}
	if text, err := gpushare.Limits(s); err != nil || !strings.HasSuffix(string(text), " lend off latency throughput\n") {
		t.Errorf("%s %v", text, err)
	}
	s.Parameters = map[string]string{"latency": "auto"}
	if text, err := gpushare.Limits(s); err != nil || !strings.HasSuffix(string(text), " lend off\n") { // as a library without it reads it
		t.Errorf("%s %v", text, err)
	}
	s.Parameters = map[string]string{"latency": "throughput", "sharing": "space"}
	if text, err := gpushare.Limits(s); err != nil || !strings.HasSuffix(string(text), " lend off sharing space\n") { // there are no turns
		t.Errorf("%s %v", text, err)
	}
	s.Parameters = map[string]string{"latency": "none"}
	if _, err := gpushare.Limits(s); err == nil || !strings.Contains(err.Error(), "auto, low or throughput") {
		t.Errorf("latency: %v", err)
	}
	for _, name := range []string{"lend", "swap", "oversubscribe"} {
		s.Parameters = map[string]string{name: "perhaps"}
		if _, err := gpushare.Limits(s); err == nil || !strings.Contains(err.Error(), "write on or off") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// daemons writes down which shares were attached to which card.
type daemons map[string]string

func (d daemons) Attach(_ context.Context, id, uuid string) ([]*specs.Mount, error) {
	d[id] = uuid
	return []*specs.Mount{{HostPath: "/daemon/" + uuid, ContainerPath: "/run/nvidia-mps"}}, nil
}

func (d daemons) Detach(_ context.Context, id string) error {
	delete(d, id)
	return nil
}

// A share in space has its card's daemon, for as long as it is one.
func TestSharesInSpace(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	s := conformance.Subject{}.Share("7", 2)
	s.Parameters = map[string]string{"sharing": "space", "swap": "on"}
	if _, err := b.Prepare(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no MPS") {
		t.Fatalf("without daemons: %v", err)
	}
	all := daemons{}
	b.Space = all
	edits, err := b.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(edits.Mounts, func(m *specs.Mount) bool { return m.HostPath == "/daemon/"+s.Cards[0].UUID }) || all["7"] != s.Cards[0].UUID {
		t.Errorf("mounts %v, attached %v", edits.Mounts, all)
	}
	text, err := os.ReadFile(filepath.Join(b.Dir, "shares", "7", "etc", "limits"))
	if err != nil || !strings.HasSuffix(string(text), " compute 30.00 lend off sharing space\n") {
		t.Errorf("%s %v", text, err)
	}
	s.Parameters = map[string]string{"sharing": "time"}
	if _, err := b.Prepare(t.Context(), s); err != nil || len(all) != 0 {
		t.Errorf("in turns now: %v, attached %v", err, all)
	}
	s.Parameters = map[string]string{"sharing": "space"}
	if _, err := b.Prepare(t.Context(), s); err != nil || len(all) != 1 {
		t.Fatalf("%v, attached %v", err, all)
	}
	if err := b.Release(t.Context(), "7"); err != nil || len(all) != 0 {
		t.Errorf("released: %v, attached %v", err, all)
	}
	for _, more := range []map[string]string{{"lend": "on"}, {"latency": "low"}, {"oversubscribe": "on"}, {"sharing": "both"}} {
		s.Parameters = map[string]string{"sharing": "space"}
		maps.Copy(s.Parameters, more)
		if _, err := b.Prepare(t.Context(), s); err == nil || len(all) != 0 {
			t.Errorf("%v: %v, attached %v", more, err, all)
		}
	}
	s.Parameters = map[string]string{"sharing": "space"}
	s.Cards = append(s.Cards, conformance.Subject{}.Share("7", 3).Cards...)
	if _, err := b.Prepare(t.Context(), s); err == nil || !strings.Contains(err.Error(), "one card") {
		t.Errorf("two cards: %v", err)
	}
}

// Cards of one node are shared in different ways: turns and daemons are each of the card that has them.
func TestTimeAndSpaceOnDifferentCards(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	all := daemons{}
	b.Space = all
	prepare := func(id string, card int, sharing string) {
		t.Helper()
		s := conformance.Subject{}.Share(id, card)
		s.Parameters = map[string]string{"sharing": sharing}
		edits, err := b.Prepare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		attached := slices.ContainsFunc(edits.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == "/run/nvidia-mps" })
		text, err := os.ReadFile(filepath.Join(b.Dir, "shares", id, "etc", "limits"))
		if err != nil || attached != (sharing == "space") || strings.Contains(string(text), " sharing space") != attached {
			t.Errorf("share %s, in %s: mounts %v, limits %s: %v", id, sharing, edits.Mounts, text, err)
		}
		for _, folder := range []string{"etc/turns", "requests"} { // the arbiter finds the card's turns, and no other's
			files, err := os.ReadDir(filepath.Join(b.Dir, "shares", id, folder))
			if err != nil || len(files) != 1 || files[0].Name() != s.Cards[0].UUID {
				t.Errorf("share %s has %v in %s: %v", id, files, folder, err)
			}
		}
	}
	in := func(want map[string]string) {
		t.Helper()
		if !maps.Equal(all, want) {
			t.Errorf("attached %v, want %v", all, want)
		}
	}
	first, second := conformance.Card(0).UUID, conformance.Card(1).UUID
	prepare("1", 0, "time")
	prepare("2", 1, "space")
	prepare("3", 0, "time")
	prepare("4", 1, "space")
	in(map[string]string{"2": second, "4": second})
	for _, id := range []string{"1", "3"} {
		if err := b.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	in(map[string]string{"2": second, "4": second})
	// The first card is free, and may be shared otherwise now.
	prepare("5", 0, "space")
	in(map[string]string{"2": second, "4": second, "5": first})
	for _, id := range []string{"2", "4"} {
		if err := b.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	prepare("6", 1, "time")
	in(map[string]string{"5": first})
}

// New limits of a running container replace the file, in the folder that is mounted.
func TestLimitsChangeInPlace(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	s := conformance.Subject{}.Share("1", 0)
	edits, err := b.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	host := ""
	for _, m := range edits.Mounts {
		if m.ContainerPath == "/etc/elastic-gpu" {
			host = m.HostPath
			if m.Options[0] != "ro" {
				t.Errorf("the limits are mounted %v", m.Options)
			}
		}
	}
	s.Cards[0].Percent = 60
	if _, err := b.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(host, "limits"))
	if err != nil || !strings.Contains(string(data), "compute 60.00") {
		t.Fatalf("%s %v", data, err)
	}
}

func TestWithoutTheLibraryNothingStarts(t *testing.T) {
	b := newBackend(t, t.TempDir())
	b.Library += ".gone"
	if _, err := b.Prepare(t.Context(), conformance.Subject{}.Share("1", 0)); err == nil {
		t.Fatal("a container would start without anything that holds it to its share")
	}
	if ids, err := b.Held(t.Context()); err != nil || len(ids) != 0 {
		t.Fatalf("%v %v", ids, err)
	}
}

// What a container writes is in a folder of its own size, which goes when the share does, and is found again by an agent
// that was restarted.
func TestContainersDoNotWriteToTheDisk(t *testing.T) {
	dir := conformance.Folder(t)
	b, s := newBackend(t, dir), conformance.Subject{}.Share("1", 0)
	requests, run := filepath.Join(dir, "shares", "1", "requests"), filepath.Join(dir, "shares", "1", "run")
	prepare := func() {
		t.Helper()
		if _, err := newBackend(t, dir).Prepare(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if mounted := conformance.Mounted(t, dir); !slices.Equal(mounted, []string{run, requests}) {
			t.Fatalf("mounted are %v", mounted)
		}
	}
	write := func(name string) error { return os.WriteFile(filepath.Join(run, name), make([]byte, 32<<20), 0o600) }
	prepare()
	if err := write("large"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a container wrote 32 MiB: %v", err)
	}
	prepare() // the next container in this place begins anew
	if left, err := os.ReadDir(run); err != nil || len(left) != 0 {
		t.Fatalf("left of the last container: %v %v", left, err)
	}
	s.Claim = &share.Claim{UID: "claim"}
	prepare()
	if err := os.WriteFile(filepath.Join(run, "region"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	prepare() // a claim is prepared again while its container runs
	if _, err := os.Stat(filepath.Join(run, "region")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Release(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
	}
	if mounted := conformance.Mounted(t, dir); len(mounted) != 0 {
		t.Errorf("mounted are %v", mounted)
	}
}

// A container writes to its own folder and its own request files, and nothing that another container has.
func TestNothingIsSharedWritable(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	// Agents before this one had a folder that all containers wrote to.
	if err := os.Mkdir(filepath.Join(dir, "cards"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "cards"), 0o777); err != nil {
		t.Fatal(err)
	}
	writable := map[string]string{}
	for _, id := range []string{"1", "2"} {
		s := conformance.Subject{}.Share(id, 0)
		s.Cards = append(s.Cards, conformance.Subject{}.Share(id, 1).Cards...)
		edits, err := b.Prepare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		requests := 0
		for _, m := range edits.Mounts {
			if m.Options[0] != "rw" {
				continue
			}
			if other, shared := writable[m.HostPath]; shared {
				t.Errorf("containers %s and %s both write to %s", other, id, m.HostPath)
			}
			writable[m.HostPath] = id
			if info, err := os.Stat(m.HostPath); err != nil {
				t.Error(err)
			} else if strings.HasPrefix(m.ContainerPath, "/run/elastic-gpu-requests/GPU-") {
				requests++
				if !info.Mode().IsRegular() || info.Mode().Perm() != 0o666 || info.Size() != cSize(t, "request_file") {
					t.Errorf("%s: %s, %d bytes", m.HostPath, info.Mode(), info.Size())
				}
				decision := filepath.Join(dir, "shares", id, "etc", "turns", filepath.Base(m.HostPath))
				if info, err := os.Stat(decision); err != nil || info.Mode().Perm() != 0o644 || info.Size() != cSize(t, "decision_file") {
					t.Errorf("%s: %v %v", decision, info, err)
				}
			}
		}
		if requests != 2 {
			t.Errorf("%d request files for 2 cards", requests)
		}
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		own := strings.HasSuffix(path, "/run") || strings.Contains(path, "/requests/")
		if err == nil && info.Mode().Perm()&0o002 != 0 && !own {
			t.Errorf("%s is open to all: %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// cSize of a structure, as the library's header has it.
func cSize(t *testing.T, name string) int64 {
	t.Helper()
	header, err := os.ReadFile("../../../../native/cuda/turn_files.h")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`sizeof\(struct ` + name + `\) == (\d+)`).FindSubmatch(header)
	if found == nil {
		t.Fatalf("the header does not say how large %s is", name)
	}
	size, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// A container that starts anew in the same place begins with empty files; a claim that is prepared again has what it had.
func TestRequestFilesBeginEmpty(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	s := conformance.Subject{}.Share("1", 0)
	request := filepath.Join(dir, "shares", "1", "requests", s.Cards[0].UUID)
	written := func(prepare bool) bool {
		t.Helper()
		if prepare {
			if _, err := b.Prepare(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(request)
		if err != nil {
			t.Fatal(err)
		}
		return data[0] != 0
	}
	for _, claim := range []*share.Claim{nil, {UID: "c"}} {
		s.Claim = claim
		written(true)
		if err := os.WriteFile(request, bytes.Repeat([]byte{1}, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := written(true), claim != nil; got != want {
			t.Errorf("with claim %v: what was written is there: %t, want %t", claim, got, want)
		}
	}
}
