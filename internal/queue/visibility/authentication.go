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

// User who asks, as the API server authenticated them.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// RequestClientCertificate has a server ask for client certificates. Webhooks are called without
// one; the requestHeaderAuthenticator verifies those that are sent.
func RequestClientCertificate(config *tls.Config) { config.ClientAuth = tls.RequestClientCert }

// requestHeaderAuthenticator recognizes the API server by its client certificate and trusts its
// headers about the user. What it needs for that, the API server publishes in a ConfigMap.
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

// reloadAfter is how long the ConfigMap is cached. API servers' certificates change rarely; one
// that is not recognized is a reason to read it again.
const reloadAfter = time.Hour

// authenticate a request, or say why it is rejected.
func (a *requestHeaderAuthenticator) authenticate(r *http.Request) (User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return User{}, errors.New("no client certificate: come through the API server")
	}
	err := a.verify(r.Context(), r.TLS.PeerCertificates, false)
	if err != nil {
		err = a.verify(r.Context(), r.TLS.PeerCertificates, true)
	}
	if err != nil {
		return User{}, err
	}
	a.mu.Lock()
	h := a.headers
	a.mu.Unlock()
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
		return User{}, errors.New("the API server does not name the user")
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

func (a *requestHeaderAuthenticator) verify(ctx context.Context, chain []*x509.Certificate, again bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	age := reloadAfter
	if again {
		age = time.Second // unknown clients must not cause a read each time
	}
	if time.Since(a.read) > age {
		if err := a.load(ctx); err != nil {
			return err
		}
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: a.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("the client certificate is not the API server's: %w", err)
	}
	if len(a.allowed) > 0 && !slices.Contains(a.allowed, chain[0].Subject.CommonName) {
		return fmt.Errorf("%q may not speak for users", chain[0].Subject.CommonName)
	}
	return nil
}

// load reads what the API server publishes about itself.
func (a *requestHeaderAuthenticator) load(ctx context.Context) error {
	config := &corev1.ConfigMap{}
	if err := a.reader.Get(ctx, published, config); err != nil {
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
	a.roots, a.allowed, a.read = roots, list("requestheader-allowed-names"), time.Now()
	a.headers = headers{
		name: list("requestheader-username-headers"), uid: list("requestheader-uid-headers"),
		group: list("requestheader-group-headers"), extra: list("requestheader-extra-headers-prefix"),
	}
	return nil
}
