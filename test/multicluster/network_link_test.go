package multicluster

import (
	"io"
	"net"
	"net/url"
	"sync"
)

// line is a way to a cluster that can be cut, or stand still: bytes go through it
// as they are, until none do.
type line struct {
	listener net.Listener
	to       string

	mu         sync.Mutex
	moves      *sync.Cond // of still
	cut, still bool
	open       map[net.Conn]bool
}

func newLine(server string) (*line, error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &line{listener: listener, to: at.Host, open: map[net.Conn]bool{}}
	l.moves = sync.NewCond(&l.mu)
	go l.serve()
	return l, nil
}

func (l *line) address() string { return "https://" + l.listener.Addr().String() }

func (l *line) serve() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(from)
	}
}

func (l *line) carry(from net.Conn) {
	to, err := net.Dial("tcp", l.to)
	if err != nil || !l.add(from, to) {
		_ = from.Close()
		if to != nil {
			_ = to.Close()
		}
		return
	}
	defer l.drop(from, to)
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(gate{to, l}, from)
		_ = to.Close()
		close(done)
	}()
	_, _ = io.Copy(gate{from, l}, to)
	_ = from.Close()
	<-done
}

// gate lets bytes through while the line does not stand still.
type gate struct {
	to   io.Writer
	line *line
}

func (g gate) Write(bytes []byte) (int, error) {
	g.line.mu.Lock()
	for g.line.still {
		g.line.moves.Wait()
	}
	g.line.mu.Unlock()
	return g.to.Write(bytes)
}

func (l *line) add(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	for _, end := range ends {
		l.open[end] = true
	}
	return true
}

func (l *line) drop(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		delete(l.open, end)
	}
}

// Cut ends all connections and lets no new ones through.
func (l *line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for end := range l.open {
		_ = end.Close()
	}
}

// Stall has everything stand still: connections are there, and nobody answers.
func (l *line) Stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.still = true
}

// Mend lets everything through again, also what stood still.
func (l *line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.still = false, false
	l.moves.Broadcast()
}
