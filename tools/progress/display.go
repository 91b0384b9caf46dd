package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

const (
	quiet = 2 * time.Second  // what is done by then needs no words
	apart = 15 * time.Second // between lines, where they cannot be overwritten
)

// display shows one line that changes: in place on a terminal, now and then in a file.
type display struct {
	out      io.Writer
	terminal bool
	now      func() time.Time

	began, wrote time.Time
	last         string
	shown        bool // anything, so far
}

func newDisplay(out *os.File, now func() time.Time) *display {
	info, err := out.Stat()
	return &display{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, now: now, began: now()}
}

// status replaces the line.
func (d *display) status(line string) {
	now := d.now()
	if line == "" || line == d.last || now.Sub(d.began) < quiet || !d.terminal && now.Sub(d.wrote) < apart {
		return
	}
	d.last, d.wrote = line, now
	d.shown = true
	if d.terminal {
		fmt.Fprintf(d.out, "\r\033[K%s", line)
	} else {
		fmt.Fprintln(d.out, line)
	}
}

// print a line that stays.
func (d *display) print(line string) {
	if d.terminal && d.last != "" {
		fmt.Fprint(d.out, "\r\033[K")
	}
	d.last = ""
	fmt.Fprintln(d.out, line)
}

// end with a line that stays, if there was anything to say before.
func (d *display) end(line string) {
	if d.shown && line != "" {
		d.print(line)
	}
}
