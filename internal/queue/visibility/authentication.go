package visibility

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// User is who asks, as the API server found out.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// AskForCertificate lets the server that this one lives in ask for client
// certificates. Webhooks are called without; who brings one is looked at here.
func RequestClientCertificate(config *tls.Config) { config.ClientAuth = tls.RequestClientCert }

// front knows the API server by its client certificate, and takes its word for
// who the user is. What it needs for that the API server publishes.
type requestHeaderAuthenticator struct {
	reader client.Reader

	mu      sync.Mutex
	read    time.Time
	roots   *x509.CertPool
	allowed []string // common names; empty allows any that the CA signed
	headers headers
}

type headers struct{ name, uid, group, extra []string }

var published = types.NamespacedName{Namespace: "kube-system", Name: "extension-apiserver-authentication"}

// stale is how long what was read counts. Certificates of API servers change
// rarely; one that is not recognized is a reason to look again.
const reloadAfter = time.Hour

// user of a request, or why it is not believed.
func (f *requestHeaderAuthenticator) authenticate(r *http.Request) (User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return User{}, errors.New("no client certificate: come through the API server")
	}
	err := f.verify(r.Context(), r.TLS.PeerCertificates, false)
	if err != nil {
		err = f.verify(r.Context(), r.TLS.PeerCertificates, true)
	}
	if err != nil {
		return User{}, err
	}
	f.mu.Lock()
	h := f.headers
	f.mu.Unlock()
	user := User{Name: first(r, h.name), UID: first(r, h.uid), Extra: map[string][]string{}}
	for _, name := range h.group {
		user.Groups = append(user.Groups, r.Header.Values(name)...)
	}
	for name, values := range r.Header {
		for _, prefix := range h.extra {
			if key, ok := cutPrefixFold(name, prefix); ok {
				if plain, err := url.PathUnescape(key); err == nil {
					key = plain
				}
				user.Extra[strings.ToLower(key)] = values
			}
		}
	}
	if user.Name == "" {
		return User{}, errors.New("the API server does not say who asks")
	}
	return user, nil
}

func first(r *http.Request, names []string) string {
	for _, name := range names {
		if value := r.Header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

func cutPrefixFold(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return "", false
	}
	return text[len(prefix):], true
}

func (f *requestHeaderAuthenticator) verify(ctx context.Context, chain []*x509.Certificate, again bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	patience := reloadAfter
	if again {
		patience = time.Second // strangers do not make us read all the time
	}
	if time.Since(f.read) > patience {
		if err := f.load(ctx); err != nil {
			return err
		}
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: f.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("the client certificate is not the API server's: %w", err)
	}
	if len(f.allowed) > 0 && !slices.Contains(f.allowed, chain[0].Subject.CommonName) {
		return fmt.Errorf("%q may not speak for users", chain[0].Subject.CommonName)
	}
	return nil
}

// load reads what the API server publishes about itself.
func (f *requestHeaderAuthenticator) load(ctx context.Context) error {
	config := &corev1.ConfigMap{}
	if err := f.reader.Get(ctx, published, config); err != nil {
		return fmt.Errorf("reading how the API server identifies itself: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(config.Data["requestheader-client-ca-file"])) {
		return fmt.Errorf("%s has no requestheader-client-ca-file: the API server is not set up for aggregated APIs", published)
	}
	list := func(key string) (out []string) {
		_ = json.Unmarshal([]byte(config.Data[key]), &out)
		return out
	}
	f.roots, f.allowed, f.read = roots, list("requestheader-allowed-names"), time.Now()
	f.headers = headers{
		name: list("requestheader-username-headers"), uid: list("requestheader-uid-headers"),
		group: list("requestheader-group-headers"), extra: list("requestheader-extra-headers-prefix"),
	}
	return nil
}
