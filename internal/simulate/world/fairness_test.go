package world

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Two queues borrow from a third, which lends eight cards: a weight of 3 gets three times what a weight of 1 does, and their
// weighted shares come to the same. In the first ten minutes only one of them has jobs.
func TestShareAgainstWeight(t *testing.T) {
	var lines strings.Builder
	for i := range 8 {
		lines.WriteString("a" + string(rune('0'+i)) + ",,a,0,3600,1,,,\n")
	}
	for i := range 8 {
		lines.WriteString("b" + string(rune('0'+i)) + ",,b,600,3600,1,,,\n")
	}
	c, err := Pool([]Share{{"a", 0, 8}, {"b", 0, 8}, {"idle", 1, 8}}).Set("cohort/all.fairSharing=drf,queue/a.weight=1,queue/b.weight=3")
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(trace(t, lines.String()), c, Settings{Until: 3000})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := func(second int64) (a, b float64) {
		for _, s := range r.Samples {
			if s.At == second {
				return s.Shares["a"], s.Shares["b"]
			}
		}
		t.Fatalf("no sample at %d s: %+v", second, r.Samples)
		return 0, 0
	}
	if a, b := at(0); a != 1000 || b != 0 {
		t.Errorf("a alone has a share of %v, and b of %v", a, b)
	}
	if a, b := at(600); a != 250 || b != 250 {
		t.Errorf("shares of %v and %v against weights of 1 and 3", a, b)
	}
	fair := r.ByQueue[0].Fair
	if mean := (600*1000 + 2400*250.0) / 3000; fair == nil || fair.Weight != 1 || fair.Mean != mean || fair.Most != 1000 {
		t.Errorf("%+v, want a mean of %v", fair, mean)
	}
	if data, err := json.Marshal(r); err != nil || !bytes.Contains(data, []byte(`"weightedShares":{"a":250,"b":250,"idle":0}`)) {
		t.Errorf("%s, %v", data, err)
	}
	var plot bytes.Buffer
	if err := Plot(&plot, []Variant{{Name: "it", Report: r}}); err != nil || !strings.Contains(plot.String(), "weighted share, by queue") {
		t.Errorf("%s, %v", plot.String(), err)
	}
	// On no weight a share is beyond numbers, which JSON has not: it is left out.
	if c, err = c.Set("queue/a.weight=0"); err != nil {
		t.Fatal(err)
	}
	w, err = New(trace(t, lines.String()), c, Settings{Until: 500})
	if err != nil {
		t.Fatal(err)
	}
	if r, err = w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
