package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/version"
)

// Options of a server.
type Options struct {
	Access Access
	// Pinned has sessions last as long as the server.
	Pinned bool
	// Recorder has rights to read queues, flavors and workloads, with which the server itself collects the history of all queues; nil:
	// each session collects its own. Who sees a queue sees its history.
	Recorder *cluster.Client
	// Prometheus has a longer one; nil: there is none.
	Prometheus *Prometheus
	// Cluster is its name, for the page's corner.
	Cluster string
	// Prices of one card for an hour, by model; empty where nothing is known of money.
	Prices   map[string]float64
	Currency string
}

// Server of the page. It ends with the context of New.
type Server struct {
	options  Options
	sessions *sessions
	recorder *State // nil: there is none
	mux      *http.ServeMux
	held     held
	// sendWithin is how long someone may take for a part of what is sent.
	sendWithin time.Duration
}

// New makes a server.
func New(ctx context.Context, options Options) *Server {
	s := &Server{options: options, sessions: newSessions(ctx, options.Pinned, options.Prices), mux: http.NewServeMux(), sendWithin: sendWithin}
	if options.Recorder != nil {
		s.recorder = record(ctx, options.Recorder, options.Prices)
	}
	options.Access.open(s.mux)
	s.mux.HandleFunc("GET /api/me", s.as(s.me))
	s.mux.HandleFunc("GET /api/stream", s.as(s.stream))
	s.mux.HandleFunc("GET /api/history", s.as(s.past))
	s.mux.HandleFunc("GET /api/queues/{queue}/line", s.as(s.line))
	s.mux.HandleFunc("GET /api/jobs/{namespace}/{workload}", s.as(s.job))
	s.mux.HandleFunc("GET /api/logs/{namespace}/{pod}", s.as(s.logs))
	s.mux.HandleFunc("POST /api/act", s.as(s.act))
	s.mux.HandleFunc("POST /api/quota-plan", s.as(s.quotaPlan))
	s.mux.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no %s", r.URL.Path))
	})
	s.mux.Handle("GET /", newAssets())
	return s
}

// policy allows the page its own origin, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	s.mux.ServeHTTP(w, r)
}

// as finds out who asks before a request is answered.
func (s *Server) as(answer func(http.ResponseWriter, *http.Request, person)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !sameOrigin(r) {
			fail(w, http.StatusForbidden, errForeign)
			return
		}
		p, err := s.options.Access.who(r)
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, r, p)
	}
}

var errForeign = errors.New("the request comes from another site")

// sameOrigin refuses what another site's page sends: browsers say so themselves, and no script can make them say otherwise.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "":
	case "same-origin":
		return true // by whatever name; a proxy may have given another one to the server
	case "none": // typed, or a bookmark
		return r.Method == http.MethodGet
	default:
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return r.Method == http.MethodGet || r.Header.Get("X-Elastic") != ""
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// readBody decodes what is sent, of at most so many bytes, in the time that an answer may take.
func readBody(w http.ResponseWriter, r *http.Request, most int64, into any) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(askWithin)) // not every writer has one
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(time.Time{})
	return json.Unmarshal(data, into)
}

// fail answers with an error that the page shows.
func fail(w http.ResponseWriter, code int, err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= 400 {
		code = int(status.Status().Code)
	}
	reply(w, code, map[string]any{"error": err.Error(), "denied": apierrors.IsForbidden(err)})
}

func reply(w http.ResponseWriter, code int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		code, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

// me says who looks, at what.
func (s *Server) me(w http.ResponseWriter, r *http.Request, p person) {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	user, err := whoAmI(ctx, p.client)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	_, err = r.Cookie(signInCookie)
	reply(w, http.StatusOK, map[string]any{
		"signedIn": err == nil, "user": user, "cluster": s.options.Cluster, "namespace": p.client.Namespace, "version": version.String(),
		"prometheus": s.options.Prometheus != nil, "prices": s.options.Prices, "currency": s.options.Currency,
	})
}

// namespaces that the page asks for besides the person's own.
func namespacesOf(r *http.Request) []string {
	const most = 50
	var list []string
	for name := range strings.SplitSeq(r.URL.Query().Get("namespaces"), ",") {
		if name != "" && len(name) <= 63 && len(list) < most {
			list = append(list, name)
		}
	}
	return list
}

func (s *Server) past(w http.ResponseWriter, r *http.Request, p person) {
	session, err := s.sessions.enter(p, namespacesOf(r))
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	defer s.sessions.leave(session)
	if card := r.URL.Query().Get("card"); card != "" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(session.state.pastOfCard(card))
		return
	}
	names := session.state.seenQueues(r.URL.Query().Get("queue"))
	if hours := number(r.URL.Query().Get("hours"), 0); hours > 0 && s.options.Prometheus != nil {
		ctx, cancel := context.WithTimeout(r.Context(), askWithin)
		defer cancel()
		longer, err := s.options.Prometheus.past(ctx, names, min(hours, mostHours), time.Now())
		if err != nil {
			fail(w, http.StatusBadGateway, err)
			return
		}
		reply(w, http.StatusOK, longer)
		return
	}
	from := session.state
	if s.recorder != nil {
		from = s.recorder
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(from.past(names))
}

// record collects the history of all queues until the context ends.
func record(ctx context.Context, c *cluster.Client, prices map[string]float64) *State {
	s := NewState()
	s.prices.prices = prices
	ready := s.follow(ctx, c, nil, "clusterqueues", "resourceflavors", "workloads")
	sample := func(at time.Time) {
		s.sample(at)
		s.forgetChanges()
	}
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for at, next := time.Now(), ready; ; {
			select {
			case <-ctx.Done():
				return
			case <-next: // the first sample does not wait for a tick
				next = nil
				sample(at)
			case now := <-tick.C:
				sample(now)
			}
		}
	}()
	return s
}
