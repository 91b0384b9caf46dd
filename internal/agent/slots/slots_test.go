package slots_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
	"github.com/elastic-ai/elastic/internal/agent/backend/whole"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

func TestMain(m *testing.M) { conformance.Apart(m) }

// fixture is a node with a kubelet that answers with containers.
type fixture struct {
	*slots.Slots
	containers map[string]slots.ContainerRef
	failing    error
	alive      bool // whether the API says that pods are still there
	class      map[string]string
	whole      bool
	dir        string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{containers: map[string]slots.ContainerRef{}, dir: conformance.Folder(t)}
	library := filepath.Join(f.dir, "lib.so")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	driver := &backend.NodeDriver{Root: f.dir}
	f.Slots = &slots.Slots{
		Dir: filepath.Join(f.dir, "cdi"), Log: logr.Discard(),
		Backends:   []backend.Backend{&gpushare.Backend{Driver: driver, Dir: filepath.Join(f.dir, "state"), Library: library}, &whole.Backend{Driver: driver}},
		Containers: func(context.Context) (map[string]slots.ContainerRef, error) { return f.containers, f.failing },
		Share: func(context.Context, slots.ContainerRef) (share.Share, error) {
			s := conformance.Subject{Whole: f.whole}.Share("", 0)
			s.Parameters = f.class
			return *s, nil
		},
		Gone: func(_ context.Context, s *share.Share) (bool, error) {
			if s.Pod.Name == "" || s.UID == "" {
				return false, errors.New("asked about a share without a pod")
			}
			return !f.alive, nil
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
		f.containers[id] = slots.ContainerRef{Namespace: "team", Pod: "p" + id, Container: "main"}
		if err := f.Fill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	delete(f.containers, "3")
	f.failing = errors.New("the kubelet is away")
	if err := f.Clean(t.Context()); err == nil || f.there(t, "cdi/*.json") != 2 {
		t.Fatalf("%v: something was taken away while it was not known which container has it", err)
	}
	f.failing = nil
	if err := f.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.there(t, "cdi/*-4.json") != 1 || f.there(t, "cdi/*.json") != 1 || f.there(t, "state/shares/*") != 1 {
		t.Fatal("want the slot 4 and nothing else")
	}
}

// A kubelet that has just started knows no pods yet; their containers run on.
func TestNothingIsTakenFromAPodThatIsThere(t *testing.T) {
	f := newFixture(t)
	f.containers["3"] = slots.ContainerRef{Namespace: "team", Pod: "p", Container: "main"}
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	clear(f.containers)
	f.alive = true
	if err := f.Clean(t.Context()); err != nil || f.there(t, "state/shares/*") != 1 || f.there(t, "cdi/*.json") != 1 {
		t.Fatalf("%v: a running container lost its share", err)
	}
	grants, err := f.Grants()
	if err != nil || len(grants) != 1 || grants[0].ID != "3" || grants[0].Backend != "gpushare" || grants[0].Cards[0].Percent != 30 {
		t.Fatalf("grants %+v: %v", grants, err)
	}
	f.alive = false
	if err := f.Clean(t.Context()); err != nil || f.there(t, "state/shares/*") != 0 || f.there(t, "cdi/*.json") != 0 {
		t.Fatalf("%v: something is left", err)
	}
}

// A disk that was full leaves half a file: it is no container's, and does not stop the rest.
func TestHalfASpecificationIsTakenAway(t *testing.T) {
	f := newFixture(t)
	if err := os.MkdirAll(f.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "elasticgpu.io-share-9.json"), []byte(`{"cdiVer`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.alive = true
	if err := f.Clean(t.Context()); err != nil || f.there(t, "cdi/*.json") != 0 {
		t.Fatalf("%v: it is still there", err)
	}
}

// A node that was rebooted has lost the specifications, which are not on a disk, and still has the folders.
func TestFoldersWithoutASpecificationAreFound(t *testing.T) {
	f := newFixture(t)
	f.containers["3"] = slots.ContainerRef{Namespace: "team", Pod: "p", Container: "main"}
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		t.Fatal(err)
	}
	clear(f.containers)
	if err := f.Clean(t.Context()); err != nil || f.there(t, "state/shares/*") != 0 {
		t.Fatalf("%v: a folder is left", err)
	}
}

func TestClassChoosesTheBackend(t *testing.T) {
	f := newFixture(t)
	f.containers["3"] = slots.ContainerRef{Namespace: "team", Pod: "p", Container: "main"}
	fill := func() (int, error) {
		err := f.Fill(t.Context(), "3")
		return f.there(t, "state/shares/*"), err
	}
	if shares, err := fill(); err != nil || shares != 1 {
		t.Fatalf("a share: %d folders, %v", shares, err)
	}
	f.whole = true
	if shares, err := fill(); err != nil || shares != 0 {
		t.Fatalf("whole cards: %d folders, %v: want none, and the former container's gone", shares, err)
	}
	f.class = map[string]string{"backend": "gpushare"}
	if shares, err := fill(); err != nil || shares != 1 {
		t.Fatalf("whole cards by gpushare: %d folders, %v", shares, err)
	}
	f.class = map[string]string{"swap": "on"}
	if shares, err := fill(); err != nil || shares != 1 {
		t.Fatalf("whole cards that are to be swapped: %d folders, %v", shares, err)
	}
	f.class = map[string]string{"backend": "magic"}
	if _, err := fill(); err == nil {
		t.Fatal("a backend that is not there was used")
	}
}

// away is a backend outside this project that does not answer.
type away struct{ backend.Backend }

func (away) Name() string                           { return "away" }
func (away) Release(context.Context, string) error  { return errors.New("no answer") }
func (away) Held(context.Context) ([]string, error) { return nil, errors.New("no answer") }

func TestABackendThatDoesNotAnswerStopsNobodyElse(t *testing.T) {
	f := newFixture(t)
	f.Backends = append(f.Backends, away{})
	f.containers["3"] = slots.ContainerRef{Namespace: "team", Pod: "p", Container: "main"}
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	clear(f.containers)
	if err := f.Clean(t.Context()); err == nil || f.there(t, "state/shares/*") != 0 || f.there(t, "cdi/*.json") != 1 {
		t.Fatalf("%v: want the share gone, and the slot asked about again", err)
	}
}

// What was prepared for a claim goes when it is said, or when the claim is no longer there; a card is not given
// out through two allocation paths, nor beyond what it has.
func TestClaimsAndSlots(t *testing.T) {
	f := newFixture(t)
	claim := func(id string, card int, percent float64) share.Share {
		s := conformance.Subject{}.Share(id, card)
		s.Cards[0].Percent = percent
		s.Claim = &share.Claim{UID: types.UID("claim-" + id)}
		return *s
	}
	for _, id := range []string{"ca", "cb"} {
		if name, err := f.Prepare(t.Context(), claim(id, 1, 50)); err != nil || name != slots.Device(id) {
			t.Fatal(name, err)
		}
	}
	if _, err := f.Prepare(t.Context(), claim("cc", 1, 1)); err == nil || !strings.Contains(err.Error(), "beyond what it has: 101 percent") {
		t.Fatalf("more than a card: %v", err)
	}
	f.containers["3"] = slots.ContainerRef{Namespace: "team", Pod: "p3", Container: "main"}
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Prepare(t.Context(), claim("cc", 0, 10)); err == nil || !strings.Contains(err.Error(), "from the scheduler") {
		t.Fatalf("a card of the scheduler's: %v", err)
	}
	claims, scheduler, err := f.AllocationPaths()
	if err != nil || len(claims) != 1 || !claims[conformance.Card(1).UUID] || len(scheduler) != 1 || !scheduler[conformance.Card(0).UUID] {
		t.Fatalf("claims hold %v, pods %v: %v", claims, scheduler, err)
	}
	// Prepared again while its container runs, it still has the library's files.
	socket := filepath.Join(f.dir, "state", "shares", "ca", "run", "region")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Prepare(t.Context(), claim("ca", 1, 50)); err != nil || f.there(t, "state/shares/ca/run/region") != 1 {
		t.Fatalf("prepared again: %v", err)
	}
	for range 2 {
		if err := f.Unprepare(t.Context(), "claim-ca"); err != nil || f.there(t, "cdi/*-ca.json") != 0 || f.there(t, "state/shares/c*") != 1 {
			t.Fatalf("unprepared: %v", err)
		}
	}
	f.alive = true
	if err := f.Clean(t.Context()); err != nil || f.there(t, "cdi/*-cb.json") != 1 {
		t.Fatalf("the claim is there, its share is not: %v", err)
	}
	f.alive = false
	if err := f.Clean(t.Context()); err != nil || f.there(t, "cdi/*-cb.json") != 0 || f.there(t, "state/shares/c*") != 0 {
		t.Fatalf("the claim has gone, its share has not: %v", err)
	}
}

// on a card are as many slots as the scheduler's record and the card allow.
func TestCardIsNotGivenOutBeyondWhatItHas(t *testing.T) {
	f := newFixture(t)
	card := conformance.Subject{}.Share("", 0).Cards[0].Card
	next := share.Share{}
	f.Share = func(_ context.Context, c slots.ContainerRef) (share.Share, error) {
		next.Pod, next.UID, next.Container = types.NamespacedName{Namespace: c.Namespace, Name: c.Pod}, types.UID("uid-"+c.Pod), c.Container
		return next, nil
	}
	fill := func(id, pod, device string, percent float64, memory int64, recorded ...string) error {
		t.Helper()
		f.containers[id] = slots.ContainerRef{Namespace: "team", Pod: pod, Container: "main"}
		on := map[string]bool{}
		for _, name := range recorded {
			on[name] = true
		}
		next = share.Share{Device: device, Cards: []share.Card{{
			Card: card, Percent: max(percent, 1), MemoryMB: max(memory, 1), Reserved: share.Reserved{Percent: percent, MemoryMB: memory}, Recorded: on,
		}}}
		return f.Fill(t.Context(), id)
	}
	for _, step := range []struct {
		what, id, pod, device string
		percent               float64
		memory                int64
		recorded              []string
		refused               bool
	}{
		{what: "the first", id: "1", pod: "a", percent: 60, memory: 1000, recorded: []string{"uid-a"}},
		{what: "beyond the card's compute", id: "2", pod: "b", percent: 50, recorded: []string{"uid-a", "uid-b"}, refused: true},
		{what: "beyond its memory", id: "2", pod: "b", memory: card.MemoryMB, recorded: []string{"uid-a", "uid-b"}, refused: true},
		{what: "what is left", id: "2", pod: "b", percent: 40, memory: card.MemoryMB - 1000, recorded: []string{"uid-a", "uid-b"}},
		{what: "nothing is reserved", id: "3", pod: "c", recorded: []string{"uid-a", "uid-b", "uid-c"}},
		{what: "the first has left its card", id: "4", pod: "d", percent: 60, recorded: []string{"uid-b", "uid-c", "uid-d"}},
		{what: "and starts again: it has what it had", id: "1", pod: "a", percent: 60, memory: 1000, recorded: []string{"uid-a", "uid-b", "uid-c", "uid-d"}},
		{what: "with more", id: "1", pod: "a", percent: 61, memory: 1000, recorded: []string{"uid-a", "uid-b", "uid-c", "uid-d"}, refused: true},
		{what: "another pod in its slot", id: "1", pod: "e", percent: 60, memory: 1000, recorded: []string{"uid-b", "uid-c", "uid-d", "uid-e"}, refused: true},
	} {
		err := fill(step.id, step.pod, step.device, step.percent, step.memory, step.recorded...)
		if refused := err != nil && strings.Contains(err.Error(), "beyond what it has"); refused != step.refused || err != nil && !refused {
			t.Fatalf("%s: %v", step.what, err)
		}
	}
}

// A card is shared in turns or at once: what a scheduler that does not know, or a class that was changed, would put beside
// the other kind does not start.
func TestCardIsSharedInOneWay(t *testing.T) {
	f := newFixture(t)
	driver := &backend.NodeDriver{Root: f.dir}
	f.Backends = []backend.Backend{&simulated.Backend{As: "simulated", Dir: filepath.Join(f.dir, "sim")}, &whole.Backend{Driver: driver}, &simulated.Backend{As: "mps", Dir: filepath.Join(f.dir, "mps")}}
	fill := func(id string, card int, class map[string]string) error {
		t.Helper()
		f.containers[id] = slots.ContainerRef{Namespace: "team", Pod: "p" + id, Container: "main"}
		f.Share = func(context.Context, slots.ContainerRef) (share.Share, error) {
			s := conformance.Subject{}.Share(id, card)
			s.Parameters, s.Cards[0].Recorded = class, map[string]bool{"uid-1": true, "uid-2": true, "uid-3": true, "uid-4": true}
			return *s, nil
		}
		return f.Fill(t.Context(), id)
	}
	space, alone := map[string]string{"sharing": "space"}, map[string]string{"backend": "mps"}
	for _, step := range []struct {
		id      string
		card    int
		class   map[string]string
		refused string
	}{
		{"1", 0, space, ""},
		{"2", 0, nil, "card 0 is shared in space, by pod team/pod-1, and not in time"},
		{"2", 0, alone, "card 0 is shared in space, by pod team/pod-1, and not by MPS alone"},
		{"2", 1, nil, ""},
		{"3", 1, space, "card 1 is shared in time"},
		{"3", 0, space, ""},
		{"4", 2, alone, ""},
	} {
		if err := fill(step.id, step.card, step.class); step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("slot %s on card %d with %v: %v, want %q", step.id, step.card, step.class, err, step.refused)
		}
	}
}

// Containers of one ElasticGPU share what it has; together with others they go no further than the card.
func TestContainersOfOneElasticGPUShareIt(t *testing.T) {
	f := newFixture(t)
	card := conformance.Subject{}.Share("", 0).Cards[0].Card
	device := "egpu"
	f.Share = func(_ context.Context, c slots.ContainerRef) (share.Share, error) {
		return share.Share{
			Pod: types.NamespacedName{Namespace: c.Namespace, Name: c.Pod}, UID: types.UID("uid-" + c.Pod), Container: c.Container, Device: device,
			Cards: []share.Card{{Card: card, Percent: 60, MemoryMB: 100, Reserved: share.Reserved{Percent: 60}, Recorded: map[string]bool{"egpu": true, "other": true}}},
		}, nil
	}
	for _, id := range []string{"1", "2", "3"} {
		f.containers[id] = slots.ContainerRef{Namespace: "team", Pod: "p" + id, Container: "main"}
		if err := f.Fill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	device = "other"
	f.containers["4"] = slots.ContainerRef{Namespace: "team", Pod: "p4", Container: "main"}
	if err := f.Fill(t.Context(), "4"); err == nil || !strings.Contains(err.Error(), "120 percent") {
		t.Fatalf("a second ElasticGPU of 60 percent: %v", err)
	}
}

// A container without a record waits for it; containers beside it do not wait with it.
func TestWaitingForARecordHoldsNobodyUp(t *testing.T) {
	f := newFixture(t)
	waits, answer := make(chan struct{}), make(chan error)
	resolve := f.Share
	f.Share = func(ctx context.Context, c slots.ContainerRef) (share.Share, error) {
		if c.Pod == "slow" {
			close(waits)
			if err := <-answer; err != nil {
				return share.Share{}, err
			}
		}
		return resolve(ctx, c)
	}
	f.containers["1"] = slots.ContainerRef{Namespace: "team", Pod: "slow", Container: "main"}
	filled := make(chan error)
	go func() { filled <- f.Fill(t.Context(), "1") }()
	<-waits
	// The slow one's slot is another container's when the answer comes.
	f.containers = map[string]slots.ContainerRef{"1": {Namespace: "team", Pod: "quick", Container: "main"}}
	if err := f.Fill(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	answer <- nil
	if err := <-filled; err == nil || !strings.Contains(err.Error(), "has it by now") {
		t.Fatalf("a slot that another container has by now: %v", err)
	}
}

// broken is a backend with a defect that concerns one slot.
type broken struct {
	backend.Backend
	slot string
	when string
}

func (b *broken) Prepare(ctx context.Context, s *share.Share) (*specs.ContainerEdits, error) {
	b.check("prepare", s.ID)
	return b.Backend.Prepare(ctx, s)
}

func (b *broken) Release(ctx context.Context, id string) error {
	b.check("release", id)
	return b.Backend.Release(ctx, id)
}

func (b *broken) check(when, id string) {
	if b.slot == id && b.when == when {
		panic("no such thing")
	}
}

// A defect concerns one container: its slot is set aside and its pod gets to know, and the others go on.
func TestDefectConcernsOneSlot(t *testing.T) {
	f := newFixture(t)
	bad := &broken{Backend: f.Backends[0], slot: "3", when: "prepare"}
	f.Backends[0] = bad
	var said []string
	f.Defective = func(_ context.Context, pod types.NamespacedName, err error) {
		said = append(said, pod.Name+": "+err.Error())
	}
	for _, id := range []string{"3", "4"} {
		f.containers[id] = slots.ContainerRef{Namespace: "team", Pod: "p" + id, Container: "main"}
	}
	if err := f.Fill(t.Context(), "3"); !panics.Is(err) {
		t.Fatalf("%v", err)
	}
	if err := f.Fill(t.Context(), "4"); err != nil {
		t.Fatalf("the other one: %v", err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "p3: ") || !strings.Contains(said[0], "no such thing") {
		t.Fatalf("said %q", said)
	}
	bad.when = ""
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	// Both containers end. One cannot be taken away; it is tried once, and again when it was filled anew.
	bad.when, said = "release", nil
	clear(f.containers)
	for i, want := range []bool{true, false} {
		if err := f.Clean(t.Context()); panics.Is(err) != want {
			t.Fatalf("clean %d: %v", i, err)
		}
	}
	if f.there(t, "cdi/*.json") != 1 || len(said) != 1 {
		t.Errorf("%d slots are left, said %q", f.there(t, "cdi/*.json"), said)
	}
	bad.when = ""
	f.containers["3"] = slots.ContainerRef{Namespace: "team", Pod: "p3", Container: "main"}
	if err := f.Fill(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	clear(f.containers)
	if err := f.Clean(t.Context()); err != nil || f.there(t, "cdi/*.json") != 0 {
		t.Errorf("%v", err)
	}
}
