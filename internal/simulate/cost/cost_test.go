package cost_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/simulate/cost"
)

// zone of some minutes: spot at 1 an hour, on demand at 3.
func zone(name string, available ...int16) cost.Zone {
	z := cost.Zone{Place: cloud.Place{Cloud: "aws", Region: "r", Zone: name, InstanceType: "t", Spot: true}, Available: available}
	for range available {
		z.Spot, z.OnDemand = append(z.Spot, 1), append(z.OnDemand, 3)
	}
	return z
}

func market(zones ...cost.Zone) *cost.Market {
	return &cost.Market{Name: "test", Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Machines: 1, GPUs: 1, Zones: zones}
}

func spans(lengths ...int) []int16 {
	var out []int16
	for i, n := range lengths {
		for range n {
			out = append(out, int16(1-i%2))
		}
	}
	return out
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

var settings = cost.Settings{StartUp: 10, Checkpoint: 30}

func TestBoundByHand(t *testing.T) {
	for _, c := range []struct {
		name     string
		zone     []int16
		deadline int
		want     float64 // minutes on spot and three times those on demand
	}{
		{"spot all the time", spans(300), 200, 10 + 60},
		{"spot comes in time", spans(0, 50, 250), 130, 10 + 60},
		{"it comes a minute too late", spans(0, 61, 239), 130, 3*(10+1) + 10 + 59},
		{"it never comes", spans(0, 300), 130, 3 * (10 + 60)},
		{"two pieces, a start-up each", spans(40, 10, 250), 200, 10 + 60},
		{"two pieces with no time for one", spans(40, 10, 250), 90, 30 + 10 + 30 + 10},
		{"spot first, the rest on demand", spans(40, 260), 100, 40 + 3*(10+30)},
	} {
		jobs := []cost.Job{{Work: 60, Deadline: c.deadline, Machines: 1}}
		if got := cost.Bound(market(zone("a", c.zone...)), jobs, &settings) * 60; !near(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRulesByHand(t *testing.T) {
	m := market(zone("a", spans(40, 60, 500)...), zone("b", spans(0, 45, 555)...))
	jobs := []cost.Job{{Work: 60, Deadline: 300, Machines: 1}}
	want := map[string]struct {
		money float64
		late  int
	}{
		"on-demand": {3 * 70, 0},
		// 30 minutes of work are done at a's loss, and saved. b sells from the minute 45 on.
		"spot":                {40 + 10 + 30, 0},
		"spot-else-on-demand": {40 + 3*(10+30), 0},
	}
	for _, rule := range cost.Rules {
		r := cost.Run(m, jobs, rule, &settings)
		if w, ok := want[rule.Name]; ok && (!near(r.Money*60, w.money) || r.Late != w.late || r.Finished != 1) {
			t.Errorf("%s: %+v, want %v", rule.Name, r, w)
		}
	}
}

// A job on demand runs on while spot machines start, is stopped when they are there, loses what it had not saved, and pays for both until
// then. Where they are lost before, it never notices.
func TestMovesByHand(t *testing.T) {
	// The zone sells nothing for a while, in which the job buys on demand. All of it there costs 30.5.
	for name, test := range map[string]struct {
		zone  []int16
		moves int
	}{
		"they come":               {spans(0, 30, 2970), 1},
		"they are lost meanwhile": {spans(0, 46, 5, 2949), 0},
	} {
		jobs := []cost.Job{{Work: 600, Deadline: 700, Machines: 1}}
		r := cost.Run(market(zone("a", test.zone...)), jobs, cost.Elastic, &settings)
		if r.Late > 0 || r.Finished != 1 || r.OnDemand <= 0 || r.Moves != test.moves || (r.Money < 30) != (test.moves > 0) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// drawMarket is zones that go up and down at random.
func drawMarket(t *rapid.T) *cost.Market {
	var zones []cost.Zone
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "zones")] {
		var lengths []int
		for range 20 {
			lengths = append(lengths, rapid.IntRange(0, 200).Draw(t, "span"))
		}
		lengths = append(lengths, 2200)
		available := spans(lengths...)[:2200]
		zones = append(zones, zone(name, available...))
	}
	return market(zones...)
}

// TestElasticIsNeverLateAndNeverBelowTheBound on whatever markets: machines on demand can always be had.
func TestElasticIsNeverLateAndNeverBelowTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMarket(t)
		s := cost.Settings{StartUp: rapid.IntRange(1, 20).Draw(t, "start-up"), Checkpoint: rapid.IntRange(0, 60).Draw(t, "checkpoint"), DeadlineFactor: 1.5, DeadlineExtra: 60}
		jobs, err := cost.Invented(2, m, &s, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		bound := cost.Bound(m, jobs, &s)
		for _, rule := range slices.Concat(cost.Rules, cost.Variants) {
			r := cost.Run(m, jobs, rule, &s)
			if r.Finished == len(jobs) && r.Late == 0 && r.Money < bound-1e-9 {
				t.Fatalf("%s costs %v, at least %v are needed", rule.Name, r.Money, bound)
			}
			if rule.Shared && r.Late > 0 {
				t.Fatalf("late: %+v", r)
			}
			p := &r.Parts
			if sum := p.SpotWork + p.SpotStarts + p.LostWork + p.OnDemandWork + p.OnDemandStarts + p.Second; math.Abs(sum-r.Money) > 1e-6 || p.SpotWork < -1e-9 || p.OnDemandWork < -1e-9 || p.LostWork < -1e-9 {
				t.Fatalf("%v are paid, of that %+v", r.Money, p)
			}
			if r.Moves > len(jobs)*rule.Moves {
				t.Fatalf("moves: %+v", r)
			}
		}
	})
}

func write(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadSeries(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "spot-availability"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "spot-prices.csv", "time,zone,instance_type,spot_usd_hour,on_demand_usd_hour\n"+
		"2023-01-01T00:00:00Z,z1,p3,1,3\n2023-02-15T00:12:00Z,z1,p3,1.5,3\n")
	write(t, folder, "spot-series.csv", "file,kind,cloud,zone,zone_id,instance_type,gpu,gpus_per_instance,nodes_wanted,start_utc\n"+
		"x.csv,availability,aws,us-east-1a,z1,p3,V100,8,4,2023-02-15T00:00:00Z\n"+
		"y.csv,preemption,aws,us-east-1b,z9,r5,,0,1,2023-02-15T00:00:00Z\n")
	write(t, folder, "spot-availability/x.csv", "seconds,available\n600,4\n795,0\n990,2\n")
	markets, without, err := cost.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(markets) != 1 || len(without) != 1 || without[0] != "aws-2023-02-15-r5-kept" {
		t.Fatalf("%v, without prices %v", markets, without)
	}
	m := markets[0]
	z := m.Zones[0]
	if m.Name != "aws-2023-02-15-p3-x4" || m.Minutes() != 7 || m.Machines != 4 || m.GPUs != 8 || z.Region != "us-east-1" || !m.Start.Equal(time.Date(2023, 2, 15, 0, 10, 0, 0, time.UTC)) {
		t.Errorf("%+v", m)
	}
	for i, want := range []int16{4, 4, 4, 0, 0, 0, 2} {
		if z.Available[i] != want {
			t.Errorf("minute %d: %d, want %d", i, z.Available[i], want)
		}
	}
	if z.Spot[1] != 1 || z.Spot[2] != 1.5 || z.OnDemand[6] != 3 {
		t.Errorf("prices %v", z.Spot)
	}
	write(t, folder, "spot-availability/x.csv", "seconds,available\n600,four\n")
	if _, _, err := cost.Read(folder); err == nil {
		t.Error("a series that is no series was read")
	}
}

// Zones that were watched from different times on are compared at the same minutes: those that all of them have.
func TestReadSeriesThatBeginApart(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "spot-availability"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "spot-prices.csv", "time,zone,instance_type,spot_usd_hour,on_demand_usd_hour\n"+
		"2023-01-01T00:00:00Z,z1,p3,1,3\n2023-01-01T00:00:00Z,z2,p3,2,3\n2023-02-15T00:13:00Z,z2,p3,2.5,3\n")
	write(t, folder, "spot-series.csv", "file,kind,cloud,zone,zone_id,instance_type,gpu,gpus_per_instance,nodes_wanted,start_utc\n"+
		"a.csv,availability,aws,us-east-1a,z1,p3,V100,8,1,2023-02-15T00:00:00Z\n"+
		"b.csv,availability,aws,us-east-1b,z2,p3,V100,8,1,2023-02-15T00:05:00Z\n"+
		"c.csv,availability,aws,us-east-1a,z1,p3,V100,8,2,2023-02-15T00:00:00Z\n"+
		"d.csv,availability,aws,us-east-1b,z2,p3,V100,8,2,2023-02-15T09:00:00Z\n")
	write(t, folder, "spot-availability/a.csv", "seconds,available\n0,9\n600,5\n720,6\n780,7\n840,8\n") // minutes 0 to 14
	write(t, folder, "spot-availability/b.csv", "seconds,available\n360,1\n420,2\n480,3\n")             // minutes 11 to 13
	write(t, folder, "spot-availability/c.csv", "seconds,available\n0,9\n60,9\n")
	write(t, folder, "spot-availability/d.csv", "seconds,available\n0,9\n60,9\n")
	markets, without, err := cost.Read(folder)
	if err != nil || len(markets) != 1 || !slices.Equal(without, []string{"aws-2023-02-15-p3-x2"}) {
		t.Fatalf("%v, without %v, %v", markets, without, err)
	}
	m := markets[0]
	if !m.Start.Equal(time.Date(2023, 2, 15, 0, 11, 0, 0, time.UTC)) || m.Minutes() != 3 {
		t.Fatalf("%v, %d minutes", m.Start, m.Minutes())
	}
	a, b := m.Zones[0], m.Zones[1]
	if !slices.Equal(a.Available, []int16{5, 6, 7}) || !slices.Equal(b.Available, []int16{1, 2, 3}) || !slices.Equal(b.Spot, []float64{2, 2, 2.5}) || len(a.Spot) != 3 || len(a.OnDemand) != 3 {
		t.Errorf("%+v, %+v", a, b)
	}
}

// A job that waits is looked at again as another one has bought where nothing was sold, and not only when its time has come: in a cluster the status of the
// CloudOffer changes, of which all checks hear.
func TestJobsAreLookedAtAgainAsAPlaceSells(t *testing.T) {
	m := market(zone("a", spans(0, 20, 280)...))
	asked := map[time.Duration][]int{}
	rule := cost.Rule{Shared: true, Choose: func(j *cloud.Job, offers []cloud.Offer, _ *cloud.Learned, now time.Time) cloud.Choice {
		at := int(now.Sub(m.Start).Minutes())
		asked[j.Left] = append(asked[j.Left], at)
		if j.Left == 2*time.Hour && (at == 0 || at == 25) { // it is refused at first
			return cloud.Choice{Action: cloud.Buy, Offer: &offers[0]}
		}
		until := now.Add(time.Hour)
		if buys := m.Start.Add(25 * time.Minute); j.Left == 2*time.Hour && at < 25 {
			until = buys
		}
		return cloud.Choice{Action: cloud.Wait, Until: until}
	}}
	jobs := []cost.Job{{Work: 60, Deadline: 300, Machines: 1}, {Work: 120, Deadline: 300, Machines: 1}, {Work: 180, Deadline: 300, Machines: 1}}
	cost.Run(m, jobs, rule, &settings)
	for left, want := range map[time.Duration][]int{time.Hour: {0, 10, 20, 26, 36}, 2 * time.Hour: {0, 1, 11, 21, 25}, 3 * time.Hour: {0, 10, 20, 25, 35}} {
		if got := asked[left]; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("one of %s was looked at in minutes %v, want %v", left, got, want)
		}
	}
}
