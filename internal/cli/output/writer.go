// Package output prints for people and programs: tables that fit the terminal, colour
// where there is one, the same things as JSON and YAML, and progress of what takes long.
//
// Words: docs/design/glossary.md.
package output

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Writer is where a command writes.
type Writer struct {
	io.Writer
	// Width of the terminal; 0 where there is none, and nothing is cut.
	Width int
	// Live: lines may be written over, and painted.
	Live   bool
	colour bool
}

// To finds out whether a writer is a terminal.
func To(w io.Writer) Writer {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Writer{Writer: w}
	}
	s := Writer{Writer: w, Live: os.Getenv("TERM") != "dumb"}
	s.colour = s.Live && os.Getenv("NO_COLOR") == ""
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		s.Width = width
	}
	return s
}

// Colour of a word.
type Colour string

// The colours, by what they mean.
const (
	Plain Colour = ""
	Good  Colour = "32"
	Busy  Colour = "36"
	Wait  Colour = "33"
	Bad   Colour = "31"
	Faint Colour = "2"
)

// Paint colours a text on a terminal, and nowhere else.
func (s Writer) Paint(c Colour, text string) string {
	if !s.colour || c == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// ByStatus is the colour of a status word.
func ByStatus(word string) Colour {
	switch word {
	case "SUCCEEDED", "Completed", "Active", "Ready", "True", "ok":
		return Good
	case "RUNNING", "Running":
		return Busy
	case "QUEUING", "PENDING", "SUSPENDED", "Pending", "Stopped", "warning":
		return Wait
	case "FAILED", "Failed", "Error", "Unhealthy", "Inactive", "problem":
		return Bad
	}
	return Plain
}
