package web

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/elastic-ai/elastic/internal/certs"
)

// apiServer recognizes tokens, and lets the server's own account impersonate.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	tokens  map[string]string // to users
	spoke   []string          // for whom the own account spoke: the user, then the groups
	away    bool
	asked   int
	handled http.HandlerFunc // anything else
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{tokens: map[string]string{"own": "system:serviceaccount:elastic-queue:elastic-web", "ada": "ada", "bob": "system:serviceaccount:team-b:bob"}}
	a.handled = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked++
		w.Header().Set("Content-Type", "application/json")
		user := a.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		switch as := r.Header.Get("Impersonate-User"); {
		case a.away:
			w.WriteHeader(http.StatusBadGateway)
			return
		case user == "":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
			return
		case as != "":
			user, a.spoke = as, append([]string{as}, r.Header.Values("Impersonate-Group")...)
		}
		if !strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			a.handled(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": user}},
		})
	}))
	t.Cleanup(a.Close)
	return a
}

func certificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return c
}

// inCluster is a server as in a cluster, with a proxy whose certificate is returned, and the one of a stranger.
func inCluster(t *testing.T) (s *Server, access *InCluster, api *apiServer, proxy, stranger certs.Mutual) {
	t.Helper()
	proxy, err := certs.MakeMutual("proxy", []string{"proxy"}, time.Now())
	must(t, err)
	stranger, err = certs.MakeMutual("stranger", []string{"proxy"}, time.Now())
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(proxy.CA)
	api = newAPIServer(t)
	access = NewInCluster(&rest.Config{Host: api.URL, BearerToken: "own"}, &Proxy{
		Roots: roots, Names: []string{"kube-scheduler"}, UserHeaders: []string{"X-Remote-User"}, GroupHeaders: []string{"X-Remote-Group"}, GroupSeparator: ",",
	})
	return New(t.Context(), Options{Access: access}), access, api, proxy, stranger
}

