package cloud

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// How fast what was seen is forgotten, and what is believed before anything was seen: weak, each worth one event.
const (
	halfLife    = 4 * 24 * time.Hour
	priorUp     = 8.0 // hours that a spot machine lasts
	priorDown   = 4.0 // hours until a place sells spot machines again
	longestGap  = time.Hour
	firstClosed = 2 * time.Minute
	mostClosed  = 16 * time.Minute
)

// Seen is what was learned of a place by all jobs that tried to buy there.
type Seen struct {
	Place
	At         time.Time `json:"at"`         // of the last observation
	Obtainable bool      `json:"obtainable"` // then

	// How long machines could be had and could not, and how often that changed, as far as it was seen.
	UpHours   float64 `json:"upHours,omitempty"`
	DownHours float64 `json:"downHours,omitempty"`
	Losses    float64 `json:"losses,omitempty"`
	Returns   float64 `json:"returns,omitempty"`

	ClosedUntil time.Time `json:"closedUntil,omitzero"` // not tried before, by jobs that want as many machines as were refused
	ClosedFor   int       `json:"closedFor,omitempty"`  // the fewest machines that were refused since it last sold some
	Failures    int       `json:"failures,omitempty"`   // in a row

	StartUpHours float64 `json:"startUpHours,omitempty"` // seen, a moving mean; 0: never
}

// Learned is what is known of all places, and is all that a choice depends on beside offers, job and time.
type Learned struct{ places map[Place]*Seen }

// Of is what was seen of a place; nil: nothing.
func (l *Learned) Of(p Place) *Seen {
	if l == nil {
		return nil
	}
	return l.places[p]
}

func (l *Learned) at(p Place) *Seen {
	if l.places == nil {
		l.places = map[Place]*Seen{}
	}
	s := l.places[p]
	if s == nil {
		s = &Seen{Place: p}
		l.places[p] = s
	}
	return s
}

// Obtained says that machines were bought there.
func (l *Learned) Obtained(p Place, machines int, now time.Time) {
	s := l.at(p)
	s.observe(true, false, now)
	s.Failures = 0
	if machines >= s.ClosedFor {
		s.ClosedUntil, s.ClosedFor = time.Time{}, 0
	}
}

// Started says how long machines took from the order until the job ran.
func (l *Learned) Started(p Place, took time.Duration) {
	s := l.at(p)
	if s.StartUpHours == 0 {
		s.StartUpHours = took.Hours()
	}
	s.StartUpHours += (took.Hours() - s.StartUpHours) / 4
}

// Running says that machines there are still up.
func (l *Learned) Running(p Place, now time.Time) { l.at(p).observe(true, true, now) }

// Lost says that machines were taken away by the cloud. The place is closed for a while.
func (l *Learned) Lost(p Place, machines int, now time.Time) {
	s := l.at(p)
	s.observe(false, true, now)
	s.refused(machines, now)
}

// StockOut says that machines could not be bought. The place is closed for all jobs that want as many, longer each time.
func (l *Learned) StockOut(p Place, machines int, now time.Time) {
	s := l.at(p)
	s.observe(false, false, now)
	s.refused(machines, now)
}

func (s *Seen) refused(machines int, now time.Time) {
	s.Failures++
	wait := mostClosed
	if s.Failures < 10 {
		wait = min(wait, firstClosed<<(s.Failures-1))
	}
	s.ClosedUntil = now.Add(wait)
	if s.ClosedFor == 0 || machines < s.ClosedFor {
		s.ClosedFor = machines
	}
}

// observe counts the time since the last observation, if it was watched, or is short enough to tell.
func (s *Seen) observe(up, watched bool, now time.Time) {
	gap := now.Sub(s.At)
	if s.At.IsZero() || gap < 0 {
		s.At, s.Obtainable = later(now, s.At), up
		return
	}
	if watched && !s.Obtainable {
		watched = false // another job was refused meanwhile
	}
	weight := math.Exp2(-gap.Hours() / halfLife.Hours())
	s.UpHours, s.DownHours, s.Losses, s.Returns = s.UpHours*weight, s.DownHours*weight, s.Losses*weight, s.Returns*weight
	if watched || gap <= longestGap {
		s.count(up, watched, gap.Hours())
	}
	s.At, s.Obtainable = now, up
}

func (s *Seen) count(up, watched bool, hours float64) {
	switch {
	case s.Obtainable && up:
		s.UpHours += hours
	case s.Obtainable:
		s.Losses++
		if watched {
			s.UpHours += hours
		} else {
			s.UpHours, s.DownHours = s.UpHours+hours/2, s.DownHours+hours/2
		}
	case up:
		s.Returns++
		s.UpHours, s.DownHours = s.UpHours+hours/2, s.DownHours+hours/2
	default:
		s.DownHours += hours
	}
}

// LossRate is how often an hour a machine there is lost.
func (s *Seen) LossRate() float64 {
	if s == nil {
		return 1 / priorUp
	}
	return (s.Losses + 1) / (s.UpHours + priorUp)
}

// ReturnRate is how often an hour the place sells again, once it does not.
func (s *Seen) ReturnRate() float64 {
	if s == nil {
		return 1 / priorDown
	}
	return (s.Returns + 1) / (s.DownHours + priorDown)
}

// ChanceNow that machines can be had: what was seen last, fading into the long-term share.
func (s *Seen) ChanceNow(now time.Time) float64 {
	loss, back := s.LossRate(), s.ReturnRate()
	share := back / (loss + back)
	if s == nil || s.At.IsZero() {
		return share
	}
	last := 0.0
	if s.Obtainable {
		last = 1
	}
	return share + (last-share)*math.Exp(-(loss+back)*max(0, now.Sub(s.At).Hours()))
}

// Closed says until when a job that wants so many machines does not try there; zero: it may now.
func (s *Seen) Closed(machines int, now time.Time) time.Time {
	if s == nil || machines < s.ClosedFor || !s.ClosedUntil.After(now) {
		return time.Time{}
	}
	return s.ClosedUntil
}

// MarshalJSON writes what was learned as a list in the order of places.
func (l *Learned) MarshalJSON() ([]byte, error) { return json.Marshal(l.List()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Learned) UnmarshalJSON(text []byte) error {
	var list []Seen
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	l.places = make(map[Place]*Seen, len(list))
	for i := range list {
		l.places[list[i].Place] = &list[i]
	}
	return nil
}

// List is what was learned, in the order of places.
func (l *Learned) List() []Seen {
	list := make([]Seen, 0, len(l.places))
	for _, s := range l.places {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Seen) int { return a.compare(b.Place) })
	return list
}

func (p Place) compare(q Place) int {
	kind := 0
	if p.Spot != q.Spot {
		kind = 1
		if q.Spot {
			kind = -1
		}
	}
	return cmp.Or(strings.Compare(p.Cloud, q.Cloud), strings.Compare(p.Region, q.Region), strings.Compare(p.Zone, q.Zone),
		strings.Compare(p.InstanceType, q.InstanceType), kind)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
