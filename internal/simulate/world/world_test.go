package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/internal/admission"
)

const header = "job_id,user,queue,submit_s,duration_s,gpus,cpus,memory_mib,status\n"

func trace(t *testing.T, lines string) *Trace {
	t.Helper()
	tr, err := ReadTrace(strings.NewReader(header+lines), "test.csv")
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func simulate(t *testing.T, tr *Trace, c *Cluster, s Settings) (*World, *Report) {
	t.Helper()
	s.Check = true
	w, err := New(tr, c, s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return w, r
}

func starts(w *World) string {
	var out []string
	for _, j := range w.JobEnds() {
		out = append(out, fmt.Sprintf("%s %d-%d", j.ID, j.Start, j.End))
	}
	return strings.Join(out, ", ")
}

// One node of 8: b waits for all cards, c would fit beside a. A strict queue lets it wait behind b, the usual one does
// not.
func TestHeadBlocksOrNot(t *testing.T) {
	jobs := "a,,q,0,100,4,,,\nb,,q,10,50,8,,,\nc,,q,20,30,2,,,\n"
	c := Partitions([]Share{{"q", 1, 8}})
	w, r := simulate(t, trace(t, jobs), c, Settings{})
	if got, want := starts(w), "a 0-100, b 100-150, c 20-50"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r.Delay.Mean != 30 || r.JCT.Max != 140 || r.Makespan != 150 || r.Ended != 3 {
		t.Errorf("%+v", r)
	}
	// 4 cards for 100 s, 8 for 50, 2 for 30, of 8 for 150.
	if want := 860.0 / 1200; r.CardsUsed != want {
		t.Errorf("used %v, want %v", r.CardsUsed, want)
	}
	w, _ = simulate(t, trace(t, jobs), c.Helios(), Settings{})
	if got, want := starts(w), "a 0-100, b 100-150, c 150-180"; got != want {
		t.Errorf("strict: got %s, want %s", got, want)
	}
}

// Gangs over nodes need whole nodes, and one for the rest.
func TestGangsTakeWholeNodes(t *testing.T) {
	jobs := "a,,q,0,100,1,,,\nb,,q,0,10,20,,,\nc,,q,1,10,4,,,\n"
	w, _ := simulate(t, trace(t, jobs), Partitions([]Share{{"q", 3, 8}}).Helios(), Settings{})
	if got, want := starts(w), "a 0-100, b 0-10, c 10-20"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A queue that lent its cards gets them back, and the borrower goes on later, for the price of a restart.
func TestReclaimChargesARestart(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}})
	var moments []string
	tr := trace(t, "x,,a,0,100,16,,,\ny,,b,40,30,8,,,\n")
	s := Settings{Restart: Restart{OneNode: 5, ManyNodes: 7}}
	s.Watch = func(m Moment) {
		moments = append(moments, fmt.Sprintf("%d %s %s", m.At, tr.Jobs[m.Job].ID, m.What))
	}
	w, r := simulate(t, tr, c, s)
	if got, want := starts(w), "x 0-137, y 40-70"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := "[0 x submitted 0 x started 40 y submitted 40 x preempted 40 y started 70 y ended 70 x started 137 x ended]"
	if got := fmt.Sprint(moments); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r.Preemptions != 1 || r.Delay.Max != 30 || r.LostHours != 7.0*16/3600 || r.ByQueue[0].Borrowed != (40+67)*8.0/3600 {
		t.Errorf("%+v", r)
	}
}

// Nodes are lost and come back; every job ends, and the same seed gives the same world.
func TestFaults(t *testing.T) {
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, "j%02d,,q,%d,%d,%d,,,\n", i, 10*i, 200+i, 1+i%12)
	}
	s := Settings{Faults: Faults{Every: 50, Down: 30, Seed: 1}, Restart: Restart{Checkpoint: 60}}
	c := Partitions([]Share{{"q", 4, 8}})
	first, r := simulate(t, trace(t, lines.String()), c, s)
	again, _ := simulate(t, trace(t, lines.String()), c, s)
	if r.Ended != 40 || r.Faults == 0 || r.Evictions == 0 || r.LostHours <= 0 {
		t.Errorf("%+v", r)
	}
	if !reflect.DeepEqual(first.JobEnds(), again.JobEnds()) {
		t.Error("the same seed gave another world")
	}
	s.Faults.Seed = 2
	if other, _ := simulate(t, trace(t, lines.String()), c, s); reflect.DeepEqual(first.JobEnds(), other.JobEnds()) {
		t.Error("another seed gave the same world")
	}
}

