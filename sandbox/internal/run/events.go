package run

import (
	"encoding/json"
	"io"
	"sync"
)

// Event is one line on stdout, for the program that started the sandbox.
type Event struct {
	Event      string            `json:"event"` // progress, ready, stopped, error
	Message    string            `json:"message,omitempty"`
	Kubeconfig string            `json:"kubeconfig,omitempty"`
	Server     string            `json:"server,omitempty"`
	Components map[string]string `json:"components,omitempty"`
	Seconds    float64           `json:"seconds,omitempty"`
}

// Events writes events, one JSON object a line.
type Events struct {
	mu  sync.Mutex
	out io.Writer
}

// NewEvents writes to out.
func NewEvents(out io.Writer) *Events { return &Events{out: out} }

// Send writes one event. A parent that no longer reads is no reason to fail.
func (e *Events) Send(event Event) {
	line, err := json.Marshal(event)
	if err != nil {
		return // strings and numbers always marshal
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = e.out.Write(append(line, '\n'))
}

// Progress reports what has just come up.
func (e *Events) Progress(message string) { e.Send(Event{Event: "progress", Message: message}) }
