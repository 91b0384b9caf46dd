package web

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// person is who made a request: a client with their rights, and a key that is theirs alone.
type person struct {
	key    string
	client *cluster.Client
	// lasts is for how long a stream goes on before they must ask anew; 0: as long as who lets them in.
	lasts time.Duration
}

// Access tells who made a request, and refuses strangers.
type Access interface {
	who(r *http.Request) (person, error)
	// open adds routes for strangers, by which they get in.
	open(mux *http.ServeMux)
}

// stranger is an error that refuses someone; signIn: a token would let them in.
type stranger struct {
	text   string
	signIn bool
}

func (e *stranger) Error() string { return e.text }

// refuse answers someone who was not let in, or of whom it cannot be told.
func refuse(w http.ResponseWriter, err error) {
	var known *stranger
	if !errors.As(err, &known) {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	reply(w, http.StatusUnauthorized, map[string]any{"error": known.text, "signIn": known.signIn})
}

var errStranger = &stranger{text: "this page is not open to you: use the link that 'elastic web' printed"}

// Kubeconfig is the access on a laptop: one person, who has the key of the link.
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
		return person{}, &stranger{text: "the page is served to this computer alone, as localhost or 127.0.0.1"}
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

// open turns the key of the link into a cookie.
func (k *Kubeconfig) open(mux *http.ServeMux) {
	mux.HandleFunc("GET /open", func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) || subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(k.key)) != 1 {
			http.Error(w, errStranger.Error(), http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: k.cookie, Value: k.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		// A redirect by the page itself: a browser that comes from elsewhere does not send a strict cookie along a redirect.
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Elastic</title>`))
	})
}
