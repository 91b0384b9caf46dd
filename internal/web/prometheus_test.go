package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An answer has lines of all queues; a person gets those of the queues they see.
func TestPrometheus(t *testing.T) {
	bad := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		must(t, r.ParseForm())
		if r.URL.Path != "/prom/api/v1/query_range" || r.Method != http.MethodPost {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		if bad {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"status":"error","error":"too many samples"}`))
			return
		}
		start, _ := strconv.ParseFloat(r.Form.Get("start"), 64)
		step, _ := strconv.ParseFloat(r.Form.Get("step"), 64)
		value := "3"
		if strings.Contains(r.Form.Get("query"), "increase(") {
			value = "0.5"
		}
		lines := []any{}
		for _, queue := range []string{"mine", "theirs"} {
			lines = append(lines, map[string]any{"metric": map[string]string{"cluster_queue": queue}, "values": [][2]any{{start, value}, {start + step, "NaN"}, {start + 2*step, value}, {start + 1e9, value}}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": lines}})
	}))
	defer server.Close()
	base, err := url.Parse(server.URL + "/prom")
	must(t, err)
	p := &Prometheus{URL: base, Client: server.Client()}
	got, err := p.past(t.Context(), []string{"mine"}, 24, time.Now())
	must(t, err)
	q := got.Queues["mine"]
	if len(got.Queues) != 1 || len(got.Times) != points || len(q.Used) != points {
		t.Fatalf("%d queues, %d points", len(got.Queues), len(got.Times))
	}
	if q.Used[0] != 3 || q.Used[1] != 0 || q.Used[2] != 3 || q.Evicted[2] != 0.5 || q.Waiting[0] != 3 {
		t.Errorf("%v %v", q.Used[:4], q.Evicted[:4])
	}
	if span := got.Times[points-1] - got.Times[0]; span != int64((24*time.Hour-24*time.Hour/points)/time.Second) {
		t.Errorf("it is of %d s", span)
	}
	bad = true
	if _, err := p.past(t.Context(), []string{"mine"}, 24, time.Now()); err == nil || !strings.Contains(err.Error(), "too many samples") {
		t.Errorf("got %v", err)
	}
}

// What the server itself collects is shown of the queues that a person sees.
func TestHistoryOfTheServerItself(t *testing.T) {
	s, access, _, _, _ := inCluster(t)
	s.recorder = NewState()
	s.recorder.queues = map[string]queueRecord{"mine": {}, "theirs": {}}
	s.recorder.sample(time.Now())
	p, err := access.recognizeToken(t.Context(), "ada")
	must(t, err)
	session, err := s.sessions.enter(p, nil)
	must(t, err)
	session.state.mu.Lock()
	session.state.queues["mine"] = queueRecord{}
	session.state.mu.Unlock()
	w := request(s, "GET", "/api/history", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ada") })
	if body := w.Body.String(); !strings.Contains(body, `"mine"`) || strings.Contains(body, "theirs") {
		t.Errorf("she gets %s", body)
	}
	if w := request(s, "GET", "/api/history?queue=theirs", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ada") }); strings.Contains(w.Body.String(), "theirs") {
		t.Errorf("she gets %s", w.Body)
	}
}

// Evictions are counted as they happen, for the queue that the workload was in, and stay in the history when it is gone.
func TestHistoryOfEvictions(t *testing.T) {
	s := NewState()
	s.queues = map[string]queueRecord{"q": {}}
	job := jobRecord{Namespace: "team", Name: "a", Local: "main", Queue: "q", Evicted: 5} // before anybody looked
	s.setJob(job)
	s.sample(time.Unix(0, 0))
	job.Queue, job.Evicted = "", 7 // it waits again
	s.setJob(job)
	s.setJob(job)
	s.sample(time.Unix(30, 0))
	s.dropJob("team/a")
	s.sample(time.Unix(60, 0))
	if got := s.history.queues["q"].Evicted; len(got) != 3 || got[0] != 0 || got[1] != 2 || got[2] != 0 {
		t.Errorf("got %v, want 0, 2, 0", got)
	}
}