func TestQueuesThatAreMissing(t *testing.T) {
	tr := trace(t, "a,,q,0,100,4,,,\nb,,other,0,100,4,,,\n")
	c := Partitions([]Share{{"q", 1, 8}})
	_, err := New(tr, c, Settings{})
	var missing *MissingQueuesError
	if !errors.As(err, &missing) || fmt.Sprint(missing.Queues) != "[other]" {
		t.Fatalf("%v", err)
	}
	tr.Map(map[string]string{"*": "q"}, c)
	if _, r := simulate(t, tr, c, Settings{}); r.Ended != 2 {
		t.Errorf("%+v", r)
	}
}

// A job that no node can take waits for ever, and is counted.
func TestJobsThatNeverStart(t *testing.T) {
	c := Partitions([]Share{{"q", 1, 8}})
	for _, c := range []*Cluster{c, c.LeastAttainedService()} {
		_, r := simulate(t, trace(t, "a,,q,0,100,80,,,\nb,,q,0,100,4,,,\n"), c, Settings{})
		if r.Never != 1 || r.Ended != 1 || r.Makespan != 100 {
			t.Errorf("%+v", r)
		}
	}
}

func TestExplainAtATime(t *testing.T) {
	w, _ := simulate(t, trace(t, "a,,q,0,100,8,,,\nb,,q,10,50,8,,,\n"), Partitions([]Share{{"q", 1, 8}}), Settings{Until: 50})
	x := w.Explain(1)
	if x.State != admission.StatePending || x.Position != 1 || len(x.Missing) == 0 {
		t.Errorf("%+v", x)
	}
}

