package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// timelineFile is what happened to each job in each variant, a line each.
type timelineFile struct {
	file  *os.File
	out   *csv.Writer
	trace *world.Trace
}

func newTimeline(path string, trace *world.Trace) (*timelineFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	t := &timelineFile{file: f, out: csv.NewWriter(f), trace: trace}
	return t, t.out.Write([]string{"at_s", "job_id", "queue", "what", "preempted_by", "nodes", "why", "variant"})
}

// of is what writes the moments of a variant; nil where no timeline is asked for.
func (t *timelineFile) of(variant string) func(world.Moment) {
	if t == nil {
		return nil
	}
	return func(m world.Moment) { t.note(variant, m) }
}

func (t *timelineFile) note(variant string, m world.Moment) {
	j := &t.trace.Jobs[m.Job]
	by := ""
	if m.By >= 0 {
		by = t.trace.Jobs[m.By].ID
	}
	var nodes []string
	for _, n := range m.Nodes {
		nodes = append(nodes, fmt.Sprintf("%s:%d", n.Node, len(n.Cards)))
	}
	_ = t.out.Write([]string{strconv.FormatInt(m.At, 10), j.ID, j.Queue, m.What.String(), by, strings.Join(nodes, " "), m.Why, variant}) // its error stays until close
}

func (t *timelineFile) close() error {
	if t == nil {
		return nil
	}
	t.out.Flush()
	return errors.Join(t.out.Error(), t.file.Close())
}

// progress says on a terminal how far a run is and how long it will take.
type progress struct {
	out   io.Writer
	name  string
	start time.Time
	shown time.Time
	live  bool
	now   func() time.Time
}

// newProgress shows nothing in the first second: most runs are over by then.
func newProgress(out io.Writer, name string) *progress {
	now := time.Now()
	p := &progress{out: out, name: name, start: now, shown: now.Add(time.Second), now: time.Now}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.live = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) show(ended, jobs int, at int64) {
	now := p.now()
	if !p.live || now.Sub(p.shown) < time.Second/4 {
		return
	}
	p.shown = now
	left := "?"
	if ended > 0 {
		left = (now.Sub(p.start) * time.Duration(jobs-ended) / time.Duration(ended)).Round(time.Second).String()
	}
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s: day %.1f, %d of %d jobs, about %s left", p.name, float64(at)/86400, ended, jobs, left)
}

func (p *progress) end() {
	if p.live {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
