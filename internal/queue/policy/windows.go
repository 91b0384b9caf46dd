package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// Schedule is when a window is open.
type Schedule struct {
	start    cron.Schedule
	duration time.Duration
}

// ScheduleOf reads when a window is open.
func ScheduleOf(w *v1alpha1.Window) (Schedule, error) {
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil || w.TimeZone == "Local" {
		return Schedule{}, fmt.Errorf("timeZone: unknown time zone %s", w.TimeZone)
	}
	if strings.Contains(w.Start, "TZ=") {
		return Schedule{}, errors.New("start: say the time zone in timeZone")
	}
	start, err := cron.ParseStandard(w.Start)
	if err != nil {
		return Schedule{}, fmt.Errorf("start: %w", err)
	}
	spec, ok := start.(*cron.SpecSchedule)
	if !ok { // @every counts from when it is asked
		return Schedule{}, fmt.Errorf("start: %s is no time of the day", w.Start)
	}
	spec.Location = zone
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, zone)).IsZero() {
		return Schedule{}, fmt.Errorf("start: %s never comes", w.Start)
	}
	duration, err := parse(string(w.Duration))
	switch {
	case err != nil:
		return Schedule{}, fmt.Errorf("duration: %w", err)
	case duration < time.Minute:
		return Schedule{}, fmt.Errorf("duration: %s is less than a minute", w.Duration)
	}
	return Schedule{spec, duration}, nil
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
