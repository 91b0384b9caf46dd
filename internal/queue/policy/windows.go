package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// Schedule is when a window is open, or a reservation lasts.
type Schedule struct {
	start    cron.Schedule
	duration time.Duration
}

// ScheduleOf reads when a window is open.
func ScheduleOf(w *v1alpha1.Window) (Schedule, error) {
	return scheduleOf(w.Start, w.Duration, w.TimeZone, false)
}

// scheduleOf reads times that come again, or once where that may be.
func scheduleOf(start string, lasts v1alpha1.Duration, timeZone string, once bool) (Schedule, error) {
	zone, err := time.LoadLocation(timeZone)
	if err != nil || timeZone == "Local" {
		return Schedule{}, fmt.Errorf("timeZone: unknown time zone %s", timeZone)
	}
	times, err := timesOf(start, zone, once)
	if err != nil {
		return Schedule{}, fmt.Errorf("start: %w", err)
	}
	duration, err := parse(string(lasts))
	switch {
	case err != nil:
		return Schedule{}, fmt.Errorf("duration: %w", err)
	case duration < time.Minute:
		return Schedule{}, fmt.Errorf("duration: %s is less than a minute", lasts)
	}
	return Schedule{times, duration}, nil
}

// timesOf reads a cron expression or, where that may be, a date and time.
func timesOf(start string, zone *time.Location, once bool) (cron.Schedule, error) {
	if strings.Contains(start, "TZ=") {
		return nil, errors.New("say the time zone in timeZone")
	}
	if once {
		for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
			if at, err := time.ParseInLocation(layout, start, zone); err == nil {
				return onceAt{at}, nil
			}
		}
	}
	times, err := cron.ParseStandard(start)
	if err != nil {
		return nil, err
	}
	spec, ok := times.(*cron.SpecSchedule)
	if !ok { // @every counts from when it is asked
		return nil, fmt.Errorf("%s is no time of the day", start)
	}
	spec.Location = zone
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, zone)).IsZero() {
		return nil, fmt.Errorf("%s never comes", start)
	}
	return spec, nil
}

// onceAt is a time that does not come again.
type onceAt struct{ at time.Time }

// Next is that time, or none.
func (o onceAt) Next(after time.Time) time.Time {
	if o.at.After(after) {
		return o.at
	}
	return time.Time{}
}

// At says whether the window is open, and when to ask again: when it opens, or may close.
func (s Schedule) At(now time.Time) (open bool, until time.Time) {
	// The first start that can still last: it lasts until it ends, and those that begin meanwhile are looked at then.
	start := s.start.Next(now.Add(-s.duration))
	if start.After(now) {
		return false, start
	}
	return true, start.Add(s.duration)
}

// Span is a time from one moment to another.
type Span struct{ From, Until time.Time }

// Spans are the times that are not over yet, one at least unless there is none, and those further that begin before a
// horizon, at most so many. Times that overlap or touch are one.
func (s Schedule) Spans(now, horizon time.Time, most int) []Span {
	var list []Span
	for start := s.start.Next(now.Add(-s.duration)); !start.IsZero(); start = s.start.Next(start) {
		if last := len(list) - 1; last >= 0 && !start.After(list[last].Until) {
			if list[last].Until = start.Add(s.duration); !list[last].Until.After(horizon) {
				continue
			}
			break
		}
		if len(list) > 0 && (start.After(horizon) || len(list) == most) {
			break
		}
		list = append(list, Span{start, start.Add(s.duration)})
	}
	return list
}

func checkWindows(s *v1alpha1.QueuePolicySpec) error {
	for i := range quota(s).Windows {
		w := &quota(s).Windows[i]
		if _, err := ScheduleOf(w); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		for _, q := range w.Quotas {
			if q.NominalQuota.Sign() < 0 {
				return fmt.Errorf("%s: %s of %s: %s is negative", w.Name, q.Resource, q.Flavor, q.NominalQuota.String())
			}
		}
	}
	return nil
}

// windowsText are windows in a line.
func windowsText(s *v1alpha1.QueuePolicySpec) string {
	var list []string
	for _, w := range quota(s).Windows {
		zone := w.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		list = append(list, fmt.Sprintf("%s (%s, %s, %s)", w.Name, w.Start, w.Duration, zone))
	}
	return strings.Join(list, ", ")
}