func TestWhoMayComeIn(t *testing.T) {
	s, access, api, proxy, stranger := inCluster(t)
	shows := func(r *http.Request, data []byte) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate(t, data)}}
	}
	bearer := func(r *http.Request, token string) { r.Header.Set("Authorization", "Bearer "+token) }
	for name, test := range map[string]struct {
		path   string
		change func(r *http.Request)
		user   string // empty: refused
		spoke  []string
	}{
		"nobody":                    {change: func(*http.Request) {}},
		"a token":                   {change: func(r *http.Request) { bearer(r, "ada") }, user: "ada"},
		"a token in a cookie":       {change: func(r *http.Request) { r.AddCookie(&http.Cookie{Name: signInCookie, Value: "ada"}) }, user: "ada"},
		"no such token":             {change: func(r *http.Request) { bearer(r, "eve") }},
		"no such token, cookie":     {change: func(r *http.Request) { r.AddCookie(&http.Cookie{Name: signInCookie, Value: "eve"}) }},
		"a token in the address":    {path: "?token=ada&access_token=ada&key=ada", change: func(*http.Request) {}},
		"a password":                {change: func(r *http.Request) { r.SetBasicAuth("ada", "ada") }},
		"forged headers":            {change: func(r *http.Request) { r.Header.Set("X-Remote-User", "ada") }},
		"forged, with a token":      {change: func(r *http.Request) { r.Header.Set("X-Remote-User", "root"); bearer(r, "ada") }, user: "ada"},
		"forged impersonation":      {change: func(r *http.Request) { r.Header.Set("Impersonate-User", "root"); bearer(r, "ada") }, user: "ada"},
		"another's certificate":     {change: func(r *http.Request) { r.Header.Set("X-Remote-User", "ada"); shows(r, stranger.ClientCertificate) }},
		"a server's certificate":    {change: func(r *http.Request) { r.Header.Set("X-Remote-User", "ada"); shows(r, proxy.ServerCertificate) }},
		"the proxy":                 {change: func(r *http.Request) { r.Header.Set("X-Remote-User", "eva"); shows(r, proxy.ClientCertificate) }, user: "eva", spoke: []string{"eva"}},
		"the proxy, without a user": {change: func(r *http.Request) { shows(r, proxy.ClientCertificate) }},
		"the proxy, groups": {change: func(r *http.Request) {
			r.Header.Set("X-Remote-User", "eva")
			r.Header.Add("X-Remote-Group", "vision, nlp")
			r.Header.Add("X-Remote-Group", "nlp,system:authenticated")
			shows(r, proxy.ClientCertificate)
		}, user: "eva", spoke: []string{"eva", "nlp", "vision"}},
		"the proxy, two users": {change: func(r *http.Request) {
			r.Header.Add("X-Remote-User", "eva")
			r.Header.Add("X-Remote-User", "root")
			shows(r, proxy.ClientCertificate)
		}},
		"the proxy, a master": {change: func(r *http.Request) {
			r.Header.Set("X-Remote-User", "eva")
			r.Header.Set("X-Remote-Group", "nlp,system:masters")
			shows(r, proxy.ClientCertificate)
		}},
		"the proxy, Kubernetes' own": {change: func(r *http.Request) {
			r.Header.Set("X-Remote-User", "system:kube-controller-manager")
			shows(r, proxy.ClientCertificate)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			api.spoke = nil
			clear(access.people)
			w := request(s, "GET", "/api/me"+test.path, test.change)
			var said struct {
				User   string
				SignIn bool
			}
			must(t, json.Unmarshal(w.Body.Bytes(), &said))
			if said.User != test.user || (test.user == "") != (w.Code == http.StatusUnauthorized) || !slices.Equal(api.spoke, test.spoke) {
				t.Errorf("%d %s; the server spoke for %v", w.Code, w.Body, api.spoke)
			}
			if got := len(access.people) + len(s.sessions.all); test.user == "" && got > 0 {
				t.Error("a stranger takes memory")
			}
			if w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}

func TestSignIn(t *testing.T) {
	s, _, _, _, _ := inCluster(t)
	post := func(body string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/api/sign-in", strings.NewReader(body))
		change(r)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	own := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }
	w := post(`{"token":" ada\n"}`, own)
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	c := w.Result().Cookies()[0]
	if c.Name != "__Host-elastic-token" || c.Value != "ada" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || !c.Expires.IsZero() {
		t.Errorf("the cookie is %v", c)
	}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"another site's page": post(`{"token":"ada"}`, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }),
		"another site's form": post(`{"token":"ada"}`, func(*http.Request) {}),
		"a sibling's page":    post(`{"token":"ada"}`, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }),
		"no such token":       post(`{"token":"eve"}`, own),
		"no token":            post(`{}`, own),
		"no cookie's value":   post(`{"token":"a;b"}`, own),
		"an endless one":      post(`{"token":"`+strings.Repeat("a", mostToken+1)+`"}`, own),
	} {
		if w.Code == http.StatusOK || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s: %d %v", name, w.Code, w.Result().Cookies())
		}
	}
	out := request(s, "POST", "/api/sign-out", own)
	if c := out.Result().Cookies(); out.Code != http.StatusOK || len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
		t.Errorf("signed out: %d %v", out.Code, c)
	}
}

// Who has another token, or other groups, has another session, even with the same namespaces.
func TestEachHasASessionOfTheirOwn(t *testing.T) {
	s, access, _, proxy, _ := inCluster(t)
	enter := func(change func(*http.Request)) *Session {
		r := httptest.NewRequest("GET", "/", nil)
		change(r)
		p, err := access.who(r)
		must(t, err)
		session, err := s.sessions.enter(p, []string{"team"})
		must(t, err)
		return session
	}
	by := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	named := func(user, groups string) func(*http.Request) {
		return func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate(t, proxy.ClientCertificate)}}
			r.Header.Set("X-Remote-User", user)
			r.Header.Set("X-Remote-Group", groups)
		}
	}
	all := []*Session{enter(by("ada")), enter(by("bob")), enter(named("eva", "")), enter(named("eva", "nlp")), enter(named("eva,nlp", "")), enter(named("ada", ""))}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a == b || a.state == b.state {
				t.Errorf("session %d is shared", i)
			}
		}
	}
	if enter(by("ada")) != all[0] || enter(named("eva", "nlp,nlp")) != all[3] {
		t.Error("two tabs of one person have two sessions")
	}
	if all[1].Namespace != "team-b" {
		t.Errorf("a service account begins in %q", all[1].Namespace)
	}
}

