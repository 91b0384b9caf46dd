package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// InCluster is the access to a server in the cluster: each person by their own bearer token, or by the word of a proxy
// that authenticates them. The server's own account is used for nothing but to speak for those whom the proxy names.
type InCluster struct {
	api   *rest.Config // where the API server is, and nobody's rights
	proxy *Proxy       // nil: there is none
	own   *rest.Config // the account that speaks for those whom the proxy names
	now   func() time.Time

	mu     sync.Mutex
	people map[string]*known
}

// known is a person whom the API server has recognized.
type known struct {
	person
	verified, used time.Time
}

const (
	// verifyEvery is how long a token counts without asking again: one that was revoked ends with it.
	verifyEvery  = time.Minute
	verifyWithin = 10 * time.Second
	// lastVerified is for how long someone known is let in while the API server does not answer: there is nothing new to see.
	lastVerified = 10 * time.Minute
	mostPeople   = 1000
	// proxiedFor is how long a stream of someone whom a proxy named lasts: then the proxy has to let them in again.
	proxiedFor = 15 * time.Minute

	signInCookie = "__Host-elastic-token" // which browsers take over TLS alone, and send to this host alone
	// Browsers take no longer cookies, name and attributes included.
	mostToken = 3800
)

// NewInCluster is the access by tokens and, where it is not nil, by a proxy. The configuration is that of the server's own account.
func NewInCluster(config *rest.Config, proxy *Proxy) *InCluster {
	a := &InCluster{api: rest.AnonymousClientConfig(config), proxy: proxy, now: time.Now, people: map[string]*known{}}
	a.api.QPS = -1 // the API server has its own limits for each person
	if proxy != nil {
		a.own = rest.CopyConfig(config)
		a.own.QPS = -1
	}
	return a
}

var errSignIn = &stranger{text: "sign in with a token of the cluster", signIn: true}

func (a *InCluster) who(r *http.Request) (person, error) {
	if a.proxy.sent(r) {
		user, groups, err := a.proxy.names(r)
		if err != nil {
			return person{}, err
		}
		return a.recognize(r.Context(), "proxy "+digest(append([]string{user}, groups...)...), proxiedFor, func() *rest.Config {
			config := rest.CopyConfig(a.own)
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
			return config
		})
	}
	token := tokenOf(r)
	if token == "" {
		return person{}, errSignIn
	}
	return a.recognizeToken(r.Context(), token)
}

func (a *InCluster) recognizeToken(ctx context.Context, token string) (person, error) {
	return a.recognize(ctx, "token "+digest(token), 0, func() *rest.Config {
		config := rest.CopyConfig(a.api)
		config.BearerToken = token
		return config
	})
}

// tokenOf a request: in its header, as a proxy or a program sends it, or in the cookie of the sign-in. Never in its address.
func tokenOf(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(token)
	}
	if cookie, err := r.Cookie(signInCookie); err == nil {
		return cookie.Value
	}
	return ""
}

// digest of strings that no other strings have.
func digest(of ...string) string {
	sum := sha256.Sum256(encode(of))
	return hex.EncodeToString(sum[:])
}

// recognize a person by a key that is theirs alone. The API server is asked who they are, now and then: nobody whom it does
// not know gets a session, or anything else that takes memory.
func (a *InCluster) recognize(ctx context.Context, key string, lasts time.Duration, config func() *rest.Config) (person, error) {
	now := a.now()
	a.mu.Lock()
	who := a.people[key]
	if who != nil {
		who.used = now
		if now.Sub(who.verified) < verifyEvery {
			a.mu.Unlock()
			return who.person, nil
		}
	}
	a.mu.Unlock()
	p := person{key: key, lasts: lasts}
	if who != nil {
		p = who.person
	} else {
		client, err := cluster.Connect(config(), "")
		if err != nil {
			return person{}, err
		}
		p.client = client
	}
	ctx, cancel := context.WithTimeout(ctx, verifyWithin)
	defer cancel()
	name, err := whoAmI(ctx, p.client)
	switch {
	case apierrors.IsUnauthorized(err):
		a.forget(key)
		return person{}, &stranger{text: "the cluster does not know this token, or not any more: sign in again", signIn: true}
	case apierrors.IsForbidden(err): // to impersonate
		a.forget(key)
		return person{}, &stranger{text: err.Error()}
	case err != nil && (who == nil || now.Sub(who.verified) > lastVerified):
		return person{}, err
	case err != nil:
		return p, nil
	}
	if who == nil { // nobody else has this client yet
		p.client.Namespace = homeOf(name)
	}
	a.remember(key, p, now)
	return p, nil
}

// homeOf a person is the namespace that is shown first: a service account's own.
func homeOf(user string) string {
	if of, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(of, ":")
		return namespace
	}
	return "default"
}

func (a *InCluster) forget(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.people, key)
}

func (a *InCluster) remember(key string, p person, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.people[key]; known != nil {
		known.verified = now
		return
	}
	if len(a.people) >= mostPeople {
		longest := ""
		for k, one := range a.people {
			if longest == "" || one.used.Before(a.people[longest].used) {
				longest = k
			}
		}
		delete(a.people, longest)
	}
	a.people[key] = &known{person: p, verified: now, used: now}
}

// open lets people sign in with a token, and out again. The token becomes a cookie that no script reads.
func (a *InCluster) open(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/sign-in", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !sameOrigin(r) {
			fail(w, http.StatusForbidden, errForeign)
			return
		}
		var given struct {
			Token string `json:"token"`
		}
		if err := readBody(w, r, 16<<10, &given); err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		cookie := &http.Cookie{Name: signInCookie, Value: strings.TrimSpace(given.Token), Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
		if cookie.Value == "" || len(cookie.Value) > mostToken || cookie.Valid() != nil {
			fail(w, http.StatusBadRequest, errors.New("this is no token that a cookie can hold: have a proxy sign people in, or use a shorter one, as 'kubectl create token' makes it"))
			return
		}
		if _, err := a.recognizeToken(r.Context(), cookie.Value); err != nil {
			refuse(w, err)
			return
		}
		http.SetCookie(w, cookie)
		reply(w, http.StatusOK, map[string]any{})
	})
	mux.HandleFunc("POST /api/sign-out", func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			fail(w, http.StatusForbidden, errForeign)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: signInCookie, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		reply(w, http.StatusOK, map[string]any{})
	})
}
