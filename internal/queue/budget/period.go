package budget

import (
	"fmt"
	"time"
)

// Period is how long a budget lasts: a day, a week from Monday on, or a month, of a calendar.
type Period string

// The periods.
const (
	Day   Period = "Day"
	Week  Period = "Week"
	Month Period = "Month"
)

// Window is one period, in a time zone.
type Window struct {
	Period Period    `json:"period"`
	Zone   string    `json:"timeZone"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
}

// WindowAt is the period in which a time lies. A day on which clocks change has 23 or 25 hours.
func WindowAt(period Period, zone string, at time.Time) (Window, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Window{}, fmt.Errorf("%q is no time zone such as UTC or Europe/Berlin", zone)
	}
	at = at.In(location)
	year, month, day := at.Date()
	days, months := 0, 0
	switch period {
	case Day:
		days = 1
	case Week:
		day -= (int(at.Weekday()) + 6) % 7
		days = 7
	case Month:
		day, months = 1, 1
	default:
		return Window{}, fmt.Errorf("%q is none of Day, Week, Month", period)
	}
	return Window{
		Period: period, Zone: zone,
		From:  time.Date(year, month, day, 0, 0, 0, 0, location),
		Until: time.Date(year, month+time.Month(months), day+days, 0, 0, 0, 0, location),
	}, nil
}

// at is the period of the same kind in which another time lies; an empty one where there is none.
func (w Window) at(other time.Time) Window {
	found, err := WindowAt(w.Period, w.Zone, other)
	if err != nil {
		return Window{Period: w.Period, Zone: w.Zone, From: other, Until: other}
	}
	return found
}

// Same says that two windows are one period.
func (w Window) Same(o Window) bool {
	return w.Period == o.Period && w.Zone == o.Zone && w.From.Equal(o.From)
}

// seconds is how long from one time to another is within the period, in whole seconds, as objects have them. Less than
// nothing, where clocks differ, is nothing.
func (w Window) seconds(from, to time.Time) int64 {
	return max(0, min(to.Unix(), w.Until.Unix())-max(from.Unix(), w.From.Unix()))
}
