package extender

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// replica is a follower or leader that answers with its name.
func replica(t *testing.T, name string, reader client.Reader, leads *atomic.Bool) (*LeaderProxy, *httptest.Server) {
	f := &LeaderProxy{
		Leads: leads.Load, Reader: reader, Lease: client.ObjectKey{Namespace: "ns", Name: "lease"},
		Local: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s: %s", name, body)
		}),
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.Self = Identity(server.Listener.Addr().String())
	return f, server
}

func ask(t *testing.T, url, path string) (int, string) {
	t.Helper()
	response, err := http.Post(url+path, "application/json", strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestLeaderProxyPassesRequestsOnToTheLeader(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lease"}}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(lease).Build()
	var aLeads, bLeads atomic.Bool
	a, serverA := replica(t, "a", c, &aLeads)
	_, serverB := replica(t, "b", c, &bLeads)

	if code, body := ask(t, serverB.URL, "/scheduler/filter"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no leader yet") {
		t.Errorf("without a leader: %d %s", code, body)
	}
	lease.Spec.HolderIdentity = &a.Self
	if err := c.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	// It holds the lease and its cache is not ready: it must not ask itself, nor b ask it in a circle.
	for _, server := range []*httptest.Server{serverA, serverB} {
		if code, body := ask(t, server.URL, "/scheduler/filter"); code != http.StatusServiceUnavailable {
			t.Errorf("with a leader that is not ready: %d %s", code, body)
		}
	}
	aLeads.Store(true)
	for _, server := range []*httptest.Server{serverA, serverB} {
		if code, body := ask(t, server.URL, "/scheduler/bind"); code != http.StatusOK || body != "a: question" {
			t.Errorf("%d %s, want the leader's answer", code, body)
		}
	}
	// What is about the replica itself is not passed on.
	if _, body := ask(t, serverB.URL, "/version"); body != "b: question" {
		t.Errorf("version: %s", body)
	}
}
