package gpushare_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/panics"
)

// hostile listens in a share's folder and does as it likes with who connects.
func hostile(t *testing.T, path string, with func(net.Conn)) {
	t.Helper()
	listener := listen(t, path)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				with(c)
			}()
		}
	}()
}

func controlDir(b *gpushare.Backend) string {
	return filepath.Join(b.Dir, "shares", "3", "run", "control")
}

// A process that answers without end is stopped at a bound, and the others are known all the same.
func TestEndlessAnswer(t *testing.T) {
	b, honest := control(t), &process{}
	honest.serve(t, b, "3", "7")
	var sent atomic.Int64
	ended := make(chan struct{}, 16)
	hostile(t, filepath.Join(controlDir(b), "1.sock"), func(c net.Conn) {
		part := bytes.Repeat([]byte(" "), 1<<10)
		for {
			n, err := c.Write(part)
			sent.Add(int64(n))
			if err != nil {
				ended <- struct{}{}
				return
			}
		}
	})
	all, err := b.Processes(t.Context(), three())
	if err != nil || len(all) != 2 || !all[0].Silent || all[1].Silent || all[1].Devices[0].Used != 600 {
		t.Fatalf("%+v %v", all, err)
	}
	<-ended // it is hung up on
	if most := int64(4 << 20); sent.Load() > most {
		t.Errorf("%d bytes were read of it", sent.Load())
	}
}

// A process that says nothing costs its share a bounded time: the context's here, which is shorter.
func TestSilentSockets(t *testing.T) {
	b, honest := control(t), &process{answered: make(chan string, 2)}
	honest.serve(t, b, "3", "9999")
	for i := range 3 {
		hostile(t, filepath.Join(controlDir(b), fmt.Sprintf("%d.sock", i)), func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<10)); <-t.Context().Done() })
	}
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan []gpushare.Process, 1)
	go func() {
		all, _ := b.Processes(ctx, three())
		answered <- all
	}()
	// The honest one has its answer in although the others never will: then nothing but them is waited for.
	for range cap(honest.answered) {
		<-honest.answered
	}
	cancel()
	all := <-answered
	silent := 0
	for _, p := range all {
		if p.Silent {
			silent++
		}
	}
	if len(all) != 4 || silent < 3 {
		t.Errorf("%d processes, %d of them silent: %+v", len(all), silent, all)
	}
}

