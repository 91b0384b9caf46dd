package remotegpu

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"

	"github.com/elastic-ai/elastic/internal/agent/share"
)

// Target is where the server of a claim is.
type Target struct {
	// Address of the agent on the card's node, and its authority.
	Address string
	Peers   *x509.CertPool
	// Server connects to the server itself, where it is on this node.
	Server func(context.Context) (*net.UnixConn, error)
}

// Relay takes what containers of this node say to cards of others there.
type Relay struct {
	Identity *Identity
	// Find the server of a claim; it is asked for each connection, as cards and agents move.
	Find func(ctx context.Context, to share.Remote) (Target, error)
	Log  logr.Logger

	connections counter
	mu          sync.Mutex
	links       map[string]*link
}

// link is a socket that is listened on for a container.
type link struct {
	to  share.Remote
	end func()
}

// Open a socket through which a container reaches the server of its claim. One that is open for it stays.
func (r *Relay) Open(id, socket string, to share.Remote) error {
	if _, err := nameOf(string(to.Claim)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.links[id]; was != nil && was.to == to {
		return nil
	} else if was != nil {
		was.end()
		delete(r.links, id)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // what an agent before this one left
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o666); err != nil { //nolint:gosec // any user of the container, which alone sees it
		_ = listener.Close()
		return err
	}
	if r.links == nil {
		r.links = map[string]*link{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { r.listen(ctx, listener, to, &all) })
	r.links[id] = &link{to, func() {
		cancel()
		_ = listener.Close()
		all.Wait()
	}}
	return nil
}

// Close a container's socket, and all that goes through it.
func (r *Relay) Close(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.links[id]; was != nil {
		was.end()
		delete(r.links, id)
	}
}

// End all.
func (r *Relay) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		l.end()
	}
	r.links = nil
}

func (r *Relay) listen(ctx context.Context, listener net.Listener, to share.Remote, all *sync.WaitGroup) {
	claim := string(to.Claim)
	var failing atomic.Bool // programs try again and again: the first failure is reported
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		if !r.connections.enter(claim) {
			_ = connection.Close()
			continue
		}
		all.Go(func() {
			defer r.connections.leave(claim)
			defer func() { _ = connection.Close() }()
			far, err := r.dial(ctx, to)
			if err != nil {
				if !failing.Swap(true) {
					r.Log.Info("a container does not reach its card", "claim", claim, "why", err.Error())
				}
				return
			}
			failing.Store(false)
			if server, here := far.(*net.UnixConn); here {
				pipeHere(ctx, connection.(*net.UnixConn), server)
				return
			}
			pipe(ctx, connection, far)
		})
	}
}

// dial the server of a claim, by way of the agent beside it; on this node that is this agent.
func (r *Relay) dial(ctx context.Context, to share.Remote) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	target, err := r.Find(ctx, to)
	if err != nil {
		return nil, err
	}
	if target.Server != nil {
		server, err := target.Server(ctx)
		if err != nil {
			return nil, fmt.Errorf("its server on this node: %w", err)
		}
		return server, nil
	}
	config, err := r.Identity.dialer(string(to.Claim), target.Peers)
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{KeepAliveConfig: keepAlive}, Config: config}
	far, err := dialer.DialContext(ctx, "tcp", target.Address)
	if err != nil {
		return nil, fmt.Errorf("the agent at %s: %w", target.Address, err)
	}
	return far, nil
}
