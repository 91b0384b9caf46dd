// Package usage remembers what a LocalQueue used lately, for admission fair sharing: an exponential
// average of the quota reserved in it, in which old use counts half as much every half-life.
//
// A History is a function of what the objects say: of the note in the LocalQueue's status, in whole
// seconds and thousandths as the status has it, and of what is reserved now, which counts since the
// note. So a restart changes nothing as long as notes are written. What came and went between two
// notes was charged at its admission, as in Kueue.
//
// Words: docs/design/glossary.md.
package usage

import (
	"math"
	"time"
)

// Rules say how usage is remembered.
type Rules struct {
	// HalfLife after which old use counts half; 0 forgets at once.
	HalfLife time.Duration
	// Sampling sets how much of a request is charged at the moment of admission.
	Sampling time.Duration
	// Scale is, by resource, how many thousandths a unit is.
	Scale []float64
}

// remembered is the part of old usage that still counts after d.
func (r *Rules) remembered(d time.Duration) float64 {
	if r.HalfLife <= 0 {
		return 0
	}
	return math.Exp2(-float64(d) / float64(r.HalfLife))
}

// History is the usage of one LocalQueue. Its zero value is that of one that never used anything.
type History struct {
	at       time.Time // of the note; zero: none yet
	noted    []int64   // by resource, in thousandths
	reserved []int64   // by resource, in units
}

// grow makes room for all resources that the rules know.
func (h *History) grow(r *Rules) {
	for len(h.noted) < len(r.Scale) {
		h.noted = append(h.noted, 0)
		h.reserved = append(h.reserved, 0)
	}
}

// NotedAt is when the last note was taken; zero: none yet.
func (h *History) NotedAt() time.Time { return h.at }

// Forget drops the note, not what is reserved.
func (h *History) Forget() {
	h.at = time.Time{}
	clear(h.noted)
}

// Seed starts from a note that was written before a restart: a value for each resource. A note that
// is there already stays.
func (h *History) Seed(r *Rules, at time.Time, values map[int32]float64) {
	if at.IsZero() || !h.at.IsZero() {
		return
	}
	h.at = at
	h.grow(r)
	for res, v := range values {
		h.noted[res] = int64(math.Round(v * r.Scale[res]))
	}
}

// Note brings the averages up to date.
func (h *History) Note(r *Rules, at time.Time) {
	h.grow(r)
	for res := range h.noted {
		h.noted[res] = int64(math.Round(h.thousandths(r, int32(res), at)))
	}
	h.at = at.Truncate(time.Second)
}

// Noted is what the last note says of each resource that was used.
func (h *History) Noted(r *Rules) map[int32]float64 {
	values := map[int32]float64{}
	for res, v := range h.noted {
		if v != 0 {
			values[int32(res)] = float64(v) / r.Scale[res]
		}
	}
	return values
}

// Reserve counts v more of a resource as reserved; v may be negative.
func (h *History) Reserve(r *Rules, res int32, v int64) {
	h.grow(r)
	h.reserved[res] += v
}

// Charge counts part of an admission at once, so that a burst of admissions in one LocalQueue does
// not look free. A negative v takes the charge for an admission back that did not come about.
func (h *History) Charge(r *Rules, res int32, v int64) {
	h.grow(r)
	part := 1 - r.remembered(r.Sampling)
	charge := int64(math.Round(part * math.Abs(float64(v)) * r.Scale[res]))
	if v < 0 {
		charge = -charge
	}
	h.noted[res] += charge
}

// Idle says whether there is nothing to remember.
func (h *History) Idle() bool {
	for res := range h.noted {
		if h.noted[res] != 0 || h.reserved[res] != 0 {
			return false
		}
	}
	return true
}

// Value is the average usage of a resource, in units, at a time.
func (h *History) Value(r *Rules, res int32, at time.Time) float64 {
	h.grow(r)
	return h.thousandths(r, res, at) / r.Scale[res]
}

func (h *History) thousandths(r *Rules, res int32, at time.Time) float64 {
	if h.at.IsZero() {
		return 0 // it counts from its first note on
	}
	old := r.remembered(max(0, at.Sub(h.at)))
	return float64(h.noted[res])*old + float64(h.reserved[res])*r.Scale[res]*(1-old)
}
