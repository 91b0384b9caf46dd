package remotegpu

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-logr/logr/testr"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

// hall is a gateway whose servers send back what they get, with the claim's UID first.
func hall(t *testing.T, card *Identity, peers map[string]*x509.CertPool) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gateway := &Gateway{
		Identity: card, Log: testr.New(t),
		Served: func(c string) bool { return peers[c] != nil },
		Peers:  func(_ context.Context, c string) (*x509.CertPool, error) { return peers[c], nil },
		Dial: func(_ context.Context, c string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = io.WriteString(there, c)
				_ = there.Close()
			}()
			return here, nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func greeting(config *tls.Config, address string) (string, error) {
	c, err := tls.Dial("tcp", address, config)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	said, err := io.ReadAll(c)
	return string(said), err
}

func TestOnlyTheClaimsOwnAgentIsLetIn(t *testing.T) {
	const other = "6f1f1c7e-0000-4000-8000-000000000002"
	card, here, there := identity(t, "card"), identity(t, "a"), identity(t, "b")
	address := hall(t, card, map[string]*x509.CertPool{claim: pool(t, here), other: pool(t, here, there)})
	cards := pool(t, card)
	config := func(by *Identity, of string, change func(*tls.Config)) *tls.Config {
		c, err := by.dialer(of, cards)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(c)
		}
		return c
	}
	certificate := func(by *Identity, of string, usage x509.ExtKeyUsage) []tls.Certificate {
		c, err := by.certificate(of+claimDomain, usage)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{c}
	}
	if said, err := greeting(config(here, claim, nil), address); err != nil || said != claim {
		t.Fatalf("%q %v", said, err)
	}
	for name, c := range map[string]*tls.Config{
		"an agent of a node where no pod uses the claim": config(there, claim, nil),
		"a certificate of another claim of the same node": config(here, claim, func(c *tls.Config) {
			c.Certificates = certificate(here, other, x509.ExtKeyUsageClientAuth)
		}),
		"a certificate of a server": config(here, claim, func(c *tls.Config) {
			c.Certificates = certificate(here, claim, x509.ExtKeyUsageServerAuth)
		}),
		"no certificate":             config(here, claim, func(c *tls.Config) { c.Certificates = nil }),
		"a claim that is not served": config(here, "6f1f1c7e-0000-4000-8000-000000000003", nil),
		"no claim":                   config(here, claim, func(c *tls.Config) { c.ServerName, c.InsecureSkipVerify = "", true }),
		"an older protocol": config(here, claim, func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		}),
	} {
		if said, err := greeting(c, address); err == nil || said != "" {
			t.Errorf("%s: let in, %q", name, said)
		}
	}
	// The other way: an agent that is not the card's node's is not believed.
	c := config(here, claim, func(c *tls.Config) { c.RootCAs = pool(t, there) })
	if _, err := greeting(c, address); err == nil {
		t.Error("another node's agent posed as the card's")
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	c := &counter{}
	for range claimConnections {
		if !c.enter("a") {
			t.Fatal("refused within the bound")
		}
	}
	if c.enter("a") {
		t.Error("one claim has more than its bound")
	}
	n := claimConnections
	for i := 0; c.enter(fmt.Sprint(i)); i++ {
		n++
	}
	if n != allConnections {
		t.Errorf("%d connections in all", n)
	}
	c.leave("a")
	if !c.enter("a") {
		t.Error("what left is counted on")
	}
}

// What a hostile program made of its server puts in the place of the socket is not followed.
func TestServersSocketIsNoWayElsewhere(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("for Linux")
	}
	dir, err := os.MkdirTemp("", "remote-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	theirs := filepath.Join(dir, "theirs")
	if err := os.Mkdir(theirs, 0o750); err != nil {
		t.Fatal(err)
	}
	nodes, err := net.Listen("unix", filepath.Join(dir, "node.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nodes.Close() }()
	if err := os.Symlink("../node.sock", filepath.Join(theirs, ServerSocket)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(theirs, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ServerSocket, "../node.sock", "file", "."} {
		if c, err := DialSocket(t.Context(), theirs, name); err == nil {
			_ = c.Close()
			t.Errorf("%s was connected to", name)
		}
	}
}

func TestBackendConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		New: func(t *testing.T, dir string) backend.Backend {
			relay := &Relay{Identity: identity(t, "a"), Log: testr.New(t), Find: func(context.Context, share.Remote) (Target, error) {
				return Target{}, errors.New("nowhere")
			}}
			t.Cleanup(relay.End)
			return &Clients{Dir: dir, Engines: map[string]Engine{engine: {}}, Relay: relay}
		},
		Remote: &share.Remote{Claim: claim, Engine: engine},
		Leaves: true,
	})
}

func TestEngineThatIsNotHere(t *testing.T) {
	c := &Clients{Dir: t.TempDir(), Engines: map[string]Engine{"other": {Files: map[string]string{"/usr/lib/libcuda.so.1": "/nowhere"}}}}
	for _, name := range []string{engine, "other"} {
		if _, err := c.Prepare(t.Context(), &share.Share{ID: "1", Remote: &share.Remote{Claim: claim, Engine: name}}); err == nil {
			t.Errorf("%s: a container would start without its files", name)
		}
	}
}