func TestOnePersonDoesNotTakeAllSessions(t *testing.T) {
	s, access, _, _, _ := inCluster(t)
	who := func(token string) person {
		p, err := access.recognizeToken(t.Context(), token)
		must(t, err)
		return p
	}
	for i := range 3 * mostOfOne {
		_, err := s.sessions.enter(who("ada"), []string{strings.Repeat("n", i+1)})
		if (err == nil) != (i < mostOfOne) {
			t.Errorf("session %d: %v", i, err)
		}
	}
	if _, err := s.sessions.enter(who("bob"), nil); err != nil {
		t.Errorf("another person is kept out: %v", err)
	}
}

func TestRevokedTokenEndsTheStream(t *testing.T) {
	s, access, api, _, _ := inCluster(t)
	now := time.Now()
	access.now = func() time.Time { return now }
	r := httptest.NewRequest("GET", "/api/stream", nil)
	r.Header.Set("Authorization", "Bearer ada")
	if s.refuses(r) {
		t.Fatal("she is not let in")
	}
	asked := api.asked
	if s.refuses(r); api.asked != asked {
		t.Error("each request asks the API server who it is")
	}
	// While the API server does not answer, those known stay, for a while.
	api.away = true
	now = now.Add(verifyEvery)
	if s.refuses(r) {
		t.Error("an API server that is away ends the stream")
	}
	now = now.Add(lastVerified)
	if w := request(s, "GET", "/api/me", func(to *http.Request) { to.Header = r.Header }); w.Code < 500 {
		t.Errorf("after %s without an answer: %d", lastVerified, w.Code)
	}
	api.away = false
	if s.refuses(r) {
		t.Error("she is not let in again")
	}
	api.mu.Lock()
	delete(api.tokens, "ada")
	api.mu.Unlock()
	now = now.Add(verifyEvery)
	if !s.refuses(r) || len(access.people) != 0 {
		t.Error("a revoked token is still good")
	}
}

// A watch goes on when the right to it has ended: what it showed is forgotten, and shown again when the right is back.
func TestWhatMayNotBeReadAnyMoreIsForgotten(t *testing.T) {
	_, access, api, _, _ := inCluster(t)
	p, err := access.recognizeToken(t.Context(), "ada")
	must(t, err)
	denied := false
	api.handled = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case denied:
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"ada may not","code":403}`))
		case r.URL.Query().Get("watch") != "":
			if r.URL.Query().Get("sendInitialEvents") != "" {
				w.WriteHeader(http.StatusBadRequest) // an older API server; it lists, then watches
				return
			}
			_ = http.NewResponseController(w).Flush()
			api.mu.Unlock()
			<-r.Context().Done()
			api.mu.Lock()
		default:
			wl := workload("secret", "main")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{wl}})
		}
	}
	s := NewState()
	s.allowedEvery = 5 * time.Millisecond
	go sinkOf(t, s, "workloads").follow(t.Context(), p.client, s, nil, func() {})
	eventually := func(what string, check func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			s.mu.Lock()
			ok := check()
			s.mu.Unlock()
			if ok {
				return
			}
		}
		t.Fatalf("waited in vain: %s", what)
	}
	set := func(to bool) {
		api.mu.Lock()
		defer api.mu.Unlock()
		denied = to
	}
	eventually("the workload is seen", func() bool { return len(s.jobs) == 1 })
	set(true)
	eventually("it is forgotten", func() bool { return len(s.jobs) == 0 && s.problems["workloads"].Denied })
	set(false)
	eventually("it is seen again", func() bool { return len(s.jobs) == 1 && len(s.problems) == 0 })
}
