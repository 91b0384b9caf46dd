package extender

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Identity of a replica in the leader's lease: where it serves, and a word that no other has.
func Identity(address string) string { return address + "_" + string(uuid.NewUUID()) }

// LeaderProxy passes requests on to the leader until this replica leads itself.
type LeaderProxy struct {
	// Leads says whether Local may answer.
	Leads func() bool
	Local http.Handler
	// Lease names the leader, read from Reader.
	Reader client.Reader
	Lease  client.ObjectKey
	Self   string // our identity
	// TLS is how the leader is reached; nil for plain HTTP.
	TLS *tls.Config

	proxy sync.Once
	pass  *httputil.ReverseProxy

	mu     sync.Mutex
	leader string
	read   time.Time
}

type leaderKey struct{}

// passedOn marks a request that has been passed on once: replicas in doubt must not pass it round.
const passedOn = "X-Elastic-Passed-On"

// leaderAge is how long a leader's address is believed.
const leaderAge = time.Second

// ServeHTTP answers here or has the leader answer.
func (f *LeaderProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.Leads() || !strings.HasPrefix(r.URL.Path, "/scheduler/") {
		f.Local.ServeHTTP(w, r)
		return
	}
	leader, err := f.leaderAddress(r.Context())
	if err == nil && r.Header.Get(passedOn) != "" {
		err = fmt.Errorf("passed on by %s, but the leader is %s", r.Header.Get(passedOn), leader)
	}
	if err != nil {
		http.Error(w, "no leader yet: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	f.proxy.Do(f.makeProxy)
	r.Body = http.MaxBytesReader(w, r.Body, mostBytes)
	f.pass.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), leaderKey{}, leader)))
}

func (f *LeaderProxy) makeProxy() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	scheme := "http"
	if f.TLS != nil {
		scheme, transport.TLSClientConfig = "https", f.TLS
	}
	f.pass = &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: scheme, Host: p.In.Context().Value(leaderKey{}).(string)})
			p.Out.Header.Set(passedOn, f.Self)
		},
	}
}

func (f *LeaderProxy) leaderAddress(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader != "" && time.Since(f.read) < leaderAge {
		return f.leader, nil
	}
	lease := &coordinationv1.Lease{}
	if err := f.Reader.Get(ctx, f.Lease, lease); err != nil {
		return "", err
	}
	identity := ""
	if lease.Spec.HolderIdentity != nil {
		identity = *lease.Spec.HolderIdentity
	}
	address, _, ok := strings.Cut(identity, "_")
	switch {
	case !ok || address == "":
		return "", fmt.Errorf("lease %s names no leader", f.Lease.Name)
	case identity == f.Self:
		return "", fmt.Errorf("this replica is about to lead")
	}
	f.leader, f.read = address, time.Now()
	return address, nil
}
