package cloud

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// A place that has sold spot machines for hours will probably go on; one that sells again only since minutes may stop as
// soon; and likewise for one that does not. So the rate at which that changes falls with the time since it last did: it
// is a factor of the place over that time and settling. In recorded series this holds for zones of all kinds, with factors
// around 1.
const (
	settling   = 0.4 // hours
	unknownAge = 2.0 // hours since the last change, of a place of which nothing is known
	priorEvent = 1.0 // what is believed before anything was seen: a factor of 1, worth one event
)

const (
	halfLife    = 4 * 24 * time.Hour // how fast what was seen is forgotten
	longestGap  = time.Hour          // between two observations that tell what happened between them
	firstClosed = 2 * time.Minute
)

// MostClosed is for how long a place is closed at most after a stock-out.
const MostClosed = 8 * time.Minute

// Seen is what was learned of a place by all jobs that tried to buy there.
type Seen struct {
	Place
	At         time.Time `json:"at"`         // of the last observation
	Obtainable bool      `json:"obtainable"` // then
	Since      time.Time `json:"since"`      // when that last changed, as far as is known

	// How long machines could be had and could not, and how often that changed, as far as it was seen. Spans are hours
	// weighted by how likely a change was in them, at a factor of 1.
	UpHours   float64 `json:"upHours,omitempty"`
	DownHours float64 `json:"downHours,omitempty"`
	UpSpan    float64 `json:"upSpan,omitempty"`
	DownSpan  float64 `json:"downSpan,omitempty"`
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

// Remember takes in what was written down of a place, unless something later is known.
func (l *Learned) Remember(s Seen) {
	if known := l.at(s.Place); s.At.After(known.At) {
		*known = s
	}
}

// Clone is a copy, of which nothing is seen here.
func (l *Learned) Clone() *Learned {
	c := &Learned{places: make(map[Place]*Seen, len(l.places))}
	for p, s := range l.places {
		seen := *s
		c.places[p] = &seen
	}
	return c
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
	wait := MostClosed
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
	if s.At.IsZero() {
		s.At, s.Since, s.Obtainable = now, now, up
		if up { // it did not begin to sell when somebody first looked
			s.Since = now.Add(-time.Duration(unknownAge * float64(time.Hour)))
		}
		return
	}
	if gap < 0 {
		return // it is known what came later
	}
	watched = watched && s.Obtainable // otherwise another job was refused meanwhile
	weight := math.Exp2(-gap.Hours() / halfLife.Hours())
	for _, v := range []*float64{&s.UpHours, &s.DownHours, &s.UpSpan, &s.DownSpan, &s.Losses, &s.Returns} {
		*v *= weight
	}
	changed := now
	if up != s.Obtainable && !watched {
		changed = s.At.Add(gap / 2)
	}
	if watched || gap <= longestGap {
		s.spend(s.Obtainable, s.At, changed)
		if up != s.Obtainable {
			s.count(up)
		}
	}
	if up != s.Obtainable {
		s.Since = changed
	}
	s.Obtainable = up
	if changed.Before(now) && gap <= longestGap {
		s.spend(up, changed, now)
	}
	s.At = now
}

// spend adds time in which machines could be had, or could not.
func (s *Seen) spend(up bool, from, to time.Time) {
	hours, span := &s.DownHours, &s.DownSpan
	if up {
		hours, span = &s.UpHours, &s.UpSpan
	}
	*hours += to.Sub(from).Hours()
	*span += spanOf(from.Sub(s.Since).Hours(), to.Sub(from).Hours())
}

func (s *Seen) count(up bool) {
	if up {
		s.Returns++
	} else {
		s.Losses++
	}
}

// spanOf is how many changes are expected in some hours after an age, at a factor of 1.
func spanOf(age, hours float64) float64 {
	age = max(0, age)
	return math.Log((settling + age + hours) / (settling + age))
}

// lossFactor and returnFactor are those of the place.
func (s *Seen) lossFactor() float64 {
	if s == nil {
		return 1
	}
	return (s.Losses + priorEvent) / (s.UpSpan + priorEvent)
}

func (s *Seen) returnFactor() float64 {
	if s == nil {
		return 1
	}
	return (s.Returns + priorEvent) / (s.DownSpan + priorEvent)
}

// LossRate is how often an hour a machine that is bought there now, or runs there, is lost within some hours.
func (s *Seen) LossRate(now time.Time, hours float64) float64 { return s.rate(s.age(now), hours) }

// rate of losses within some hours after an age.
func (s *Seen) rate(age, hours float64) float64 { return s.lossFactor() * spanOf(age, hours) / hours }

// chanceOf no loss within some hours after an age.
func (s *Seen) chanceOf(age, hours float64) float64 {
	return math.Exp(-s.lossFactor() * spanOf(age, hours))
}

// age is for how many hours the place has sold machines, if it does now. The longer nobody looked, the less is known.
func (s *Seen) age(now time.Time) float64 {
	if s == nil {
		return unknownAge
	}
	gap := max(0, now.Sub(s.At).Hours())
	if !s.Obtainable {
		return min(gap/2, unknownAge) // it came back since it was last seen, if it did
	}
	age := s.At.Sub(s.Since).Hours()
	same := math.Exp(-s.lossFactor() * spanOf(age, gap))
	return same*(age+gap) + (1-same)*min(gap/2, unknownAge)
}

// ReturnRate is how often an hour the place sells again within some hours, if it does not now.
func (s *Seen) ReturnRate(now time.Time, hours float64) float64 {
	age := settling
	if s != nil && !s.Obtainable {
		age = now.Sub(s.Since).Hours()
	}
	return s.returnFactor() * spanOf(age, hours) / hours
}

// ChanceNow that machines can be had: what was seen last, fading into the long-term share.
func (s *Seen) ChanceNow(now time.Time) float64 {
	if s == nil {
		return 0.5
	}
	share := (s.UpHours + 1) / (s.UpHours + s.DownHours + 2)
	gap, age := max(0, now.Sub(s.At).Hours()), s.At.Sub(s.Since).Hours()
	if s.Obtainable {
		same := math.Exp(-s.lossFactor() * spanOf(age, gap))
		return same + (1-same)*share
	}
	return (1 - math.Exp(-s.returnFactor()*spanOf(age, gap))) * share
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
