package cost

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// Zone is one place with its spot machines, minute by minute.
type Zone struct {
	cloud.Place
	Available []int16 // how many machines could be had
	Spot      []float64
	OnDemand  []float64
}

// Market is zones that sell the same machine over the same time.
type Market struct {
	Name     string
	Start    time.Time
	GPU      string
	GPUs     int // of a machine
	Machines int // that were asked for in the series
	Zones    []Zone
}

// Minutes that the market was watched.
func (m *Market) Minutes() int {
	n := math.MaxInt
	for i := range m.Zones {
		n = min(n, len(m.Zones[i].Available))
	}
	if len(m.Zones) == 0 {
		return 0
	}
	return n
}

// Share of the time in which some zone sells so many machines.
func (m *Market) Share(machines int) float64 {
	n, up := m.Minutes(), 0
	for t := range n {
		if slices.ContainsFunc(m.Zones, func(z Zone) bool { return int(z.Available[t]) >= machines }) {
			up++
		}
	}
	return float64(up) / float64(max(1, n))
}

// Only is the market with some of its zones.
func (m *Market) Only(name string, which func(*Zone) bool) *Market {
	out := *m
	out.Name, out.Zones = name, nil
	for i := range m.Zones {
		if which(&m.Zones[i]) {
			out.Zones = append(out.Zones, m.Zones[i])
		}
	}
	return &out
}

// MeanShare of the time in which the zone sells a machine.
func (z *Zone) MeanShare() float64 {
	up := 0
	for _, a := range z.Available {
		if a > 0 {
			up++
		}
	}
	return float64(up) / float64(max(1, len(z.Available)))
}

// Read reads every market of a folder: spot-series.csv names the series in spot-availability, spot-prices.csv has the
// prices. Markets of which no price is known are left out, by name, and those whose zones were never watched at the same time.
func Read(folder string) (markets []*Market, without []string, err error) {
	prices, err := readPrices(filepath.Join(folder, "spot-prices.csv"))
	if err != nil {
		return nil, nil, err
	}
	byName, starts := map[string]*Market{}, map[*Market][]time.Time{} // of zones
	err = eachRow(filepath.Join(folder, "spot-series.csv"), func(row map[string]string) error {
		z, m, err := readZone(folder, row, prices)
		if err != nil {
			return err
		}
		if z == nil {
			if !slices.Contains(without, m.Name) {
				without = append(without, m.Name)
			}
			return nil
		}
		known := byName[m.Name]
		if known == nil {
			byName[m.Name], known = m, m
			markets = append(markets, m)
		}
		known.Zones, starts[known] = append(known.Zones, *z), append(starts[known], m.Start)
		return nil
	})
	markets = slices.DeleteFunc(markets, func(m *Market) bool {
		if m.align(starts[m]) {
			return false
		}
		without = append(without, m.Name)
		return true
	})
	return markets, without, err
}

// align has all zones begin when the last of them does, and end when the first does: a minute is the same one in each. It says whether they
// have one in common.
func (m *Market) align(starts []time.Time) bool {
	m.Start = slices.MaxFunc(starts, time.Time.Compare)
	minutes := math.MaxInt
	for i := range m.Zones {
		z := &m.Zones[i]
		late := min(len(z.Available), int(m.Start.Sub(starts[i])/time.Minute))
		z.Available, z.Spot, z.OnDemand = z.Available[late:], z.Spot[late:], z.OnDemand[late:]
		minutes = min(minutes, len(z.Available))
	}
	for i := range m.Zones {
		z := &m.Zones[i]
		z.Available, z.Spot, z.OnDemand = z.Available[:minutes], z.Spot[:minutes], z.OnDemand[:minutes]
	}
	return minutes > 0
}