// Of thousands of sockets so many are looked at as a container can have processes.
func TestThousandsOfSockets(t *testing.T) {
	b := control(t)
	if err := os.MkdirAll(controlDir(b), 0o750); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(controlDir(b), fmt.Sprintf("%d.sock", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.Sockets("3")); n != 1024 {
		t.Errorf("%d sockets are looked at", n)
	}
	if all, err := b.Processes(t.Context(), three()); err != nil || len(all) != 0 {
		t.Errorf("files were taken for processes: %+v %v", all, err)
	}
}

// A share of thousands of silent sockets is given up after a bounded time, and none of them is waited for on its own.
func TestThousandsOfSilentSockets(t *testing.T) {
	b := control(t)
	first := filepath.Join(controlDir(b), "0.sock")
	hostile(t, first, func(net.Conn) { <-t.Context().Done() })
	for i := 1; i < 3000; i++ { // all of them the same one
		mustDo(t, os.Link(first, filepath.Join(controlDir(b), fmt.Sprintf("%d.sock", i))))
	}
	all, err := b.Processes(t.Context(), three())
	if err != nil || len(all) != 1024 {
		t.Fatalf("%d processes: %v", len(all), err)
	}
	for _, p := range all {
		if !p.Silent {
			t.Fatalf("it is believed: %+v", p)
		}
	}
}

// What is not the tenant's own socket in its own folder is not connected to, however it is named there.
func TestNothingOutsideIsReached(t *testing.T) {
	outside := filepath.Join(short(t), "docker.sock")
	var reached atomic.Bool
	hostile(t, outside, func(net.Conn) { reached.Store(true) })
	for name, make := range map[string]func(t *testing.T, dir string){
		"a link for a socket": func(t *testing.T, dir string) {
			mustDo(t, os.MkdirAll(dir, 0o750))
			mustDo(t, os.Symlink(outside, filepath.Join(dir, "7.sock")))
		},
		"a link for the folder": func(t *testing.T, dir string) {
			mustDo(t, os.MkdirAll(filepath.Dir(dir), 0o750))
			mustDo(t, os.Rename(outside, filepath.Join(filepath.Dir(outside), "7.sock")))
			t.Cleanup(func() { mustDo(t, os.Rename(filepath.Join(filepath.Dir(outside), "7.sock"), outside)) })
			mustDo(t, os.Symlink(filepath.Dir(outside), dir))
		},
		"a pipe": func(t *testing.T, dir string) {
			mustDo(t, os.MkdirAll(dir, 0o750))
			mustDo(t, syscall.Mkfifo(filepath.Join(dir, "7.sock"), 0o600))
		},
		"a folder": func(t *testing.T, dir string) { mustDo(t, os.MkdirAll(filepath.Join(dir, "7.sock"), 0o750)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := control(t)
			make(t, controlDir(b))
			all, _ := b.Processes(t.Context(), three())
			for _, p := range all {
				if !p.Silent {
					t.Errorf("it is taken for a process: %+v", p)
				}
			}
			if _, err := b.Out(t.Context(), three()); err == nil {
				t.Error("it was moved out")
			}
			if reached.Load() {
				t.Error("what listens outside was reached")
			}
		})
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A process of another pod is not believed, whatever it says.
func TestPeerOfAnotherPod(t *testing.T) {
	b, p := control(t), &process{}
	p.serve(t, b, "3", "7")
	b.InPod = func(int, types.UID) (bool, error) { return false, nil }
	all, err := b.Processes(t.Context(), three())
	if err != nil || len(all) != 1 || !all[0].Silent || all[0].Devices != nil {
		t.Errorf("%+v %v", all, err)
	}
	if p.count() != 0 {
		t.Errorf("it was asked %q", p.asked)
	}
	b.InPod = nil // the kernel is asked, and this test is in no pod
	if all, err := b.Processes(t.Context(), three()); err != nil || len(all) != 1 || !all[0].Silent {
		t.Errorf("%+v %v", all, err)
	}
}

// What cannot be is not believed, and what a tenant says is short and one line when it reaches us.
func TestForgedAnswers(t *testing.T) {
	for _, answer := range []string{
		`{"ok":true,"protocol":1,"devices":[{"uuid":"GPU-0","used":-1}]}`,
		`{"ok":true,"protocol":1,"devices":[{"uuid":"GPU-0","busy_ns":-9223372036854775808}]}`,
		`{"ok":true,"protocol":1,"devices":[{"uuid":"GPU-0","busy_ns":18446744073709551615}]}`,
		`{"ok":true,"protocol":1,"devices":[{"uuid":"GPU-0"},{"uuid":"GPU-0"}]}`,
		`{"ok":true,"protocol":1,"devices":[` + strings.Repeat(`{},`, 100) + `{}]}`,
		`{"ok":true,"protocol":99}`, `[`, `null`, ``,
	} {
		b := control(t)
		hostile(t, filepath.Join(controlDir(b), "7.sock"), func(c net.Conn) {
			request := make([]byte, 100)
			n, _ := c.Read(request)
			if strings.HasPrefix(string(request[:n]), "hello") {
				_, _ = c.Write([]byte("{\"ok\":true,\"protocol\":1}\n"))
				return
			}
			_, _ = c.Write([]byte(answer + "\n"))
		})
		if all, err := b.Processes(t.Context(), three()); err != nil || len(all) != 1 || !all[0].Silent {
			t.Errorf("%s: %+v %v", answer, all, err)
		}
	}
}

// Words of a tenant are short and on one line before they get into a condition; what it says it moved is no more than it has.
func TestForgedMove(t *testing.T) {
	b, p := control(t), &process{moves: 1 << 62}
	p.serve(t, b, "3", "1")
	(&process{moves: 1 << 62}).serve(t, b, "3", "2")
	if bytes, err := b.Out(t.Context(), three()); err != nil || bytes != 1000<<20 {
		t.Errorf("%d bytes of a share with 1000 MiB: %v", bytes, err)
	}
	p.refuses = "no\n\x1b[2J" + strings.Repeat("x", 5000)
	if _, err := b.Out(t.Context(), three()); err == nil || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("%q", err)
	}
}

// So is the reason for which a process says ahead that it cannot be moved.
func TestForgedReason(t *testing.T) {
	b := control(t)
	(&process{stays: "no\n\t" + strings.Repeat("x", 5000)}).serve(t, b, "3", "1")
	all, err := b.Processes(t.Context(), three())
	if err != nil || len(all) != 1 || all[0].Silent || !strings.HasPrefix(all[0].Immovable, "no") || len(all[0].Immovable) > 200 || strings.ContainsAny(all[0].Immovable, "\n\t") {
		t.Errorf("%+v %v", all, err)
	}
}

// A socket that nobody has listened on for long is removed; one that is new may be about to be listened on.
func TestAbandonedSocketsAreRemoved(t *testing.T) {
	b := control(t)
	mustDo(t, os.MkdirAll(controlDir(b), 0o750))
	for _, name := range []string{"1.sock", "2.sock"} {
		listener, err := net.Listen("unix", filepath.Join(controlDir(b), name))
		mustDo(t, err)
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		mustDo(t, listener.Close())
	}
	long := time.Now().Add(-time.Hour)
	mustDo(t, os.Chtimes(filepath.Join(controlDir(b), "1.sock"), long, long))
	if all, err := b.Processes(t.Context(), three()); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	if left := b.Sockets("3"); len(left) != 1 || left[0] != "3/2.sock" {
		t.Errorf("left are %v", left)
	}
}

// A defect while one process is asked reaches who asks, and ends no program.
func TestDefectReachesWhoAsks(t *testing.T) {
	b, p := control(t), &process{}
	p.serve(t, b, "3", "7")
	b.InPod = func(int, types.UID) (bool, error) { panic("no such thing") }
	err := panics.Contain(logr.Discard(), "test", "3", func() error {
		_, err := b.Processes(t.Context(), three())
		return err
	})
	if !panics.Is(err) {
		t.Errorf("%v", err)
	}
}
