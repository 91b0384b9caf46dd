package simulate

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Progress says how far a run is and how long it will take, on a terminal alone, and leaves nothing behind there.
func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, "as it is")
	at := p.start
	p.now = func() time.Time { return at }
	show := func(after time.Duration, ended int) string {
		b.Reset()
		at = p.start.Add(after)
		p.show(ended, 1000, 129_600)
		return b.String()
	}
	if got := show(time.Minute, 250); got != "" {
		t.Errorf("into a file: %q", got)
	}
	p.live = true
	for _, c := range []struct {
		after time.Duration
		ended int
		want  string
	}{
		{500 * time.Millisecond, 10, ""}, // most runs are over by then
		{2 * time.Second, 0, "as it is: day 1.5, 0 of 1000 jobs, about ? left"},
		{2100 * time.Millisecond, 5, ""}, // a moment later
		{10 * time.Second, 250, "as it is: day 1.5, 250 of 1000 jobs, about 30s left"},
		{30 * time.Second, 750, "as it is: day 1.5, 750 of 1000 jobs, about 10s left"},
	} {
		if got := show(c.after, c.ended); !strings.HasSuffix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
	b.Reset()
	p.end()
	if b.String() != "\r\x1b[K" {
		t.Errorf("it leaves %q", b.String())
	}
}
