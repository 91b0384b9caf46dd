package remotegpu

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds on what a container, or who reaches the port, can have an agent do.
const (
	// claimConnections: a server has 64 processes for those of the program at most, each with nine connections, and
	// some that broke are still on their way out.
	claimConnections = 1024
	// allConnections of an agent. Each has two goroutines and two buffers.
	allConnections = 4096
	// unproven are those that have not shown their certificate.
	unproven = 256
	// handshakeTimeout is for the certificate, and for reaching the other end.
	handshakeTimeout = 10 * time.Second
	bufferSize       = 128 << 10
)

// keepAlive finds a node that is gone in half a minute: sessions may be silent for hours.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// pipe carries bytes both ways until one end is closed or ctx ends, and closes both. What breaks off is the engine's to
// resume: it knows what came through.
func pipe(ctx context.Context, a, b net.Conn) {
	pipeBy(ctx, a, b, carry)
}

// pipeHere is pipe between a container and a server of this node, which may share memory.
func pipeHere(ctx context.Context, container, server *net.UnixConn) {
	pipeBy(ctx, container, server, func(_, _ net.Conn, buffer []byte) { carryMemory(container, server, buffer) })
}

// pipeBy has bytes from b to a carried by back.
func pipeBy(ctx context.Context, a, b net.Conn, back func(to, from net.Conn, buffer []byte)) {
	end := func() { _, _ = a.Close(), b.Close() }
	stop := context.AfterFunc(ctx, end)
	defer stop()
	way := func(to, from net.Conn, by func(to, from net.Conn, buffer []byte)) {
		defer end()
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		by(to, from, *buffer)
	}
	var both sync.WaitGroup
	both.Go(func() { way(b, a, carry) })
	both.Go(func() { way(a, b, back) })
	both.Wait()
}

// carry bytes by plain reads and writes: a reader or writer of its own would take a small buffer of its own.
func carry(to, from net.Conn, buffer []byte) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buffer)
}

// counter bounds connections, of each claim and all together.
type counter struct {
	mu      sync.Mutex
	all     int
	byClaim map[string]int
}

// enter says whether one more is within the bounds; leave takes it back.
func (c *counter) enter(claim string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= allConnections || c.byClaim[claim] >= claimConnections {
		return false
	}
	if c.byClaim == nil {
		c.byClaim = map[string]int{}
	}
	c.all++
	c.byClaim[claim]++
	return true
}

func (c *counter) leave(claim string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.byClaim[claim]--; c.byClaim[claim] == 0 {
		delete(c.byClaim, claim)
	}
}
