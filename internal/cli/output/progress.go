package output

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// quiet is how long a command may be silent on a terminal.
const quiet = 2 * time.Second

// Progress shows that something goes on, once it takes longer than two seconds,
// and leaves nothing behind.
type Progress struct {
	out  Writer
	what string

	mu          sync.Mutex
	done, total int
	drawn       bool
	stop        chan struct{}
	ended       sync.WaitGroup
}

// Start begins to count the time. Total 0 is for work of unknown length.
func (s Writer) Start(what string, total int) *Progress {
	p := &Progress{out: s, what: what, total: total, stop: make(chan struct{})}
	if s.Live {
		p.ended.Go(p.run)
	}
	return p
}

// Step counts one more part as done.
func (p *Progress) Step() {
	p.mu.Lock()
	p.done++
	p.mu.Unlock()
}

// End takes the bar away.
func (p *Progress) End() {
	close(p.stop)
	p.ended.Wait()
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *Progress) run() {
	wait := time.NewTimer(quiet)
	defer wait.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-p.stop:
			return
		case <-wait.C:
		}
		p.mu.Lock()
		fmt.Fprint(p.out, "\r\x1b[K"+bar(p.what, p.done, p.total, turn, p.out.Width))
		p.mu.Unlock()
		p.drawn = true
		wait.Reset(200 * time.Millisecond)
	}
}

// bar is one frame of it.
func bar(what string, done, total, turn, width int) string {
	const size = 24
	var line string
	if total > 0 {
		full := min(size, size*done/total)
		line = fmt.Sprintf("[%s%s] %d/%d %s", strings.Repeat("=", full), strings.Repeat(" ", size-full), done, total, what)
	} else {
		at := turn % (2*size - 2)
		if at >= size {
			at = 2*size - 2 - at
		}
		line = fmt.Sprintf("[%s=%s] %s", strings.Repeat(" ", at), strings.Repeat(" ", size-1-at), what)
	}
	if width > 1 {
		line = shorten(line, width-1)
	}
	return line
}

// Line is one line that is written over on a terminal, and elsewhere a new line
// whenever it changes.
type Line struct {
	out  Writer
	last string
}

// Line begins one.
func (s Writer) Line() *Line { return &Line{out: s} }

// Show what there is to say now.
func (l *Line) Show(text string) {
	if text == l.last {
		return
	}
	l.last = text
	if !l.out.Live {
		fmt.Fprintln(l.out, text)
		return
	}
	if l.out.Width > 1 {
		text = shorten(text, l.out.Width-1)
	}
	fmt.Fprint(l.out, "\r\x1b[K"+text)
}

// End leaves the line as it is.
func (l *Line) End() {
	if l.out.Live && l.last != "" {
		fmt.Fprintln(l.out)
	}
}
