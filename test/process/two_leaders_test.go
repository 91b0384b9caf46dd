package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// A leader that is stopped past its lease, as a host that swaps or a paused virtual machine does it, goes on in
// the middle of a decision, on what it knew. Another one leads by now: it writes nothing, and ends.
func TestStoppedLeaderWritesNothing(t *testing.T) {
	const lease = "leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 1s"
	queue(t, "fence")
	way := newWay(t)
	old := launchWithLease(t, lease, "--kubeconfig", way.kubeconfig)
	old.scrape(t, `replica_role="leader"`)
	led := leader(t, "")
	way.set(holding)
	wl := submit(t, "fence")
	sandbox.Eventually(t, "the leader writes that it is admitted", func(context.Context) error {
		if way.count() == 0 {
			return errors.New("it has written nothing")
		}
		return nil
	})
	if err := old.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	launchWithLease(t, lease)
	leader(t, led)
	sandbox.Eventually(t, "the new leader admits it", func(ctx context.Context) error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			return fmt.Errorf("conditions are %v", wl.Status.Conditions)
		}
		return nil
	})

	way.set(recording)
	if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := old.cmd.Wait(); err == nil {
		t.Error("without its lease it ended well")
	}
	if n := way.count(); n != 0 {
		t.Errorf("after it went on it sent %d writes: %s", n, way.writes)
	}
	if said, _ := os.ReadFile(old.log); !strings.Contains(string(said), "leader election lost") || !strings.Contains(string(said), "writes nothing") {
		t.Error("it does not say why it ended")
	}
}

// leader waits until somebody else than the given one has the lease, and returns who.
func leader(t *testing.T, not string) (identity string) {
	t.Helper()
	sandbox.Eventually(t, "somebody leads", func(ctx context.Context) error {
		leases := &coordinationv1.LeaseList{}
		if err := api.List(ctx, leases, client.InNamespace("kueue-system")); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if who := l.Spec.HolderIdentity; who != nil && *who != "" && *who != not {
				identity = *who
				return nil
			}
		}
		return fmt.Errorf("%d leases, held by %q", len(leases.Items), not)
	})
	return identity
}

// way from a process to the API server, on which a test decides what gets there. The lease always does.
type way struct {
	kubeconfig string
	server     *httptest.Server

	mu     sync.Mutex
	mode   mode
	ended  chan struct{} // with the mode
	writes []string      // in this mode
}

type mode int

const (
	open      mode = iota
	holding        // writes of statuses have no answer
	recording      // nothing but the lease gets through, and nobody learns anything new
)

func newWay(t *testing.T) *way {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	if proxy.Transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	w := &way{ended: make(chan struct{})}
	w.server = httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/leases") || w.passes(to, r) {
			proxy.ServeHTTP(to, r)
		}
	}))
	t.Cleanup(func() {
		w.set(open)
		w.server.Close()
	})
	file := clientcmdapi.NewConfig()
	file.Clusters["way"] = &clientcmdapi.Cluster{Server: w.server.URL}
	file.Contexts["way"] = &clientcmdapi.Context{Cluster: "way"}
	file.CurrentContext = "way"
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return w
}

// set the mode. Requests under way are cut off.
func (w *way) set(m mode) {
	w.mu.Lock()
	w.mode, w.writes = m, nil
	close(w.ended)
	w.ended = make(chan struct{})
	w.mu.Unlock()
	w.server.CloseClientConnections()
}

func (w *way) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes)
}

// passes says that a request may go on; others are answered here.
func (w *way) passes(to http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	mode, ended := w.mode, w.ended
	isWrite := r.Method != http.MethodGet && (mode == recording || strings.HasSuffix(r.URL.Path, "/status"))
	if isWrite {
		w.writes = append(w.writes, r.Method+" "+r.URL.String())
	}
	w.mu.Unlock()
	switch {
	case mode == holding && isWrite:
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	case mode != recording:
		return true
	}
	to.WriteHeader(http.StatusServiceUnavailable)
	return false
}
