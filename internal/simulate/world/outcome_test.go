package world

import (
	"fmt"
	"strings"
	"testing"
)

// Jobs fail, or are cancelled, when they have run as long as the trace says: they are told and counted, and free their cards.
func TestJobsThatFail(t *testing.T) {
	tr := trace(t, "a,,q,0,100,8,,,FAILED\nb,,q,10,50,8,,,Killed\nc,,q,20,30,8,,,Succeeded\nd,,q,30,5,8,,,\n")
	var moments []string
	w, r := simulate(t, tr, Partitions([]Share{{"q", 1, 8}}), Settings{Watch: func(m Moment) {
		if m.What != Submitted && m.What != Started {
			moments = append(moments, fmt.Sprintf("%d %s %s", m.At, tr.Jobs[m.Job].ID, m.What))
		}
	}})
	if got, want := fmt.Sprint(moments), "[100 a failed 150 b cancelled 180 c ended 185 d ended]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r.Ended != 4 || r.Failed != 1 || r.Cancelled != 1 || r.OverLimit != 0 || r.ByQueue[0].Failed != 1 || r.Notes != nil {
		t.Errorf("%+v", r)
	}
	if ends := w.JobEnds(); ends[0].How != Failed || ends[2].How != Ended {
		t.Errorf("%+v", ends)
	}
	// One that reaches its limit before is ended for that.
	tr.Jobs[0].Limit = 60
	if _, r := simulate(t, tr, Partitions([]Share{{"q", 1, 8}}), Settings{}); r.OverLimit != 1 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
}

// From how long a job ran that failed nothing is learned, as elastic-queue learns nothing from it.
func TestNothingIsLearnedFromFailures(t *testing.T) {
	c := set(t, Partitions([]Share{{"q", 1, 8}}), "queue/q.quantile=50")
	for status, want := range map[string]bool{"": true, "NODE_FAIL": false, "CANCELLED by 7": false} {
		var lines strings.Builder
		for i := range 30 {
			fmt.Fprintf(&lines, "j%02d,u,q,%d,100,8,,,%s\n", i, 200*i, status)
		}
		w, _ := simulate(t, trace(t, lines.String()+"last,u,q,9000,100,8,,,\n"), c, Settings{})
		wl := w.workload(30)
		if got := w.learned.expected(&wl); got > 0 != want {
			t.Errorf("%q: taken to run %s", status, got)
		}
	}
}

// What says nothing that is known is told, and taken for success.
func TestOutcomesAreRead(t *testing.T) {
	tr := trace(t, "a,,q,0,100,8,,,failed\nb,,q,10,50,8,,,Pass\nc,,q,20,30,8,,,strange\nd,,q,30,5,8,,,strange\n")
	if got, want := fmt.Sprint(tr.Notes()), "[2 jobs have status strange, which says nothing of how they ended: they are taken to succeed]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	line := "%d|a|p|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1|%s\n"
	var lines strings.Builder
	states := []string{"COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED by 7", "CANCELLED+", "PREEMPTED"}
	for i, state := range states {
		fmt.Fprintf(&lines, line, i, state)
	}
	for i, j := range read(t, sacctHeader+lines.String()).Jobs {
		want := Fails
		switch {
		case i == 0:
			want = Succeeds
		case strings.HasPrefix(states[i], "CANCELLED"):
			want = IsCancelled
		}
		if j.Outcome != want {
			t.Errorf("%s: %v", states[i], j.Outcome)
		}
	}
	openb := read(t, "name,num_gpu,gpu_milli,creation_time,deletion_time,pod_phase\na,1,1000,100,400,Failed\nb,1,1000,100,400,Running\n")
	if openb.Jobs[0].Outcome != Fails || openb.Jobs[1].Outcome != Succeeds || openb.Notes() != nil {
		t.Errorf("%+v, %v", openb.Jobs, openb.Notes())
	}
}
