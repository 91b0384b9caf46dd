package output

import (
	"strings"
	"testing"
	"time"
)

func sample() *Table {
	t := &Table{Columns: []Column{{Name: "NAME", Cut: true}, {Name: "STATUS", Paint: ByStatus}, {Name: "WHY", Cut: true}, {Name: "NODE", Wide: true}}}
	t.Add("train", "RUNNING", "it has all the cards it asked for", "n1")
	t.Add("a-job-with-a-rather-long-name", "FAILED", "-", "n2")
	return t
}

func printed(s Writer, t *Table, wide bool) string {
	var b strings.Builder
	s.Writer = &b
	t.Print(s, wide)
	return b.String()
}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		name string
		out  Writer
		wide bool
		want string
	}{
		{"no terminal: nothing is cut or painted", Writer{}, false, `
NAME                           STATUS   WHY
train                          RUNNING  it has all the cards it asked for
a-job-with-a-rather-long-name  FAILED   -
`},
		{"wide", Writer{}, true, `
NAME                           STATUS   WHY                                NODE
train                          RUNNING  it has all the cards it asked for  n1
a-job-with-a-rather-long-name  FAILED   -                                  n2
`},
		{"narrow: the widest give way", Writer{Width: 40}, false, `
NAME            STATUS   WHY
train           RUNNING  it has all the…
a-job-with-a-…  FAILED   -
`},
		{"colour", Writer{colour: true, Width: 40}, false, "\n" +
			"NAME            STATUS   WHY\n" +
			"train           \x1b[36mRUNNING\x1b[0m  it has all the…\n" +
			"a-job-with-a-…  \x1b[31mFAILED\x1b[0m   -\n"},
	} {
		if got := "\n" + printed(c.out, sample(), c.wide); got != c.want {
			t.Errorf("%s: got%s\nwant%s", c.name, got, c.want)
		}
		for _, line := range strings.Split(printed(Writer{Width: 40}, sample(), false), "\n") {
			if n := len([]rune(line)); n > 40 {
				t.Errorf("a line of %d on a terminal of 40: %s", n, line)
			}
		}
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{bar("jobs", 0, 4, 0, 0), "[                        ] 0/4 jobs"},
		{bar("jobs", 3, 4, 0, 0), "[==================      ] 3/4 jobs"},
		{bar("jobs", 4, 4, 0, 0), "[========================] 4/4 jobs"},
		{bar("jobs", 0, 0, 2, 0), "[  =                     ] jobs"},
		{bar("jobs", 0, 0, 24, 0), "[                      = ] jobs"},
		{bar("a long tale", 1, 2, 0, 20), "[============     …"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Second, "57s": 57*time.Second + 900*time.Millisecond, "3m": 3*time.Minute + 59*time.Second, "2h": 2*time.Hour + time.Minute, "1d": 47 * time.Hour,
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

// Without a terminal a line is printed once for each change.
func TestLine(t *testing.T) {
	var b strings.Builder
	line := Writer{Writer: &b}.Line()
	for _, text := range []string{"waits", "waits", "runs"} {
		line.Show(text)
	}
	line.End()
	if b.String() != "waits\nruns\n" {
		t.Errorf("got %q", b.String())
	}
}
