package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// person is who made a request: a client with their rights, and a key that is theirs alone.
type person struct {
	key    string
	client *cluster.Client
}

// Access tells who made a request, and refuses strangers.
type Access interface {
	who(r *http.Request) (person, error)
	// routes that are open to strangers, such as a login.
	open(mux *http.ServeMux)
	// loginAt says how to get in, for the page.
	loginAt() string
}

var errStranger = errors.New("this page is not open to you: use the link that 'elastic web' printed")

// Kubeconfig is the access on a laptop: one person, whoever has the key of the link.
type Kubeconfig struct {
	client *cluster.Client
	key    string
	cookie string
}

// NewKubeconfig is the access by a key. The port distinguishes cookies of several servers on one host.
func NewKubeconfig(c *cluster.Client, key, port string) *Kubeconfig {
	return &Kubeconfig{client: c, key: key, cookie: "elastic-web-" + port}
}

// NewKey is one that nobody guesses.
func NewKey() string {
	random := make([]byte, 24)
	_, _ = rand.Read(random) // it never fails
	return base64.RawURLEncoding.EncodeToString(random)
}

func (k *Kubeconfig) who(r *http.Request) (person, error) {
	if !loopback(r.Host) {
		return person{}, errors.New("the page is served to this computer alone, as localhost or 127.0.0.1")
	}
	cookie, err := r.Cookie(k.cookie)
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(k.key)) != 1 {
		return person{}, errStranger
	}
	return person{key: "kubeconfig", client: k.client}, nil
}

// loopback: the browser was sent here by a name of this computer, not by a stranger's DNS.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (k *Kubeconfig) loginAt() string { return "" }

// open turns the key of the link into a cookie.
func (k *Kubeconfig) open(mux *http.ServeMux) {
	mux.HandleFunc("GET /open", func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) || subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(k.key)) != 1 {
			http.Error(w, errStranger.Error(), http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: k.cookie, Value: k.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // loopback has no TLS
		// A redirect by the page itself: a browser that comes from elsewhere does not send a strict cookie along a redirect.
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Elastic</title>`))
	})
}

// Token is the access in a cluster: each person's own bearer token, by an authenticating proxy's
// header or a cookie that the login form sets.
type Token struct {
	config *rest.Config // address and CA, without any rights

	mu      sync.Mutex
	clients map[string]*cluster.Client
}

// NewToken makes clients of the cluster that a configuration names; its own rights are not used.
func NewToken(config *rest.Config) *Token {
	return &Token{config: rest.AnonymousClientConfig(config), clients: map[string]*cluster.Client{}}
}

const tokenCookie = "__Host-elastic-token"

func (t *Token) who(r *http.Request) (person, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		if cookie, err := r.Cookie(tokenCookie); err == nil {
			token = cookie.Value
		}
	}
	if token == "" {
		return person{}, errNoToken
	}
	sum := sha256.Sum256([]byte(token))
	key := hex.EncodeToString(sum[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[key]
	if c == nil {
		config := rest.CopyConfig(t.config)
		config.BearerToken, config.QPS = token, -1
		var err error
		if c, err = cluster.Connect(config, ""); err != nil {
			return person{}, err
		}
		if len(t.clients) >= mostSessions*4 {
			clear(t.clients)
		}
		t.clients[key] = c
	}
	return person{key: key, client: c}, nil
}

var errNoToken = errors.New("log in with a bearer token of the cluster")

func (t *Token) loginAt() string { return "/api/login" }

// open is the login: a token that the API server knows becomes a cookie that scripts cannot read.
func (t *Token) open(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/login", func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			http.Error(w, errForeign.Error(), http.StatusForbidden)
			return
		}
		token := strings.TrimSpace(r.PostFormValue("token"))
		try := r.Clone(r.Context())
		try.Header.Set("Authorization", "Bearer "+token)
		p, err := t.who(try)
		if err == nil {
			_, err = whoAmI(r.Context(), p.client)
		}
		if err != nil {
			fail(w, http.StatusUnauthorized, err)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: tokenCookie, Value: token, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode})
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /api/logout", func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: tokenCookie, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
		w.WriteHeader(http.StatusNoContent)
	})
}