func TestUnreadableLinesAreNamed(t *testing.T) {
	for lines, want := range map[string]string{
		"a,,q,0,100,4,,,\nb,,q,zero,1,1,,,\n": `test.csv: line 3, column 4 (submit_s): "zero" is not a number`,
		"a,,q,0,-5,4,,,\n":                    "line 2, column 5 (duration_s): -5 is not between",
		"a,,q,0,5,,,,\n":                      `line 2, column 6 (gpus): "" is not a number`,
		"a,,,0,5,1,,,\n":                      "line 2, column 3 (queue): is empty",
		"a,,q,0,5,1,,\n":                      "line 2, column 9 (status): it is missing: the line has 8 fields, the header has 9 columns",
		"a,,q,0,5,1,,,\nb,,q,0,5,1,,,,\n":     "line 3, column 10: it is too much: the line has 10 fields",
		"a,,q,0,99999999999999999999,1,,,\n":  "line 2, column 5 (duration_s)",
		"a,,q,0,5,NaN,,,\n":                   `line 2, column 6 (gpus): "NaN" is not a number`,
		"\"a\nb\",,q,0,5,1,,,\n":              `line 2, column 1 (job_id): "a\nb" has a control character`,
		"a,\xff,q,0,5,1,,,\n":                 `line 2, column 2 (user): "\xff" is not UTF-8`,
		"a,,q\x1b[2J,0,5,1,,,\n":              "line 2, column 3 (queue)",
		"a,,q,0,9000000001,1,,,\n":            "line 2, column 5 (duration_s): 9000000001 is not between 0 and 4000000000; are times and durations in seconds?",
		"a,,q,1767225600000,5,1,,,\n":         "line 2, column 4 (submit_s): 1767225600000 is not between 0 and 4000000000; are times",
		"a,,q,0,1e19,1,,,\n":                  "are times and durations in seconds?",
		"":                                    "no job in it",
	} {
		if _, err := ReadTrace(strings.NewReader(header+lines), "test.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", lines, err, want)
		}
	}
	for text, want := range map[string]string{
		"":           "it is empty",
		"x,y\n1,2\n": "columns x,y are those of no known trace: jobs has job_id,queue",
	} {
		if _, err := ReadTrace(strings.NewReader(text), "test.csv"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Jobs of one name are simulated and told.
func TestDuplicateNames(t *testing.T) {
	tr := trace(t, "a,,q,0,100,4,,,\nb,,q,0,5,1,,,\na,,q,7,5,1,,,\na,,q,8,5,1,,,\n")
	_, r := simulate(t, tr, Partitions([]Share{{"q", 1, 8}}), Settings{})
	want := "[line 4, column 1 (job_id): line 2 has a, too, and 1 more are there twice; each is simulated as a job of its own]"
	if got := fmt.Sprint(r.Notes); got != want || r.Jobs != 4 {
		t.Errorf("%d jobs, %s, want %s", r.Jobs, got, want)
	}
	if r := trace(t, "a,,q,0,100,4,,,\n"); r.Notes() != nil {
		t.Errorf("%v", r.Notes())
	}
	shape := filepath.Join(t.TempDir(), "shape.csv")
	if err := os.WriteFile(shape, []byte("queue,nodes,gpus_per_node\na,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadShape(shape, ""); err == nil || !strings.Contains(err.Error(), "line 2, column 3 (gpus_per_node): it is missing") {
		t.Errorf("%v", err)
	}
}

func TestSacct(t *testing.T) {
	text := "JobID|User|Partition|Submit|Start|End|AllocTRES|TimelimitRaw|State\n" +
		"7|ann|gpu|2026-01-01T00:10:00|2026-01-01T00:20:00|2026-01-01T01:20:00|billing=8,cpu=64,gres/gpu:h100=16,gres/gpu=16,mem=1.5T,node=2|120|COMPLETED\n" +
		"7.batch||gpu|2026-01-01T00:10:00|2026-01-01T00:20:00|2026-01-01T01:20:00|cpu=64,mem=1T,node=2||COMPLETED\n" +
		"8|bob|gpu|2026-01-01T00:00:00|Unknown|Unknown|cpu=1|UNLIMITED|PENDING\n" +
		"9|bob||2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:00:07|cpu=4,gres/gpu:a100=1,mem=4000M|UNLIMITED|FAILED\n"
	tr, err := ReadTrace(strings.NewReader(text), "sacct")
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{ID: "9", User: "bob", Queue: "default", Duration: 7, Outcome: Fails, Cards: 1, CPU: 4000, Memory: 4000 << 20},
		{ID: "7", User: "ann", Queue: "gpu", Submit: 600, Duration: 3600, Limit: 7200, Cards: 16, CPU: 64000, Memory: 3 << 39},
	}
	if !reflect.DeepEqual(tr.Jobs, want) {
		t.Errorf("got  %+v\nwant %+v", tr.Jobs, want)
	}
	if tr.Skipped["a job's step"] != 1 || tr.Skipped["did not run to an end"] != 1 {
		t.Errorf("%v", tr.Skipped)
	}
	bad := strings.Replace(text, "2026-01-01T01:20:00|billing", "yesterday|billing", 1)
	if _, err := ReadTrace(strings.NewReader(bad), "sacct"); err == nil || !strings.Contains(err.Error(), `line 2, column 6 (End): "yesterday" is not a time`) {
		t.Errorf("%v", err)
	}
}

func TestOpenb(t *testing.T) {
	text := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
		"p1,12000,16384,1,1000,,LS,Running,100,400,100.0\n" +
		"p2,6000,12288,1,460,,LS,Running,100,400,\n"
	tr, err := ReadTrace(strings.NewReader(text), "openb")
	if err != nil {
		t.Fatal(err)
	}
	if want := []Job{{ID: "p1", Queue: "LS", Duration: 300, Cards: 1, CPU: 12000, Memory: 16 << 30}}; !reflect.DeepEqual(tr.Jobs, want) {
		t.Errorf("%+v", tr.Jobs)
	}
	if tr.Skipped["asks for part of a card"] != 1 {
		t.Errorf("%v", tr.Skipped)
	}
}

func TestEventHeap(t *testing.T) {
	var h eventHeap
	for _, at := range []int64{5, 3, 9, 1, 1, 7, 2} {
		h.push(event{at: at, of: int32(len(h))})
	}
	last := event{at: -1}
	for len(h) > 0 {
		e := h.pop()
		if e.before(last) {
			t.Fatalf("%+v after %+v", e, last)
		}
		last = e
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(header + "a,,q,0,100,4,1,2,\n")
	f.Add("JobID|JobName|Submit|Start|End|AllocTRES\n1+0|a|b|2026-01-01T00:00:00|1|2|gres/gpu=1\n")
	f.Add("name,num_gpu,gpu_milli,creation_time,deletion_time\np,1,1000,1,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := ReadTrace(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		for i, j := range tr.Jobs {
			if j.Submit < 0 || j.Duration < 0 || j.Cards < 0 || j.CPU < 0 || j.Memory < 0 || i > 0 && j.Submit < tr.Jobs[i-1].Submit {
				t.Fatalf("%+v", j)
			}
		}
	})
}

// A job that runs longer than it may is ended at its limit, over all its runs, and counted.
func TestJobsEndAtTheirLimit(t *testing.T) {
	tr := trace(t, "a,,q,0,100,8,,,\nb,,q,0,100,8,,,\nc,,q,20,10,8,,,\n")
	tr.Jobs[0].Limit, tr.Jobs[1].Limit, tr.Jobs[2].Priority = 50, 100, 1
	c := set(t, Partitions([]Share{{"q", 1, 8}}), "queue/q.withinClusterQueue=LowerPriority")
	w, r := simulate(t, tr, c, Settings{})
	if got, want := starts(w), "a 0-60, b 60-160, c 20-30"; got != want || r.OverLimit != 1 || r.Ended != 3 {
		t.Errorf("%s, want %s; %d over their limit", got, want, r.OverLimit)
	}
}
