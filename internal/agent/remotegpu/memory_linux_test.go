package remotegpu

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A card of the pod's own node: the program and the server share memory, and no other agent is asked.
func TestProgramOfTheCardsNodeSharesMemoryWithItsServer(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.target = Target{Server: func(ctx context.Context) (*net.UnixConn, error) {
		return DialSocket(ctx, w.dir+"/server", ServerSocket)
	}}
	w.mu.Unlock()
	p := w.container()
	p.round(100)
	p.expect("ok 1")
	shares := func() bool {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), "memfd:elastic-gpu-remote")
	}
	if !shares() {
		t.Error("the program shares no memory with its server")
	}
	w.clients.Relay.End()
	w.startRelay()
	p.round(100)
	p.expect("ok 2")
	if !shares() {
		t.Error("the program shares no memory with its server after its agent was another")
	}
	if n := w.gateway.breakAll(); n != 0 {
		t.Errorf("%d connections came to the gateway", n)
	}
}

func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	both, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range both {
		file := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return ends[0], ends[1]
}

// sends says whether a file that one end sends with a word comes out at the other.
func sends(t *testing.T, from, to *net.UnixConn, file int) bool {
	t.Helper()
	if _, _, err := from.WriteMsgUnix([]byte("word"), syscall.UnixRights(file), nil); err != nil {
		t.Fatal(err)
	}
	bytes, control := make([]byte, 16), make([]byte, syscall.CmsgSpace(16))
	n, controls, _, _, err := to.ReadMsgUnix(bytes, control)
	if err != nil || string(bytes[:n]) != "word" {
		t.Fatalf("%q, %v", bytes[:n], err)
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controls])
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		files, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			_ = syscall.Close(f)
		}
	}
	return len(messages) > 0
}

func TestOnlyMemoryOfAServerIsHandedOn(t *testing.T) {
	program, container := socketPair(t)
	here, server := socketPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { pipeHere(ctx, container, here); close(ended) }()

	memory := func(seals int) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	sealed := memory(unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL)
	if !sends(t, server, program, sealed) {
		t.Error("a server's memory does not reach its client")
	}
	if sends(t, server, program, memory(0)) {
		t.Error("memory that can be cut is handed on")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if sends(t, server, program, int(null.Fd())) {
		t.Error("another file of a server is handed on")
	}
	if sends(t, program, server, sealed) {
		t.Error("a container's file is handed on to the server")
	}
	cancel()
	<-ended
}
