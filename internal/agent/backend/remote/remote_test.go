package remote_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wire "github.com/elastic-ai/elastic/api/backend/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/remote"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
)

// Somebody else's backend passes what ours pass, over the socket.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Leaves: true,
		New: func(t *testing.T, dir string) backend.Backend {
			return behind(t, &simulated.Backend{As: "theirs", Dir: dir})
		},
	})
}

// behind a socket of its own.
func behind(t *testing.T, theirs backend.Backend) backend.Backend {
	t.Helper()
	dir, err := os.MkdirTemp("", "backend-") // short: sockets' paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterBackendServer(server, &remote.Server{Backend: theirs})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	b, err := remote.New(theirs.Name(), socket)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBackendThatIsNotThere(t *testing.T) {
	b, err := remote.New("theirs", filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Prepare(t.Context(), conformance.Subject{}.Share("1", 0)); err == nil {
		t.Error("a container would start without its share")
	}
	if _, err := b.Held(t.Context()); err == nil {
		t.Error("it is said to hold nothing, and that is not known")
	}
}

// stuck is a backend that never answers.
type stuck struct{ backend.Backend }

func (stuck) Name() string { return "stuck" }

func (stuck) Release(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// One that does not answer is not waited for without end: who asks holds the slots of all.
func TestBackendThatDoesNotAnswer(t *testing.T) {
	b := behind(t, stuck{}).(*remote.Backend)
	b.Timeout = time.Millisecond
	if err := b.Release(t.Context(), "1"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}
