package mps_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/mps"
)

// control behaves as nvidia-cuda-mps-control does: -d starts a daemon for the pipe directory, or fails
// where one runs; a command on standard input reaches it, or fails where none does.
const control = `#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY/control
if [ "$1" = -d ]; then
	[ -e "$pipe" ] && { echo "An instance of this daemon is already running"; exit 1; }
	[ "$2" = -multiuser-server ] || { echo "one user at a time"; exit 1; }
	echo "$CUDA_VISIBLE_DEVICES" > "$pipe"
	echo "$CUDA_VISIBLE_DEVICES" > /dev/shm/elastic-test-mps
	exit 0
fi
read -r command
[ -e "$pipe" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
case $command in
quit) rm "$pipe" ;;
get_server_list) ;;
*) exit 1 ;;
esac
`

func newBackend(t *testing.T, dir string) *mps.Backend {
	t.Helper()
	program := filepath.Join(dir, "control")
	if err := os.WriteFile(program, []byte(control), 0o700); err != nil {
		t.Fatal(err)
	}
	return &mps.Backend{Driver: &backend.NodeDriver{Root: dir}, Daemons: &mps.Daemons{Dir: filepath.Join(dir, "state"), Control: program}}
}

func TestMain(m *testing.M) { conformance.Apart(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Leaves: true,
		New: func(t *testing.T, dir string) backend.Backend {
			return newBackend(t, dir)
		},
	})
}

// The first share of a card starts its daemon, the last one ends it.
func TestDaemonRunsWhileItIsNeeded(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	running := func() int {
		pipes, err := filepath.Glob(filepath.Join(dir, "state", "cards", "*", "pipe", "control"))
		if err != nil {
			t.Fatal(err)
		}
		return len(pipes)
	}
	for i, card := range []int{0, 0, 1} {
		if _, err := b.Prepare(t.Context(), conformance.Subject{}.Share(fmt.Sprint(i), card)); err != nil {
			t.Fatal(err)
		}
	}
	if running() != 2 {
		t.Fatalf("%d daemons for two cards", running())
	}
	for i, want := range []int{2, 1, 0} {
		if err := b.Release(t.Context(), fmt.Sprint(i)); err != nil || running() != want {
			t.Fatalf("after share %d: %d daemons, want %d: %v", i, running(), want, err)
		}
	}
}

// A daemon that died is started again while its card has shares, and not afterwards.
func TestDaemonIsStartedAgain(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	restarted := func(want ...string) {
		t.Helper()
		if got, err := b.Daemons.Restart(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Fatalf("started again: %v, want %v: %v", got, want, err)
		}
	}
	restarted()
	for card := range 2 {
		if _, err := b.Prepare(t.Context(), conformance.Subject{}.Share(fmt.Sprint(card), card)); err != nil {
			t.Fatal(err)
		}
	}
	restarted()
	if err := os.Remove(filepath.Join(pipeOf(t, b, 1), "control")); err != nil {
		t.Fatal(err)
	}
	restarted(conformance.Card(1).UUID)
	restarted()
	if err := b.Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	restarted()
	b.Daemons.Control += ".gone"
	if _, err := b.Daemons.Restart(t.Context()); err == nil {
		t.Error("a daemon that cannot be started is no error")
	}
}

// pipeOf is the folder of pipes that the container of a card's share has; the share has the card's number.
func pipeOf(t *testing.T, b *mps.Backend, card int) string {
	t.Helper()
	edits, err := b.Prepare(t.Context(), conformance.Subject{}.Share(fmt.Sprint(card), card))
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range edits.Mounts {
		if mount.ContainerPath == "/run/nvidia-mps" {
			return mount.HostPath
		}
	}
	t.Fatalf("no pipes in %v", edits.Mounts)
	return ""
}

// A daemon's sockets can be made in a workstation's folder, whose path is long, also below a temporary one.
func TestSocketsInAWorkstationsFolder(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "ec-") //nolint:usetesting // a path as long as a workstation's, whatever the tests' folder is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conformance.UnmountAtEnd(t, dir)
	b := newBackend(t, dir)
	b.Daemons.Dir = filepath.Join(dir, "home", "elastic", "node", "elastic-gpu", "space")
	const uuid = "GPU-01234567-0123-0123-0123-0123456789ab"
	mounts, err := b.Daemons.Attach(t.Context(), "1", uuid)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(mounts[0].HostPath, "control_privileged"))
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
	if err := b.Daemons.Detach(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
}

// A daemon that an agent started in a folder with the card's whole name goes on there, and ends with its last share.
func TestDaemonOfAnEarlierAgent(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	long := filepath.Join(dir, "state", "cards", conformance.Card(1).UUID)
	if err := os.MkdirAll(long, 0o750); err != nil {
		t.Fatal(err)
	}
	if got := pipeOf(t, b, 1); got != filepath.Join(long, "pipe") {
		t.Errorf("it is in %s", got)
	}
	if err := b.Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(long); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	if got := pipeOf(t, b, 1); strings.Contains(got, conformance.Card(1).UUID) {
		t.Errorf("the next one is in %s", got)
	}
}

func TestLimitsAreInTheEnvironment(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	edits, err := b.Prepare(t.Context(), conformance.Subject{}.Share("1", 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1000M", "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps"} {
		if !slices.Contains(edits.Env, want) {
			t.Errorf("env %v lacks %s", edits.Env, want)
		}
	}
	two := conformance.Subject{}.Share("2", 0)
	two.Cards = append(two.Cards, two.Cards[0])
	if _, err := b.Prepare(t.Context(), two); err == nil {
		t.Error("MPS was to share two cards")
	}
}

// A node without MPS says so, and leaves nothing.
func TestWithoutMPS(t *testing.T) {
	b := newBackend(t, conformance.Folder(t))
	b.Daemons.Control += ".gone"
	if _, err := b.Prepare(t.Context(), conformance.Subject{}.Share("1", 0)); err == nil {
		t.Fatal("a container would start without its daemon")
	}
	if err := b.Release(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if ids, err := b.Held(t.Context()); err != nil || len(ids) != 0 {
		t.Fatalf("%v %v", ids, err)
	}
}

// The memory that a daemon shares with its clients is its card's: neither the node's nor another card's is seen.
func TestSharedMemoryIsTheCards(t *testing.T) {
	dir := conformance.Folder(t)
	b := newBackend(t, dir)
	for card := range 2 {
		s := conformance.Subject{}.Share(fmt.Sprint(card), card)
		edits, err := b.Prepare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(edits.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == "/dev/shm" })
		if at < 0 {
			t.Fatalf("mounts %v", edits.Mounts)
		}
		made, err := os.ReadFile(filepath.Join(edits.Mounts[at].HostPath, "elastic-test-mps"))
		if err != nil || strings.TrimSpace(string(made)) != s.Cards[0].UUID {
			t.Errorf("what the daemon of card %d has in its shared memory: %q %v", card, made, err)
		}
	}
	if _, err := os.Stat("/dev/shm/elastic-test-mps"); err == nil {
		t.Error("a daemon has the node's shared memory")
	}
	if mounted := conformance.Mounted(t, dir); len(mounted) != 4 {
		t.Errorf("mounted are %v", mounted)
	}
	for card := range 2 {
		if err := b.Release(t.Context(), fmt.Sprint(card)); err != nil {
			t.Fatal(err)
		}
	}
	if mounted := conformance.Mounted(t, dir); len(mounted) != 0 {
		t.Errorf("mounted are %v", mounted)
	}
}
