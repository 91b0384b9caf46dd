package main

import (
	"strings"
	"testing"
)

// Small editions of every case: drive fails unless a side keeps the rules and ends empty.
func small() []*work {
	few := []class{{20, 100, 2000, 50, 1}, {8, 500, 500, 100, 5}, {4, 900, 400, 200, 20}}
	tree := fairSharing()
	kept := tree.jobs[:0]
	for _, j := range tree.jobs {
		if j.arrives < 2000 {
			kept = append(kept, j)
		}
	}
	tree.jobs = kept
	return []*work{flat("flat", 2, 3, few), tree, backlog(300, fewShapes), backlog(200, manyShapes)}
}

func TestBothSidesFinish(t *testing.T) {
	for _, w := range small() {
		t.Run(w.name, func(t *testing.T) {
			ours, err := runOurs(w, nothing)
			if err != nil {
				t.Fatal(err)
			}
			asked, err := runOurs(w, policies)
			if err != nil {
				t.Fatal(err)
			}
			if asked.admissions != ours.admissions || asked.evictions != ours.evictions || asked.ended != ours.ended {
				t.Errorf("with policies that change nothing: %d admissions, %d evictions, the end after %d; without %d, %d, %d",
					asked.admissions, asked.evictions, asked.ended, ours.admissions, ours.evictions, ours.ended)
			}
			every, err := runOurs(w, everyPolicy)
			if err != nil {
				t.Fatal(err)
			}
			if every.admissions-every.evictions != ours.admissions-ours.evictions {
				t.Errorf("with every policy %d workloads come to their end, of %d", every.admissions-every.evictions, ours.admissions-ours.evictions)
			}
			theirs, err := runKueue(w)
			if err != nil {
				t.Fatal(err)
			}
			if ours.admissions-ours.evictions != theirs.admissions-theirs.evictions {
				t.Errorf("elastic brought %d workloads to their end, kueue %d", ours.admissions-ours.evictions, theirs.admissions-theirs.evictions)
			}
		})
	}
}

// The cases mean to preempt: a harness in which no workload is ever evicted measures something else.
func TestPreemptionHappens(t *testing.T) {
	w := flat("preemption", 1, 3, []class{{60, 100, 4000, 0, 1}, {15, 700, 1000, 100, 5}, {8, 1500, 500, 200, 20}})
	ours := func(w *work) (run1, error) { return runOurs(w, nothing) }
	for name, run := range map[string]func(*work) (run1, error){"elastic": ours, "kueue": runKueue} {
		r, err := run(w)
		if err != nil {
			t.Fatal(err)
		}
		if r.evictions == 0 {
			t.Errorf("%s evicted nobody", name)
		}
	}
}

func TestReplayIsTheSameRun(t *testing.T) {
	w := small()[0]
	rec := &recording{side: newOurs(w, nothing)}
	first, err := drive(w, rec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := drive(w, &rec.log)
	if err != nil {
		t.Fatal(err)
	}
	if first != again {
		t.Errorf("replayed %+v, recorded %+v", again, first)
	}
}

// liar admits what there is no quota for.
type liar struct{ side }

func (liar) arrive(int32, millis) {}
func (liar) wakeAt() millis       { return 0 }
func (liar) decide(millis) (decision, bool) {
	return decision{admit: []int32{0, 1}}, false
}

func TestDriveRefusesAdmissionAboveQuota(t *testing.T) {
	w := flat("liar", 1, 1, nil)
	w.jobs = []job{{cpus: 15_000, runs: 1}, {cpus: 15_000, runs: 1}}
	if _, err := drive(w, liar{}); err == nil || !strings.Contains(err.Error(), "above the quota") {
		t.Errorf("got %v", err)
	}
}

// A case below the bar is named; with policies there is none.
func TestBar(t *testing.T) {
	results := []result{{w: &work{name: "fast"}, cpuRatio: 70}, {w: &work{name: "slow"}, cpuRatio: 49.9}}
	if got := belowBar(results, 50); len(got) != 1 || got[0] != "slow" {
		t.Errorf("below the bar are %v", got)
	}
	if got := belowBar(results, 0); len(got) > 0 {
		t.Errorf("below no bar are %v", got)
	}
}

func TestBetweenKeepsTheRest(t *testing.T) {
	got, err := between([]byte("a\n<!-- begin x -->\nold\n<!-- end x -->\nb"), "x", "new\n")
	if want := "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := between([]byte("a"), "x", ""); err == nil {
		t.Error("a page without markers was accepted")
	}
}
