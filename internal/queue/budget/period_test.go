package budget

import (
	"testing"
	"time"
	_ "time/tzdata" // zones of the tests, wherever they run
)

func TestWindows(t *testing.T) {
	for name, test := range map[string]struct {
		period      Period
		zone, at    string
		from, until string
		hours       int
		wrong       bool
	}{
		"a day":                   {period: Day, zone: "UTC", at: "2026-11-17T13:00:00Z", from: "2026-11-17T00:00:00Z", until: "2026-11-18T00:00:00Z", hours: 24},
		"its first second":        {period: Day, zone: "UTC", at: "2026-11-17T00:00:00Z", from: "2026-11-17T00:00:00Z", until: "2026-11-18T00:00:00Z", hours: 24},
		"a week begins on Monday": {period: Week, zone: "UTC", at: "2026-11-22T23:59:59Z", from: "2026-11-16T00:00:00Z", until: "2026-11-23T00:00:00Z", hours: 168},
		"on Monday":               {period: Week, zone: "UTC", at: "2026-11-23T00:00:00Z", from: "2026-11-23T00:00:00Z", until: "2026-11-30T00:00:00Z", hours: 168},
		"a month":                 {period: Month, zone: "UTC", at: "2026-12-31T23:00:00Z", from: "2026-12-01T00:00:00Z", until: "2027-01-01T00:00:00Z", hours: 31 * 24},
		"another zone's day":      {period: Day, zone: "Asia/Tokyo", at: "2026-11-17T16:00:00Z", from: "2026-11-17T15:00:00Z", until: "2026-11-18T15:00:00Z", hours: 24},
		"clocks go forward":       {period: Day, zone: "Europe/Berlin", at: "2026-03-29T12:00:00Z", from: "2026-03-28T23:00:00Z", until: "2026-03-29T22:00:00Z", hours: 23},
		"clocks go back":          {period: Week, zone: "Europe/Berlin", at: "2026-10-25T12:00:00Z", from: "2026-10-18T22:00:00Z", until: "2026-10-25T23:00:00Z", hours: 169},
		"no zone":                 {period: Day, zone: "Mars/Base", at: "2026-11-17T13:00:00Z", wrong: true},
		"wherever it runs":        {period: Day, zone: "Local", at: "2026-11-17T13:00:00Z", wrong: true},
		"no period":               {period: "Year", zone: "UTC", at: "2026-11-17T13:00:00Z", wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, test.at)
			if err != nil {
				t.Fatal(err)
			}
			w, err := WindowAt(test.period, test.zone, at)
			if (err != nil) != test.wrong {
				t.Fatal(err)
			}
			if test.wrong {
				return
			}
			if from, until := w.From.UTC().Format(time.RFC3339), w.Until.UTC().Format(time.RFC3339); from != test.from || until != test.until {
				t.Errorf("%s to %s, want %s to %s", from, until, test.from, test.until)
			}
			if got := w.Until.Sub(w.From); got != time.Duration(test.hours)*time.Hour {
				t.Errorf("%s, want %d hours", got, test.hours)
			}
			if after := w.at(w.Until); !after.From.Equal(w.Until) || !after.Until.After(after.From) {
				t.Errorf("followed by %v", after)
			}
		})
	}
}