// readZone reads the series that a row names; nil without prices.
func readZone(folder string, row map[string]string, prices prices) (*Zone, *Market, error) {
	start, err := time.Parse(time.RFC3339, row["start_utc"])
	if err != nil {
		return nil, nil, err
	}
	m := &Market{GPU: row["gpu"], GPUs: 1}
	m.Machines, _ = strconv.Atoi(row["nodes_wanted"])
	m.GPUs, _ = strconv.Atoi(row["gpus_per_instance"])
	m.Machines, m.GPUs = max(1, m.Machines), max(1, m.GPUs)
	m.Name = fmt.Sprintf("%s-%s-%s", row["cloud"], start.Format(time.DateOnly), row["instance_type"])
	if m.Machines > 1 {
		m.Name += fmt.Sprintf("-x%d", m.Machines)
	}
	if row["kind"] == "preemption" {
		m.Name += "-kept"
	}
	zone := row["zone"]
	z := &Zone{Place: cloud.Place{Cloud: row["cloud"], Region: strings.TrimRight(zone, "abcdef"), Zone: zone, InstanceType: row["instance_type"], Spot: true}}
	changes := prices[priceKey{row["zone_id"], row["instance_type"]}]
	if len(changes) == 0 {
		return nil, m, nil
	}
	first, available, err := readAvailability(filepath.Join(folder, "spot-availability", row["file"]))
	if err != nil {
		return nil, nil, err
	}
	z.Available = available
	m.Start = start.Add(time.Duration(first) * time.Minute)
	z.Spot, z.OnDemand = changes.over(m.Start, len(available))
	return z, m, nil
}

// readAvailability reads a series as minutes: each tick holds until the next.
func readAvailability(path string) (first int, minutes []int16, err error) {
	last, value := -1, int16(0)
	err = eachRow(path, func(row map[string]string) error {
		seconds, err1 := strconv.Atoi(row["seconds"])
		available, err2 := strconv.ParseInt(row["available"], 10, 16)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if seconds < 0 || available < 0 {
			return fmt.Errorf("%d machines at second %d", available, seconds)
		}
		at := seconds / 60
		if last < 0 {
			first, last = at, at
		}
		if at < last || at-first > 10*365*24*60 {
			return fmt.Errorf("second %d is out of order", seconds)
		}
		for ; last < at; last++ {
			minutes = append(minutes, value)
		}
		value = int16(available)
		return nil
	})
	return first, append(minutes, value), err
}

type priceKey struct{ zone, instance string }

type priceChange struct {
	at             time.Time
	spot, onDemand float64 // 0: not known
}

type priceSeries []priceChange

type prices map[priceKey]priceSeries

func readPrices(path string) (prices, error) {
	out := prices{}
	err := eachRow(path, func(row map[string]string) error {
		at, err := time.Parse(time.RFC3339, row["time"])
		if err != nil {
			return err
		}
		c := priceChange{at: at}
		c.spot, _ = strconv.ParseFloat(row["spot_usd_hour"], 64)
		c.onDemand, _ = strconv.ParseFloat(row["on_demand_usd_hour"], 64)
		if c.spot <= 0 || c.onDemand <= 0 {
			return nil // no longer offered; whether it can be had is said by availability
		}
		key := priceKey{row["zone"], row["instance_type"]}
		out[key] = append(out[key], c)
		return nil
	})
	return out, err
}

// over are prices by the minute; before the first one that is known, it is that.
func (s priceSeries) over(start time.Time, minutes int) (spot, onDemand []float64) {
	next := 0
	for t := range minutes {
		now := start.Add(time.Duration(t) * time.Minute)
		for next+1 < len(s) && !s[next+1].at.After(now) {
			next++
		}
		spot, onDemand = append(spot, s[next].spot), append(onDemand, s[next].onDemand)
	}
	return spot, onDemand
}

// eachRow reads a CSV file with a header.
func eachRow(path string, each func(map[string]string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	header, err := r.Read()
	if err != nil {
		return fmt.Errorf("%s: line 1: %w", path, err)
	}
	row := make(map[string]string, len(header))
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for i, name := range header {
			row[name] = fields[i]
		}
		if err := each(row); err != nil {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("%s: line %d: %w", path, line, err)
		}
	}
}
