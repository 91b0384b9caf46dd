package remotegpu

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/testr"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

const native = "../../../native/remote"

var build = sync.OnceValue(func() error {
	if out, err := exec.Command("make", "-s", "-C", native, "relay").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// needProgram builds what a program needs to use a card of another node, with the driver that the library's tests build.
func needProgram(t *testing.T) (bin string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("cards of other nodes are for Linux")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs(filepath.Join(native, "build", "test"))
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// breakable is a listener whose connections a test breaks, or that break by themselves after some bytes.
type breakable struct {
	net.Listener
	mu     sync.Mutex
	open   []net.Conn
	after  int // bytes; 0 is never
	broken int
}

func (b *breakable) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, c)
	if b.after == 0 {
		return c, nil
	}
	b.after += 12345 // at another byte each time
	return &shortLived{Conn: c, left: b.after, ended: func() { b.mu.Lock(); b.broken++; b.mu.Unlock() }}, nil
}

type shortLived struct {
	net.Conn
	left  int
	ended func()
}

func (s *shortLived) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.left -= n; s.left <= 0 && s.ended != nil {
		s.ended()
		s.ended = nil
		_ = s.Close()
	}
	return n, err
}

// breakAll says how many there were.
func (b *breakable) breakAll() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.open)
	for _, c := range b.open {
		_ = c.Close()
	}
	b.open = nil
	return n
}

const engine = "elastic"

const claim = "6f1f1c7e-0000-4000-8000-000000000001"

// world is two agents and a server.
type world struct {
	t            testing.TB
	bin, dir     string
	pod, card    *Identity
	mu           sync.Mutex
	target       Target
	clients      *Clients
	gateway      *breakable
	closeGateway func()
	server       string // its socket
	process      *exec.Cmd
	serverDone   chan struct{}
}

func newWorld(t *testing.T) *world {
	bin := needProgram(t)
	dir, err := os.MkdirTemp("", "remote-") // a short path: sockets' are limited
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, bin: bin, dir: dir, server: filepath.Join(dir, "server", ServerSocket)}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, folder := range []string{"server", "container/etc/elastic-gpu", "container/run"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	w.pod = identity(t, "pod-node")
	w.startServer()
	w.startGateway()
	w.startRelay()
	t.Cleanup(func() {
		w.clients.Relay.End()
		w.closeGateway()
		w.killServer()
	})
	return w
}

func identity(t testing.TB, node string) *Identity {
	t.Helper()
	i, err := NewIdentity(node)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func pool(t testing.TB, of ...*Identity) *x509.CertPool {
	t.Helper()
	var authorities [][]byte
	for _, i := range of {
		authorities = append(authorities, i.Authority())
	}
	p, err := Pool(authorities...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) startServer() {
	w.process = exec.Command(filepath.Join(w.bin, "plain", "elastic-gpu-remote"), "unix:"+w.server)
	w.process.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(w.bin, "../../../cuda/build/test"), "ELASTICGPU_ROOT="+w.dir)
	w.process.Stderr = os.Stderr
	if err := w.process.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.serverDone = make(chan struct{})
	done, process := w.serverDone, w.process
	go func() { _ = process.Wait(); close(done) }()
}

func (w *world) killServer() {
	_ = w.process.Process.Kill()
	<-w.serverDone
}

// startGateway of an agent that has just started: with another key, at another port.
func (w *world) startGateway() {
	w.card = identity(w.t, "card-node")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.gateway = &breakable{Listener: listener}
	gateway := &Gateway{
		Identity: w.card, Log: testr.NewWithInterface(w.t, testr.Options{}),
		Served: func(c string) bool { return c == claim },
		Peers:  func(context.Context, string) (*x509.CertPool, error) { return pool(w.t, w.pod), nil },
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			return DialSocket(ctx, filepath.Dir(w.server), filepath.Base(w.server))
		},
	}
	w.mu.Lock()
	w.target = Target{Address: listener.Addr().String(), Peers: pool(w.t, w.card)}
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, w.gateway) }()
	w.closeGateway = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

