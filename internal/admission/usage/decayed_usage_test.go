package usage

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// hourly has two resources: one counted in thousandths already, as cpu is, and one in whole units.
func hourly() *Rules {
	return &Rules{HalfLife: time.Hour, Sampling: 5 * time.Minute, Scale: []float64{1, 1000}}
}

// A note counts half as much after every half-life, and what is reserved takes its place.
func TestHalfLife(t *testing.T) {
	for _, c := range []struct {
		name            string
		halfLife, after time.Duration
		noted           float64
		reserved        int64
		want            float64
	}{
		{"at once", time.Hour, 0, 8, 4, 8},
		{"one half-life", time.Hour, time.Hour, 8, 0, 4},
		{"three half-lives", time.Hour, 3 * time.Hour, 8, 0, 1},
		{"as much reserved as noted", time.Hour, 7 * time.Minute, 8, 8, 8},
		{"less reserved than noted", time.Hour, time.Hour, 8, 4, 6},
		{"more reserved than noted", time.Hour, 2 * time.Hour, 0, 8, 6},
		{"another half-life", 10 * time.Minute, 20 * time.Minute, 8, 0, 2},
		{"no half-life: only what is reserved counts", 0, 0, 8, 3, 3},
		{"a clock that went back", time.Hour, -time.Hour, 8, 4, 8},
	} {
		r := hourly()
		r.HalfLife = c.halfLife
		var h History
		h.Seed(r, start, map[int32]float64{1: c.noted})
		h.Reserve(r, 1, c.reserved)
		if got := h.Value(r, 1, start.Add(c.after)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// An admission is charged by what a sampling interval of it would add, and a charge that is taken back leaves nothing.
func TestCharge(t *testing.T) {
	r := hourly()
	r.Sampling = r.HalfLife // half of a request is charged
	var h History
	h.Seed(r, start, map[int32]float64{1: 1})
	h.Charge(r, 1, 6)
	if got := h.Value(r, 1, start); got != 4 {
		t.Errorf("1 was noted and 6 charged by half: %v, want 4", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := hourly()
		r.Sampling = time.Duration(rapid.IntRange(0, 3600).Draw(t, "sampling")) * time.Second
		h, charged := History{}, []int64{}
		h.Seed(r, start, map[int32]float64{0: 500, 1: 2.5})
		before := h.Noted(r)
		for range rapid.IntRange(1, 10).Draw(t, "admissions") {
			charged = append(charged, rapid.Int64Range(1, 1000).Draw(t, "amount"))
			h.Charge(r, 1, charged[len(charged)-1])
		}
		for _, v := range charged {
			h.Charge(r, 1, -v)
		}
		if after := h.Noted(r); !maps.Equal(before, after) {
			t.Fatalf("%v after all charges were taken back, want %v", after, before)
		}
	})
}

// A note that is written to thousandths and read back after a restart gives the same values from then on.
func TestNoteReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, at := hourly(), start
		var h History
		reserved := [2]int64{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			res := rapid.Int32Range(0, 1).Draw(t, "resource")
			v := rapid.Int64Range(0, 9).Draw(t, "amount")
			switch rapid.SampledFrom([]string{"reserve", "release", "charge", "note"}).Draw(t, "step") {
			case "reserve":
				h.Reserve(r, res, v)
				reserved[res] += v
			case "release":
				h.Reserve(r, res, -reserved[res])
				reserved[res] = 0
			case "charge":
				h.Charge(r, res, v)
			case "note":
				h.Note(r, at)
			}
			at = at.Add(time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "milliseconds")) * time.Millisecond)
		}
		h.Note(r, at)
		var restarted History
		restarted.Seed(r, time.Unix(h.NotedAt().Unix(), 0), readBack(t, h.Noted(r)))
		for res := range int32(2) {
			restarted.Reserve(r, res, reserved[res])
			for _, later := range []time.Duration{0, time.Second, 37 * time.Minute, 5 * time.Hour} {
				if got, want := restarted.Value(r, res, at.Add(later)), h.Value(r, res, at.Add(later)); got != want {
					t.Fatalf("resource %d after %v: %v, want %v", res, later, got, want)
				}
			}
		}
	})
}

// All whole thousandths are read back exactly, though most are no exact floats.
func TestThousandthsAreExact(t *testing.T) {
	r := hourly()
	for v := range 10_000 {
		value := map[int32]float64{1: float64(v) / 1000}
		var h History
		h.Seed(r, start, value)
		if got := h.Noted(r); v > 0 && !maps.Equal(got, value) {
			t.Fatalf("%v, want %v", got, value)
		}
	}
}

// readBack writes values as a status has them, with three decimals, and reads them.
func readBack(t *rapid.T, values map[int32]float64) map[int32]float64 {
	read := map[int32]float64{}
	for res, v := range values {
		x, err := strconv.ParseFloat(fmt.Sprintf("%.3f", v), 64)
		if err != nil {
			t.Fatal(err)
		}
		read[res] = x
	}
	return read
}

// The first note stays until it is forgotten; what is reserved is not forgotten with it.
func TestSeedAndForget(t *testing.T) {
	r := hourly()
	var h History
	if !h.Idle() || h.Value(r, 1, start) != 0 {
		t.Error("the zero value must be idle")
	}
	h.Seed(r, time.Time{}, map[int32]float64{1: 3})
	if !h.NotedAt().IsZero() {
		t.Error("a note without a time must not count")
	}
	h.Seed(r, start, map[int32]float64{1: 3})
	h.Seed(r, start.Add(time.Hour), map[int32]float64{1: 7})
	if got := h.Value(r, 1, start); got != 3 || !h.NotedAt().Equal(start) {
		t.Errorf("%v noted at %v, want the first note", got, h.NotedAt())
	}
	h.Reserve(r, 1, 2)
	h.Forget()
	if len(h.Noted(r)) > 0 || !h.NotedAt().IsZero() || h.Idle() {
		t.Errorf("forgotten, but noted is %v; idle %t", h.Noted(r), h.Idle())
	}
	h.Note(r, start)
	if got := h.Value(r, 1, start.Add(time.Hour)); got != 1 {
		t.Errorf("%v an hour after the new note, want half of what is reserved", got)
	}
	h.Reserve(r, 1, -2)
	if !h.Idle() {
		t.Error("nothing is noted or reserved: it must be idle")
	}
}
