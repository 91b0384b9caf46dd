package remotegpu

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"

	"github.com/go-logr/logr"

	"github.com/elastic-ai/elastic/internal/agent/tenantfolder"
)

// Gateway is where the agents of other nodes reach the servers of this one.
type Gateway struct {
	Identity *Identity
	// Peers are the agents that may come for a claim: those of the nodes where pods use it. It is asked for claims that
	// are served here, once they are named; who names them has proved nothing yet.
	Peers func(ctx context.Context, claim string) (*x509.CertPool, error)
	// Dial the server of a claim; ErrNotServed for one that has none here.
	Dial func(ctx context.Context, claim string) (net.Conn, error)
	// Served says whether a claim has a server here. It is quick.
	Served func(claim string) bool
	Log    logr.Logger

	connections counter
}

// ErrNotServed is for a claim that has no server on this node.
var ErrNotServed = errors.New("the claim has no card on this node")

// errNobody named a claim that is served here.
var errNobody = errors.New("no such claim")

// Serve who comes to the listener until ctx ends, and then wait for all.
func (d *Gateway) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	proving := make(chan struct{}, unproven)
	for {
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case proving <- struct{}{}:
			all.Go(func() { d.welcome(ctx, connection, func() { <-proving }) })
		default: // who floods the port keeps others out of it, and no connection that stands
			_ = connection.Close()
		}
	}
}

// welcome one: its certificate, then its server, then bytes.
func (d *Gateway) welcome(ctx context.Context, connection net.Conn, proved func()) {
	defer func() { _ = connection.Close() }()
	claim, proven, err := d.prove(ctx, connection)
	proved()
	if err != nil {
		d.Log.V(1).Info("refused a connection to a card", "from", connection.RemoteAddr().String(), "claim", claim, "why", err.Error())
		return
	}
	if !d.connections.enter(claim) {
		d.Log.Info("a claim has too many connections to its card; this one is refused", "claim", claim)
		return
	}
	defer d.connections.leave(claim)
	dialing, cancel := context.WithTimeout(ctx, handshakeTimeout)
	server, err := d.Dial(dialing, claim)
	cancel()
	if err != nil {
		d.Log.Info("the server of a claim does not answer", "claim", claim, "why", err.Error())
		return
	}
	pipe(ctx, proven, server)
}

// prove has a connection show a certificate of the claim that it names, by an agent that may have it.
func (d *Gateway) prove(ctx context.Context, connection net.Conn) (claim string, proven *tls.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		named, ok := claimOf(hello.ServerName)
		if !ok || !d.Served(named) {
			return nil, errNobody
		}
		peers, err := d.Peers(ctx, named)
		if err != nil {
			return nil, err
		}
		claim = named
		return d.Identity.answerer(named, peers)
	}}
	proven = tls.Server(connection, config)
	return claim, proven, proven.HandshakeContext(ctx)
}

// DialSocket in a folder that a server writes to. A hostile program may have made of that server one that puts a link there,
// to a socket of the node's own.
func DialSocket(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	folder, err := tenantfolder.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return folder.Dial(ctx, name)
}