// startRelay of an agent that has just started: it finds on its disk what the one before had.
func (w *world) startRelay() {
	w.clients = &Clients{
		Dir: filepath.Join(w.dir, "clients"), Engines: map[string]Engine{engine: {}},
		Relay: &Relay{Identity: w.pod, Log: testr.NewWithInterface(w.t, testr.Options{}), Find: func(context.Context, share.Remote) (Target, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.target, nil
		}},
	}
	if err := w.clients.Resume(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// container starts a program as the agent has it start: with the files of the edits, below a root.
func (w *world) container() *program {
	s := &share.Share{ID: "1", Remote: &share.Remote{Claim: claim, Engine: engine}}
	edits, err := w.clients.Prepare(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	root := filepath.Join(w.dir, "container")
	for _, m := range edits.Mounts {
		if err := os.Symlink(m.HostPath, filepath.Join(root, m.ContainerPath)); err != nil {
			w.t.Fatal(err)
		}
	}
	// There are no mounts here: the address names the socket below the root.
	line, err := os.ReadFile(filepath.Join(root, addressFile))
	if err != nil {
		w.t.Fatal(err)
	}
	inside := strings.TrimPrefix(strings.TrimSpace(string(line)), "unix:")
	if err := os.Remove(filepath.Join(root, addressFile)); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, addressFile), []byte("unix:"+filepath.Join(root, inside)+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	p := &program{t: w.t, cmd: exec.Command(filepath.Join(w.bin, "relay", "rounds"))}
	p.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(w.bin, "relay"), "ELASTICGPU_ROOT="+root)
	p.cmd.Stderr = os.Stderr
	p.in, _ = p.cmd.StdinPipe()
	out, _ := p.cmd.StdoutPipe()
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	p.expect("ready 0")
	return p
}

type program struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (p *program) round(launches int) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, launches); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) line() string {
	p.out.Scan()
	return p.out.Text()
}

func (p *program) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("the program says %q, want %q", got, want)
	}
}

// Every launch is counted on the card: none is lost and none carried out twice, whatever breaks in between.
func TestProgramUsesACardOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	p := w.container()
	p.round(100)
	p.expect("ok 1")

	if w.gateway.breakAll() == 0 {
		t.Error("nothing went through the gateway")
	}
	p.round(1)
	p.expect("ok 2")

	w.gateway.mu.Lock()
	w.gateway.after = 2 << 20
	w.gateway.mu.Unlock()
	w.gateway.breakAll()
	for n := range 3 {
		p.round(500)
		p.expect(fmt.Sprintf("ok %d", n+3))
	}
	w.gateway.mu.Lock()
	defer w.gateway.mu.Unlock()
	if w.gateway.broken < 5 {
		t.Errorf("%d connections broke on the way", w.gateway.broken)
	}
}

func TestProgramOutlivesTheAgents(t *testing.T) {
	w := newWorld(t)
	p := w.container()
	p.round(10)
	p.expect("ok 1")

	w.clients.Relay.End()
	w.startRelay()
	p.round(10)
	p.expect("ok 2")

	w.closeGateway()
	w.startGateway()
	p.round(10)
	p.expect("ok 3")
}

// A server that ended has lost what was on the card: the program gets an error, and does not compute on.
func TestProgramFailsWhenItsServerEnded(t *testing.T) {
	w := newWorld(t)
	p := w.container()
	p.round(10)
	p.expect("ok 1")
	w.killServer()
	w.startServer()
	p.round(10)
	if got := p.line(); !strings.HasPrefix(got, "error ") || got == "error -1" {
		t.Errorf("the program says %q", got)
	}
}

// TestBetweenSockets is for measuring what the two agents cost: it stands between the sockets CLIENT and SERVER, which
// ELASTIC_BETWEEN names with a comma between, until its input ends.
func TestBetweenSockets(t *testing.T) {
	client, server, asked := strings.Cut(os.Getenv("ELASTIC_BETWEEN"), ",")
	if !asked {
		t.Skip("for measuring by hand")
	}
	w := &world{t: t, dir: t.TempDir(), pod: identity(t, "pod-node"), server: server}
	w.startGateway()
	defer func() { w.closeGateway() }()
	w.startRelay()
	defer w.clients.Relay.End()
	if err := w.clients.Relay.Open("1", client, share.Remote{Claim: claim, Engine: engine}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// What a container had is closed with it, and nothing is left on the node.
func TestEndOfContainer(t *testing.T) {
	w := newWorld(t)
	p := w.container()
	if err := w.clients.Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if held, err := w.clients.Held(t.Context()); err != nil || len(held) > 0 {
		t.Errorf("held %v %v", held, err)
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "clients", "*", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	_ = p.in.Close()
}
