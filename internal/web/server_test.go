package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// mostBundle is how much all files of the page may have together, gzipped.
const mostBundle = 150 << 10

func TestBundleIsSmall(t *testing.T) {
	total := 0
	for name, file := range newAssets() {
		if file.kind == "" {
			t.Errorf("%s has no content type", name)
		}
		total += len(file.gzip)
	}
	t.Logf("figure web-bundle %d bytes gzipped", total)
	if total > mostBundle {
		t.Errorf("the page has %d bytes, gzipped; at most %d", total, mostBundle)
	}
	page := string(newAssets()["/index.html"].plain)
	for _, bad := range []string{"http:", "https:", "<style", "onload="} {
		if strings.Contains(page, bad) {
			t.Errorf("index.html has %s", bad)
		}
	}
}

func serve(t *testing.T) (*Server, string) {
	t.Helper()
	c, err := cluster.Connect(&rest.Config{Host: "http://127.0.0.1:1"}, "default")
	if err != nil {
		t.Fatal(err)
	}
	key := NewKey()
	return New(t.Context(), Options{Access: NewKubeconfig(c, key, "7457")}), key
}

func request(s *Server, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	r.Host = "127.0.0.1:7457"
	change(r)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestStrangersGetNothing(t *testing.T) {
	s, key := serve(t)
	cookie := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "elastic-web-7457", Value: key}) }
	for name, test := range map[string]struct {
		method, path string
		change       func(*http.Request)
		want         int
	}{
		"no cookie":       {"GET", "/api/history", func(*http.Request) {}, http.StatusUnauthorized},
		"another's":       {"GET", "/api/history", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "elastic-web-7457", Value: NewKey()}) }, http.StatusUnauthorized},
		"rebound DNS":     {"GET", "/api/history", func(r *http.Request) { cookie(r); r.Host = "evil.example:7457" }, http.StatusUnauthorized},
		"a foreign page":  {"POST", "/api/act", func(r *http.Request) { cookie(r); r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		"a foreign form":  {"POST", "/api/act", func(r *http.Request) { cookie(r) }, http.StatusForbidden},
		"a foreign fetch": {"GET", "/api/history", func(r *http.Request) { cookie(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"a guessed key":   {"GET", "/open?key=x", func(*http.Request) {}, http.StatusForbidden},
		"the key":         {"GET", "/open?key=" + key, func(*http.Request) {}, http.StatusOK},
		"the page itself": {"GET", "/api/history", cookie, http.StatusOK},
		"its own request": {"POST", "/api/act", func(r *http.Request) { cookie(r); r.Header.Set("Origin", "http://127.0.0.1:7457") }, http.StatusBadRequest},
		"no such path":    {"GET", "/api/secrets", cookie, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := request(s, test.method, test.path, test.change)
			if w.Code != test.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, test.want)
			}
			if w.Header().Get("Content-Security-Policy") != policy {
				t.Error("no policy")
			}
			if test.want == http.StatusUnauthorized && strings.Contains(w.Body.String(), "times") {
				t.Error("a stranger reads history")
			}
		})
	}
}

func TestEveryViewIsALink(t *testing.T) {
	s, _ := serve(t)
	for _, path := range []string{"/", "/queues", "/queues/team-a", "/jobs/team/x", "/nodes/n/c"} {
		if w := request(s, "GET", path, func(*http.Request) {}); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `id="page"`) {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := request(s, "GET", "/assets/none.js", func(*http.Request) {}); w.Code != http.StatusNotFound {
		t.Errorf("a file that is not there: %d", w.Code)
	}
	w := request(s, "GET", "/assets/page.js", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	again := request(s, "GET", "/assets/page.js", func(r *http.Request) { r.Header.Set("If-None-Match", w.Header().Get("ETag")) })
	if w.Header().Get("Content-Encoding") != "gzip" || again.Code != http.StatusNotModified {
		t.Errorf("%v, then %d", w.Header(), again.Code)
	}
}
