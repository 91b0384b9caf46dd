package web

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// aliveEvery is how often a silent stream says that it is there: what is between may end silent ones.
const aliveEvery = 10 * time.Second

// stream sends all records, then changes, as server-sent events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p person) {
	release, err := s.held.hold(p.key)
	if err != nil {
		fail(w, http.StatusTooManyRequests, err)
		return
	}
	defer release()
	session, err := s.sessions.enter(p, namespacesOf(r))
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	defer s.sessions.leave(session)
	out := newEvents(w, r, s.sendWithin)
	defer out.close()
	if out.say("begin") != nil || !session.wait(r, out) {
		return
	}
	tab, all := session.state.subscribe()
	defer session.state.unsubscribe(tab)
	for _, message := range all {
		if out.send(message) != nil {
			return
		}
	}
	if out.say("ready") != nil {
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
			_ = out.say("again")
			return
		case message, open := <-tab.changes:
			if !open || out.send(message) != nil {
				return
			}
		case <-alive.C:
			if s.refuses(r) || out.say("alive") != nil {
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
			if out.say("alive") != nil {
				return false
			}
		}
	}
}

// message is a server-sent event. It is compressed once, for all tabs that get it.
type message struct {
	event    string
	data     []byte
	once     sync.Once
	deflated []byte
}

func (m *message) parts() [][]byte {
	return [][]byte{[]byte("event: " + m.event + "\ndata: "), m.data, []byte("\n\n")}
}

// writers compress one message after another; each takes more memory than a tab needs otherwise.
var writers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is a valid one
	return w
}}

// deflate returns the message as whole blocks that refer to nothing before them: any messages after each other are a stream.
func (m *message) deflate() []byte {
	m.once.Do(func() {
		var b bytes.Buffer
		w := writers.Get().(*flate.Writer)
		defer writers.Put(w)
		w.Reset(&b)
		for _, part := range m.parts() {
			_, _ = w.Write(part) // a buffer takes all
		}
		_ = w.Flush()
		m.deflated = b.Bytes()
	})
	return m.deflated
}

// events writes server-sent events, compressed where the browser takes that.
type events struct {
	to      io.Writer
	zip     bool
	sum     uint32 // of what was compressed, and its length
	length  uint32
	within  time.Duration
	control *http.ResponseController
}

// sendWithin is how long a tab may take for one message before it is cut off.
const sendWithin = 30 * time.Second

func newEvents(w http.ResponseWriter, r *http.Request, within time.Duration) *events {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx must not collect it
	e := &events{to: w, within: within, control: http.NewResponseController(w)}
	if e.zip = strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"); e.zip {
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(http.StatusOK)
	if e.zip {
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff}) // gzip: deflate, no name and time, fast, any system
	}
	return e
}

func (e *events) say(event string) error { return e.send(&message{event: event, data: []byte("{}")}) }

func (e *events) send(m *message) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.within))
	parts := m.parts()
	if e.zip {
		for _, part := range parts {
			e.sum = crc32.Update(e.sum, crc32.IEEETable, part)
			e.length += uint32(len(part))
		}
		parts = [][]byte{m.deflate()}
	}
	for _, part := range parts {
		if _, err := e.to.Write(part); err != nil {
			return err
		}
	}
	return e.control.Flush()
}

// close ends what is compressed with an empty last block, the sum and the length.
func (e *events) close() {
	if e.zip {
		_, _ = e.to.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte{3, 0}, e.sum), e.length))
	}
}
