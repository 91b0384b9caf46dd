package world

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, text string) *Trace {
	t.Helper()
	tr, err := ReadTrace(strings.NewReader(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const sacctHeader = "JobID|JobName|Partition|Submit|Start|End|ElapsedRaw|AllocTRES|State\n"

// What Slurm writes of jobs that are odd is read, or left out with the reason: it is never taken for something else.
func TestOddLinesOfSacct(t *testing.T) {
	for line, want := range map[string]string{
		"1|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|COMPLETED":       "{1 p 60 s 1 card}",
		"1|a|p|Unknown|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|COMPLETED":                   "nobody knows when it was submitted",
		"1|a|p||2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|COMPLETED":                          "nobody knows when it was submitted",
		"1|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:01:00|0|gres/gpu=1|CANCELLED by 7":   "was cancelled before it ran",
		"1|a|p|2026-01-01T00:00:00|None|2026-01-01T00:01:00|0||CANCELLED by 7":                            "was cancelled before it ran",
		"1|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|CANCELLED by 7":  "{1 p 60 s 1 card}",
		"1|a|p|2026-10-25T02:00:00|2026-10-25T02:50:00|2026-10-25T02:10:00|1200|gres/gpu=1|COMPLETED":     "{1 p 1200 s 1 card}", // the clock was put back
		"1|a|p|2026-10-25T02:00:00|2026-10-25T02:50:00|2026-10-25T02:10:00||gres/gpu=1|COMPLETED":         "ended before it started",
		`1|say "hi|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|COMPLETED`: "{1 p 60 s 1 card}",
		`1|a|b|c|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|COMPLETED`:   "{1 p 60 s 1 card}",
		"1|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|mem=NaN|COMPLETED":          `line 2, column 8 (AllocTRES): "mem=NaN": "NaN" is not an amount of memory`,
		"1|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00":                                                   "line 2, column 6 (End): it is missing",
	} {
		text := sacctHeader + line + "\n2|b|other|2027-01-01T00:00:00|2027-01-01T00:01:00|2027-01-01T00:02:00|60|gres/gpu=1|COMPLETED\n"
		tr, err := ReadTrace(strings.NewReader(text), "sacct")
		got := fmt.Sprint(err)
		if err == nil {
			_, got = LeftOut(tr.Skipped)
		}
		if err == nil && len(tr.Jobs) == 2 {
			j := &tr.Jobs[0]
			got = fmt.Sprintf("{%s %s %d s %d card}", j.ID, j.Queue, j.Duration, j.Cards)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
		if err == nil && tr.Jobs[0].Submit != 0 {
			t.Errorf("%s: submitted at %d s", line, tr.Jobs[0].Submit)
		}
	}
	if _, err := ReadTrace(strings.NewReader("JobID|Submit|Start|End\n1|2026-01-01T00:00:00|1|2\n"), "sacct"); err == nil || !strings.Contains(err.Error(), "no column AllocTRES or ReqTRES: nothing says how many cards jobs have") {
		t.Error(err)
	}
	none := read(t, sacctHeader+"1|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|cpu=1|COMPLETED\n")
	if got := fmt.Sprint(none.Notes()); got != "[no job of the trace asks for cards]" {
		t.Error(got)
	}
}

// The parts of a heterogeneous job start together; one in another queue cannot, and is told.
func TestPartsOfHeterogeneousJobs(t *testing.T) {
	part := "12+%d|a|%s|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|cpu=2,gres/gpu=%d,mem=1G|COMPLETED\n"
	tr := read(t, sacctHeader+fmt.Sprintf(part, 0, "p", 4)+fmt.Sprintf(part, 1, "p", 2)+fmt.Sprintf(part, 2, "q", 1))
	want := []Job{{ID: "12", Queue: "p", Duration: 60, Cards: 6, CPU: 4000, Memory: 2 << 30}, {ID: "12+2", Queue: "q", Duration: 60, Cards: 1, CPU: 2000, Memory: 1 << 30}}
	if !reflect.DeepEqual(tr.Jobs, want) {
		t.Errorf("%+v", tr.Jobs)
	}
	if got := fmt.Sprint(tr.Notes()); got != "[1 line is a part of heterogeneous jobs in another queue than the first part; each is simulated as a job of its own]" {
		t.Error(got)
	}
}

// Numbers of cards are whole, and no number is rounded up to 0.
func TestNumbersOfCards(t *testing.T) {
	for lines, want := range map[string]string{
		"a,,q,0,5,0.5,,,\n":            "line 2, column 6 (gpus): 0.5 is not a whole number: parts of cards are not simulated",
		"a,,q,0,5,-0.5,,,\n":           "line 2, column 6 (gpus)",
		"a,,q,-0.5,5,1,,,\n":           "line 2, column 4 (submit_s): -0.5 is not between 0 and",
		"a,,q,0,5000000000,1,,,\n":     "line 2, column 5 (duration_s): 5000000000 is not between 0 and 4000000000",
		"a,,q,0,5,4.0,,,\nb,,q,0,x,,,": "line 3",
	} {
		if _, err := ReadTrace(strings.NewReader(header+lines), "test.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", lines, err, want)
		}
	}
	_, r := simulate(t, trace(t, "a,,q,0,5,0,1,,\nb,,q,0,5,1,,,\n"), Partitions([]Share{{"q", 1, 8}}), Settings{})
	if len(r.BySize) != 2 || strings.TrimSpace(r.BySize[0].Name) != "no card" || strings.TrimSpace(r.BySize[1].Name) != "1 card" {
		t.Errorf("%+v", r.BySize)
	}
}

// A trace whose seconds are dates begins with its first job, on that day.
func TestTracesWithDates(t *testing.T) {
	tr := trace(t, "b,,q,1767225700,5,1,,,\na,,q,1767225600,5,1,,,\n")
	if tr.Jobs[0].Submit != 0 || tr.Jobs[1].Submit != 100 || !tr.Start.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %s", tr.Jobs, tr.Start)
	}
	if tr := trace(t, "a,,q,7,5,1,,,\n"); tr.Jobs[0].Submit != 7 || !tr.Start.IsZero() {
		t.Errorf("%+v, %s", tr.Jobs, tr.Start)
	}
}

// A pod of openb runs from when it was scheduled, where that is told.
func TestOpenbRunsFromWhenItWasScheduled(t *testing.T) {
	tr := read(t, "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\na,1,1000,100,400,150.0\nb,1,1000,100,400,\n")
	if len(tr.Jobs) != 1 || tr.Jobs[0].Duration != 250 || tr.Skipped["was never scheduled"] != 1 {
		t.Errorf("%+v, %v", tr.Jobs, tr.Skipped)
	}
}

func TestShapesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeffqueue,nodes,gpus_per_node\na,1,8\nb,2,4\n": "[{a 1 8} {b 2 4}] <nil>",
		"queue,nodes,gpus_per_node\na,1,8\na,2,4\n":       "line 3, column 1 (queue): a is there already",
	} {
		path := filepath.Join(t.TempDir(), "shape.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		shares, err := ReadShape(path, "")
		if got := fmt.Sprint(shares, err); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A file with the mark of its encoding is read, also where its header is quoted; lines are counted in fields over several lines, too.
func TestMarksAndLines(t *testing.T) {
	tr := read(t, "\ufeff\"job_id\",\"queue\",\"submit_s\",\"duration_s\",\"gpus\"\na,q,0,5,1\n")
	if len(tr.Jobs) != 1 || tr.Jobs[0].ID != "a" {
		t.Errorf("%+v", tr.Jobs)
	}
	text := "job_id,queue,submit_s,duration_s,gpus,comment\na,q,0,5,1,\"x\ny\"\nb,q,x,5,1,\n"
	if _, err := ReadTrace(strings.NewReader(text), "test"); err == nil || !strings.Contains(err.Error(), "line 4, column 3") {
		t.Error(err)
	}
}

// Columns that look like others, and times of two kinds, are told.
func TestOddColumnsAndDates(t *testing.T) {
	for columns, want := range map[string]string{
		"limit": "[column limit is not read: is it limit_s?]", "Memory": "[column Memory is not read: is it memory_mib?]",
		"priorty": "[column priorty is not read: is it priority?]", "cpu": "[column cpu is not read: is it cpus?]",
		"model": "[]", "limit_s": "[]", "id": "[]", "queue_source": "[]",
	} {
		if got := fmt.Sprint(read(t, "job_id,queue,submit_s,duration_s,gpus,"+columns+"\na,q,0,5,1,\n").Notes()); got != want {
			t.Errorf("%s: %s, want %s", columns, got, want)
		}
	}
	sacct := read(t, "JobID|Partition|Submit|Start|End|AllocTRES|Timelimit\n1|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|gres/gpu=1|1-00:00:00\n")
	if got := fmt.Sprint(sacct.Notes()); got != "[column Timelimit is not read: is it TimelimitRaw?]" {
		t.Error(got)
	}
	tr := trace(t, "a,,q,0,5,1,,,\nb,,q,1767225600,5,1,,,\nc,,q,1767225600,5,1,,,\n")
	want := "[2 jobs are submitted at a date, as b at 1767225600 s, and 1 job before 1000000000 s, as a at 0 s: are all times meant to be of one kind?]"
	if got := fmt.Sprint(tr.Notes()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A simulation ends before its clock does.
func TestDurationsThatAreNoSeconds(t *testing.T) {
	w, err := New(trace(t, "a,,q,0,4000000000,8,,,\nb,,q,0,4000000000,8,,,\nc,,q,0,4000000000,8,,,\n"), Partitions([]Share{{"q", 1, 8}}), Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "a alone for 4000000000 s: are durations in seconds?") {
		t.Error(err)
	}
}
