package web

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Tabs that came at different times get the same compressed messages, each as a stream of its own.
func TestMessagesAreCompressedOnce(t *testing.T) {
	var all []*message
	for i := range 5 {
		all = append(all, &message{event: "records", data: bytes.Repeat(fmt.Appendf(nil, `{"name":"node-%d"}`, i), 5000)})
	}
	for _, accept := range []string{"gzip", ""} {
		for from := range all {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/api/stream", nil)
			r.Header.Set("Accept-Encoding", accept)
			out := newEvents(w, r, time.Minute)
			want := ""
			for _, m := range all[from:] {
				must(t, out.send(m))
				want += "event: records\ndata: " + string(m.data) + "\n\n"
			}
			must(t, out.say("ready"))
			out.close()
			var body io.Reader = w.Body
			if accept != "" {
				if size := w.Body.Len(); size > len(want)/20 {
					t.Errorf("%d bytes of %d are not compressed", size, len(want))
				}
				zipped, err := gzip.NewReader(w.Body)
				must(t, err)
				zipped.Multistream(false)
				body = zipped
			}
			got, err := io.ReadAll(body) // which checks the sum and the length
			must(t, err)
			if string(got) != want+"event: ready\ndata: {}\n\n" {
				t.Errorf("a tab from message %d on got %d bytes, want %d", from, len(got), len(want))
			}
		}
	}
	for i, m := range all {
		if first := &m.deflate()[0]; first != &m.deflated[0] {
			t.Errorf("message %d was compressed twice", i)
		}
	}
}

// One person has so many tabs and logs at a time, whatever others have.
func TestOnePersonDoesNotHoldEverything(t *testing.T) {
	s, _, _, _, _ := inCluster(t)
	var release []func()
	for range mostHeld {
		r, err := s.held.hold("token " + digest("ada"))
		must(t, err)
		release = append(release, r)
	}
	ask := func(who, path string) int {
		return request(s, "GET", path, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+who) }).Code
	}
	for _, path := range []string{"/api/stream", "/api/logs/team/pod"} {
		if code := ask("ada", path); code != http.StatusTooManyRequests {
			t.Errorf("%s beyond the limit: %d", path, code)
		}
	}
	if code := ask("bob", "/api/logs/team/pod"); code != http.StatusNotFound { // as the API server answers
		t.Errorf("another person: %d", code)
	}
	for _, r := range release {
		r()
	}
	if code := ask("ada", "/api/logs/team/pod"); code != http.StatusNotFound || len(s.held.has) != 0 {
		t.Errorf("after the tabs are closed: %d, %v", code, s.held.has)
	}
}

// pipes is a listener of connections that nothing buffers.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Who asks for what comes and reads nothing of it is cut off.
func TestSlowReadersAreCutOff(t *testing.T) {
	s, _, api, _, _ := inCluster(t)
	s.sendWithin = 10 * time.Millisecond
	endless := []byte(strings.Repeat("a line of a log\n", 1000))
	api.handled = func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		api.mu.Unlock()
		defer api.mu.Lock()
		for r.Context().Err() == nil {
			if _, err := w.Write(endless); err != nil {
				return
			}
		}
	}
	listener := make(pipes)
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { close(listener); _ = server.Close() })
	for _, path := range []string{"/api/stream", "/api/logs/team/pod?follow=1"} {
		client, far := net.Pipe()
		listener <- far
		_, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: elastic\r\nAuthorization: Bearer ada\r\n\r\n", path)
		must(t, err)
		if _, err := io.ReadFull(client, make([]byte, 1)); err != nil { // it began
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			s.held.mu.Lock()
			n := len(s.held.has)
			s.held.mu.Unlock()
			if n == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s goes on", path)
			}
		}
		_ = client.Close()
	}
}

// What is read at first is shown as a whole or not yet, whatever happens on the way.
func TestFirstReadThatBreaks(t *testing.T) {
	added := func(name string) string {
		return fmt.Sprintf("{\"type\":\"ADDED\",\"object\":%s}\n", encode(workload(name, "main")))
	}
	const last = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	for name, first := range map[string]string{
		"it ends in the middle":                   added("a"),
		"it ends in the middle of a line":         added("a") + added("b")[:40],
		"it has expired":                          added("a") + `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}` + "\n" + last,
		"a line is no JSON":                       added("a") + "nonsense\n" + last,
		"a workload has something else as a list": added("a") + `{"type":"ADDED","object":{"metadata":{"name":"b"},"spec":{"podSets":7}}}` + "\n" + last,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, access, api, _, _ := inCluster(t)
			p, err := access.recognizeToken(t.Context(), "ada")
			must(t, err)
			answer := first
			api.handled = func(w http.ResponseWriter, r *http.Request) {
				switch query := r.URL.Query(); {
				case query.Get("watch") == "": // once a line could not be read, it lists
					list := map[string]any{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": map[string]any{"resourceVersion": "9"}}
					list["items"] = []any{workload("a", "main"), workload("b", "main")}
					_, _ = w.Write(encode(list))
					return
				case query.Get("sendInitialEvents") == "":
					answer = ""
				}
				_, _ = io.WriteString(w, answer)
				_ = http.NewResponseController(w).Flush()
				if answer == first {
					answer = added("a") + added("b") + last
					return
				}
				api.mu.Unlock()
				<-r.Context().Done()
				api.mu.Lock()
			}
			s, settled := NewState(), make(chan int, 10)
			go sinkOf(t, s, "workloads").follow(t.Context(), p.client, s, nil, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				settled <- len(s.jobs)
			})
			select {
			case n := <-settled:
				if n != 2 {
					t.Errorf("%d workloads count as all, there are 2", n)
				}
			case <-time.After(30 * time.Second):
				t.Error("it is never read")
			}
		})
	}
}
