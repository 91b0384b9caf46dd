package web

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// aliveEvery is how often a silent stream says that it is there: what is between may end silent ones.
const aliveEvery = 10 * time.Second

// stream sends all records, then changes, as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p person) {
	session, err := s.sessions.enter(p, namespacesOf(r))
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	defer s.sessions.leave(session)
	out := newEvents(w, r)
	defer out.close()
	if out.send("begin", nil) != nil || !session.wait(r, out) {
		return
	}
	tab, all := session.state.subscribe()
	defer session.state.unsubscribe(tab)
	for _, message := range all {
		if out.send("records", message) != nil {
			return
		}
	}
	if out.send("ready", nil) != nil {
		return
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	var over <-chan time.Time
	if p.lasts > 0 {
		over = time.After(p.lasts)
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.sessions.ctx.Done():
			return
		case <-over:
			_ = out.send("again", nil)
			return
		case message, open := <-tab.changes:
			if !open || out.send("records", message) != nil {
				return
			}
		case <-alive.C:
			if s.refuses(r) || out.send("alive", nil) != nil {
				return
			}
		}
	}
}

// refuses says that someone who was let in would not be any more: their token has ended.
func (s *Server) refuses(r *http.Request) bool {
	_, err := s.options.Access.who(r)
	var stranger *stranger
	return errors.As(err, &stranger)
}

// wait until the session has read the cluster; false where the tab is gone before.
func (s *Session) wait(r *http.Request, out *events) bool {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-s.ready:
			return true
		case <-r.Context().Done():
			return false
		case <-alive.C:
			if out.send("alive", nil) != nil {
				return false
			}
		}
	}
}

// events writes server-sent events, compressed where the browser takes that.
type events struct {
	to      io.Writer
	zip     *gzip.Writer
	control *http.ResponseController
}

// sendWithin is how long a tab may take for one message before it is cut off.
const sendWithin = 30 * time.Second

func newEvents(w http.ResponseWriter, r *http.Request) *events {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx must not collect it
	e := &events{to: w, control: http.NewResponseController(w)}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		e.zip, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a valid one
		e.to = e.zip
	}
	w.WriteHeader(http.StatusOK)
	return e
}

func (e *events) send(event string, data []byte) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(sendWithin))
	if data == nil {
		data = []byte("{}")
	}
	for _, part := range [][]byte{[]byte("event: " + event + "\ndata: "), data, []byte("\n\n")} {
		if _, err := e.to.Write(part); err != nil {
			return err
		}
	}
	if e.zip != nil {
		if err := e.zip.Flush(); err != nil {
			return err
		}
	}
	return e.control.Flush()
}

func (e *events) close() {
	if e.zip != nil {
		_ = e.zip.Close()
	}
}
