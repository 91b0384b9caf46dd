package gpushare_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// process speaks the library's side of the contract (native/cuda/README.md).
type process struct {
	mu      sync.Mutex
	asked   []string
	refuses string // reason to refuse to move
	stays   string // reason that it gives when it is asked how it is
	out     bool
	late    bool // gives no answer to out, and does it all the same
	mute    bool // gives no answer to believe
	// behind is how many calls it has to be let make before another's kernel ends.
	behind int
	waits  *process // for whom it has a kernel in flight
	moves  int64    // bytes that it says it moved; 500 where it is 0
	// answered gets each request, once it is answered; may be nil.
	answered chan string
}

// count of requests.
func (p *process) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked)
}

func (p *process) answer(line string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, line)
	if p.mute {
		return ""
	}
	switch word, step, _ := strings.Cut(line, " "); word {
	case "hold":
		if step != "" && p.behind > 0 {
			p.behind--
		}
		return fmt.Sprintf(`{"ok":true,"settled":%t}`, p.waits == nil || p.waits.caughtUp())
	case "hello":
		return `{"ok":true,"protocol":1,"pid":7}`
	case "hostpid", "stats":
		return fmt.Sprintf(`{"ok":true,"protocol":1,"pid":7,"container":"u/main","out":%t,"immovable":%q,"prepared":0,"devices":[{"uuid":"GPU-0",`+
			`"limit":1000,"used":600,"held":500,"overhead":100,"swapped":0,"compute":30.00,"busy_ns":2000000000,"waited_ns":500000000}]}`, p.out, p.stays)
	case "out", "in":
		if p.refuses != "" {
			return fmt.Sprintf(`{"ok":false,"reason":%q}`, p.refuses)
		}
		p.out = word == "out"
		if p.late && p.out {
			return ""
		}
		return fmt.Sprintf(`{"ok":true,"bytes":%d,"copy_s":0.1,"total_s":0.2}`, cmp.Or(p.moves, 500))
	}
	return `{"ok":false,"reason":"unknown request"}`
}

func (p *process) caughtUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.behind == 0
}

// listen at a socket, until the test ends.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func (p *process) serve(t *testing.T, backend *gpushare.Backend, id, name string) {
	t.Helper()
	listener := listen(t, filepath.Join(backend.Dir, "shares", id, "run", "control", name+".sock"))
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			if line == "" {
				_ = c.Close() // who connected has left
				continue
			}
			_, _ = c.Write([]byte(p.answer(strings.TrimSpace(line)) + "\n"))
			_ = c.Close()
			if p.answered != nil {
				p.answered <- line
			}
		}
	}()
}

// short path: sockets' are limited.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "share-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func control(t *testing.T) *gpushare.Backend {
	t.Helper()
	return &gpushare.Backend{Dir: short(t), InPod: func(pid int, uid types.UID) (bool, error) { return pid == os.Getpid() && uid == "uid-3", nil }}
}

// three is the share whose processes are asked.
func three() *share.Share { return conformance.Subject{}.Share("3", 0) }

func TestProcessesTellWhatTheyUse(t *testing.T) {
	b, p := control(t), &process{}
	p.serve(t, b, "3", "7")
	// One that died left its socket; no process answers there.
	dead := filepath.Join(b.Dir, "shares", "3", "run", "control", "8.sock")
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := b.Processes(t.Context(), three())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	if d := all[0].Devices[0]; d.UUID != "GPU-0" || d.Used != 600 || d.Compute != 30 || d.BusyNS != 2e9 || d.WaitedNS != 5e8 {
		t.Errorf("device %+v", d)
	}
	// It gets the pid by which the node knows it: this test's.
	if want := fmt.Sprintf("hostpid %d", os.Getpid()); p.asked[1] != want {
		t.Errorf("asked %q, want %q", p.asked, want)
	}
}

// All processes of a container move or none: one that cannot brings the others back.
func TestMoveIsAllOrNothing(t *testing.T) {
	b, first, second := control(t), &process{}, &process{}
	first.serve(t, b, "3", "1")
	second.serve(t, b, "3", "2")
	if bytes, err := b.Out(t.Context(), three()); err != nil || bytes != 1000 || !first.out || !second.out {
		t.Fatalf("out: %d %v", bytes, err)
	}
	if bytes, err := b.In(t.Context(), three()); err != nil || bytes != 1000 || first.out || second.out {
		t.Fatalf("in: %d %v", bytes, err)
	}
	second.refuses = "it has a pool"
	if _, err := b.Out(t.Context(), three()); err == nil || !strings.Contains(err.Error(), "it has a pool") {
		t.Fatalf("out: %v", err)
	}
	if first.out {
		t.Error("the first is left outside")
	}
}

// One that gave no answer, as one does that takes too long, may be out all the same.
func TestWhoDidNotAnswerIsMovedBack(t *testing.T) {
	b, first, second := control(t), &process{}, &process{late: true}
	first.serve(t, b, "3", "1")
	second.serve(t, b, "3", "2")
	if _, err := b.Out(t.Context(), three()); err == nil {
		t.Fatal("it is said to be out")
	}
	if first.out || second.out {
		t.Errorf("the first is out: %t, the second: %t", first.out, second.out)
	}
}

// One that does not answer when memory is brought back keeps no other waiting, and is not forgotten.
func TestWhoDoesNotAnswerIsBroughtBackLater(t *testing.T) {
	b, first, second := control(t), &process{}, &process{}
	first.serve(t, b, "3", "1")
	second.serve(t, b, "3", "2")
	if _, err := b.Out(t.Context(), three()); err != nil {
		t.Fatal(err)
	}
	second.mute = true
	if bytes, err := b.In(t.Context(), three()); !errors.Is(err, gpushare.ErrUnanswered) || bytes != 500 || first.out {
		t.Fatalf("one is mute: %d %v, the first is out: %t", bytes, err, first.out)
	}
	second.mute = false
	if _, err := b.In(t.Context(), three()); err != nil || second.out {
		t.Fatalf("it answers again: %v, it is out: %t", err, second.out)
	}
}

// Kernels of one process wait for those of another, which is let go on until they end; only then does one of them move.
func TestAllAreHeldBeforeOneMoves(t *testing.T) {
	b, first := control(t), &process{behind: 5}
	second := &process{waits: first}
	first.serve(t, b, "3", "1")
	second.serve(t, b, "3", "2")
	if _, err := b.Out(t.Context(), three()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{first, second} {
		asked := slices.DeleteFunc(p.asked, func(line string) bool {
			word, _, _ := strings.Cut(line, " ")
			return word == "hello" || word == "hostpid"
		})
		if n := len(asked); n < 12 || asked[0] != "hold" || asked[n-2] != "hold" || asked[n-1] != "out" {
			t.Errorf("asked %q", asked)
		}
	}
}

// One of several processes says ahead that it cannot be moved: none is asked to.
func TestNothingMovesIfOneSaysThatItCannot(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	b.InPod = func(int, types.UID) (bool, error) { return true, nil }
	s := conformance.Subject{}.Share("1", 0)
	if _, err := b.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first, second := &process{}, &process{stays: "arrays"}
	first.serve(t, b, "1", "7")
	second.serve(t, b, "1", "8")
	if _, err := b.Out(t.Context(), s); err == nil || err.Error() != "arrays" {
		t.Fatalf("%v", err)
	}
	for _, p := range []*process{first, second} {
		p.mu.Lock()
		for _, line := range p.asked {
			if line == "out" || line == "in" {
				t.Errorf("a process was asked to move %s", line)
			}
		}
		p.mu.Unlock()
	}
}
