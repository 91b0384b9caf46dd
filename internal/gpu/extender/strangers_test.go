package extender

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/placement"
)

func mutual(t testing.TB) certs.Mutual {
	t.Helper()
	m, err := certs.MakeMutual("extender", []string{"127.0.0.1", "extender.example"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// serving the handler as the program does, until the test ends; the address is where.
func serving(t *testing.T, server *Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Address, server.Log = listener.Addr().String(), logr.Discard()
	_ = listener.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		connection, err := net.Dial("tcp", server.Address)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return server.Address
}

func serverTLS(t *testing.T, m certs.Mutual) *tls.Config {
	t.Helper()
	config, err := m.Server()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func asking(t *testing.T, m certs.Mutual, name string) *http.Client {
	t.Helper()
	config, err := m.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

// Only who has the client's certificate is answered: not a stranger, not one with a certificate of their
// own, not one who asks in plain text, and not the server's own certificate.
func TestStrangerIsRefused(t *testing.T) {
	m, theirs := mutual(t), mutual(t)
	var asked atomic.Int32
	address := serving(t, &Server{TLS: serverTLS(t, m), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })})
	none := asking(t, m, "")
	none.Transport.(*http.Transport).TLSClientConfig.Certificates = nil
	forged := asking(t, m, "")
	forged.Transport.(*http.Transport).TLSClientConfig.Certificates = asking(t, theirs, "").Transport.(*http.Transport).TLSClientConfig.Certificates
	turned := asking(t, m, "")
	turned.Transport.(*http.Transport).TLSClientConfig.Certificates = serverTLS(t, m).Certificates
	for name, c := range map[string]*http.Client{"no certificate": none, "another's": forged, "the server's own": turned} {
		if response, err := c.Get("https://" + address + "/scheduler/status"); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s: answered with %s", name, response.Status)
		}
	}
	if response, err := http.Get("http://" + address + "/scheduler/status"); err == nil {
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Errorf("plain text: answered with %s", response.Status)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Fatalf("%d requests of strangers came through", n)
	}
	response, err := asking(t, m, "").Get("https://" + address + "/scheduler/status")
	if err != nil || asked.Load() != 1 {
		t.Fatalf("kube-scheduler's own: %v", err)
	}
	_ = response.Body.Close()
}

// A replica that passes a request on shows its certificate to the leader, whatever the leader's address.
func TestLeaderProxyHasACertificate(t *testing.T) {
	m := mutual(t)
	leader := serving(t, &Server{TLS: serverTLS(t, m), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})})
	identity := leader + "_leader"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lease"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity}}
	config, err := m.Client("extender.example")
	if err != nil {
		t.Fatal(err)
	}
	follower := serving(t, &Server{TLS: serverTLS(t, m), Handler: &LeaderProxy{
		Leads: func() bool { return false }, Self: "follower", TLS: config, Lease: client.ObjectKeyFromObject(lease),
		Reader: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(lease).Build(),
	}})
	response, err := asking(t, m, "").Post("https://"+follower+"/scheduler/bind", "application/json", strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "question" {
		t.Fatalf("%s %q %v", response.Status, body, err)
	}
}

// A client that sends its request drop by drop is cut off.
func TestSlowClientIsCutOff(t *testing.T) {
	m := mutual(t)
	address := serving(t, &Server{
		TLS: serverTLS(t, m), ReadTimeout: 50 * time.Millisecond, Handler: NewHandler(&scheduler{}, NewMetrics(prometheus.NewRegistry()), logr.Discard()),
	})
	for name, text := range map[string]string{
		"in its headers": "POST /scheduler/filter HTTP/1.1\r\nHost: x\r\n",
		"in its body":    "POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
	} {
		config, err := m.Client("")
		if err != nil {
			t.Fatal(err)
		}
		config.ServerName = "127.0.0.1"
		connection, err := tls.Dial("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(connection, text); err != nil {
			t.Fatal(err)
		}
		// Nothing more is sent: the other side ends it.
		if _, err := io.Copy(io.Discard, connection); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		_ = connection.Close()
	}
}

// scheduler that answers everything.
type scheduler struct{ bound []types.UID }

func (*scheduler) Filter(_ context.Context, _ *corev1.Pod, nodes []string) ([]placement.Verdict, error) {
	verdicts := make([]placement.Verdict, len(nodes))
	for i, name := range nodes {
		verdicts[i] = placement.Verdict{Node: name, Reason: placement.Fits}
	}
	return verdicts, nil
}

func (*scheduler) Score(_ context.Context, _ *corev1.Pod, nodes []string) ([]int64, error) {
	return make([]int64, len(nodes)), nil
}

func (*scheduler) Preempt(_ context.Context, _ *corev1.Pod, victims map[string][]types.UID) (map[string]bool, error) {
	fits := map[string]bool{}
	for node := range victims {
		fits[node] = true
	}
	return fits, nil
}

func (s *scheduler) Bind(_ context.Context, _ client.ObjectKey, uid types.UID, _ string) error {
	s.bound = append(s.bound, uid)
	return nil
}

func (*scheduler) Status(context.Context) ([]placement.NodeStatus, error) { return nil, nil }

func posted(h http.Handler, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, body))
	return w
}

func TestRequestsAreLimited(t *testing.T) {
	s := &scheduler{}
	h := NewHandler(s, NewMetrics(prometheus.NewRegistry()), logr.Discard())
	huge := io.MultiReader(strings.NewReader(`{"NodeNames":["`), io.LimitReader(letters{}, mostBytes), strings.NewReader(`"]}`))
	if w := posted(h, "/scheduler/filter", huge); w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "nodeCacheCapable") {
		t.Errorf("a huge body: %d %s", w.Code, w.Body)
	}
	for _, body := range []string{
		`{"PodName":"p","PodNamespace":"ns","Node":"n"}`, `{"PodName":"p","PodNamespace":"ns","PodUID":"u"}`,
		`{"PodName":"p","PodUID":"u","Node":"n"}`, `{"PodNamespace":"ns","PodUID":"u","Node":"n"}`, `{}`,
	} {
		if w := posted(h, "/scheduler/bind", strings.NewReader(body)); !strings.Contains(w.Body.String(), "names no pod") {
			t.Errorf("bind %s: %s", body, w.Body)
		}
	}
	if len(s.bound) != 0 {
		t.Errorf("bound %v", s.bound)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("profiles are served: %d", w.Code)
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("a"), len(p))), nil }

// Whatever is sent, the answer is one that kube-scheduler can read, or an error; nothing panics.
func FuzzWire(f *testing.F) {
	for _, body := range []string{
		`{"Pod":{"metadata":{"name":"p","namespace":"ns"}},"NodeNames":["a","b"]}`,
		`{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}}]},"NodeNames":null}`,
		`{"Pod":null}`, `{"NodeNames":["a\"b",""]}`, `{"NodeNames":[1]}`,
		`{"Pod":{},"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u"},null]},"b":null}}`,
		`{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"uid":"u"}},null]},"b":null}}`,
		`{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n"}`, `[]`, `null`, ``, `{`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h := NewHandler(&scheduler{}, NewMetrics(prometheus.NewRegistry()), logr.Discard())
		for _, verb := range []string{"filter", "priorities", "preempt", "bind"} {
			w := posted(h, "/scheduler/"+verb, bytes.NewReader(body))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Fatalf("%s: %d %s", verb, w.Code, w.Body)
			}
		}
	})
}
