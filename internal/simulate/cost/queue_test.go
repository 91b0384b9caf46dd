package cost

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// sells is a market with one zone that sells machines in some minutes, on spot at a price and on demand at three times that.
func sells(name string, gpus int, price float64, available []int16) *Market {
	z := Zone{Place: cloud.Place{Cloud: "aws", Region: "r", Zone: "z", InstanceType: name, Spot: true}, Available: available}
	for range available {
		z.Spot, z.OnDemand = append(z.Spot, price), append(z.OnDemand, 3*price)
	}
	return &Market{Name: name, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), GPUs: gpus, Machines: 1, Zones: []Zone{z}}
}

// times in minutes in which machines are sold and are not, in turns.
func times(lengths ...int) (out []int16) {
	for i, n := range lengths {
		for range n {
			out = append(out, int16(100*(1-i%2)))
		}
	}
	return out
}

var ofTests = Settings{StartUp: 10, Checkpoint: 30}

// The engine takes the flavor that is cheapest for a job, by whole machines, then the one that has quota left; without prices it takes them as
// they are written.
func TestTheEngineChoosesTheFlavor(t *testing.T) {
	flavors := []Flavor{{sells("small", 1, 2, times(1000)), 4}, {sells("large", 8, 8, times(1000)), 8}}
	job := func(n, submit, cards int) Job {
		return Job{Name: fmt.Sprint("job-", n), Submit: submit, Work: 60, Deadline: submit + 800, Cards: cards}
	}
	for _, c := range []struct {
		name   string
		priced bool
		jobs   []Job
		want   float64 // dollars, on spot for 70 minutes each
	}{
		{"one card is cheapest on a small machine", true, []Job{job(0, 0, 1)}, 2},
		{"and as written", false, []Job{job(0, 0, 1)}, 2},
		{"three cards are cheapest on three small ones", true, []Job{job(0, 0, 3)}, 6},
		{"six cards fit on no four small ones", true, []Job{job(0, 0, 6)}, 8},
		{"of two that want four each, the second has to take a large one", true, []Job{job(0, 0, 4), job(1, 0, 4)}, 8 + 8},
		{"of two by the same name each is a job of its own", true, []Job{job(0, 0, 1), job(0, 5, 1)}, 2 + 2},
		{"one that comes later finds the quota free again", true, []Job{job(0, 0, 1), job(1, 100, 1)}, 2 + 2},
	} {
		r, err := RunQueue(flavors, c.jobs, QueueRule{"r", Elastic, c.priced}, &ofTests)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Money / 70 * 60; r.Finished != len(c.jobs) || r.Late != 0 || got < c.want-1e-6 || got > c.want+1e-6 {
			t.Errorf("%s: %v, want %v: %+v", c.name, got, c.want, r)
		}
	}
	dear := []Flavor{{sells("dear", 1, 5, times(1000)), 4}, {sells("cheap", 1, 2, times(1000)), 4}}
	one := []Job{job(0, 0, 1)}
	written, err1 := RunQueue(dear, one, QueueRules[0], &ofTests)
	priced, err2 := RunQueue(dear, one, QueueRules[1], &ofTests)
	if err1 != nil || err2 != nil || written.Money < 2*priced.Money {
		t.Errorf("as written %+v, and by prices %+v, %v %v", written, priced, err1, err2)
	}
}

// Who loses machines of a flavor that sells none now goes to another one, and so does the next job, without a try.
func TestAStockOutSendsJobsToAnotherFlavor(t *testing.T) {
	flavors := []Flavor{{sells("gone", 1, 2, times(40, 2960)), 8}, {sells("there", 1, 2.5, times(3000)), 8}}
	jobs := []Job{
		{Name: "a", Submit: 0, Work: 300, Deadline: 2500, Cards: 1},
		{Name: "b", Submit: 41, Work: 300, Deadline: 2500, Cards: 1},
	}
	r, err := RunQueue(flavors, jobs, QueueRules[1], &ofTests)
	if err != nil || r.OnDemand > 0 || r.Finished != 2 || r.Losses != 1 || r.Tries > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func drawFlavors(t *rapid.T) []Flavor {
	var flavors []Flavor
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "flavors")] {
		var lengths []int
		for range 8 {
			lengths = append(lengths, rapid.IntRange(0, 200).Draw(t, "span"))
		}
		available := times(append(lengths, 1200)...)[:1200]
		m := sells(name, rapid.SampledFrom([]int{1, 4}).Draw(t, "size"), float64(rapid.IntRange(1, 5).Draw(t, "price")), available)
		flavors = append(flavors, Flavor{m, int64(rapid.IntRange(4, 16).Draw(t, "quota"))})
	}
	return flavors
}

// Whatever flavors and quotas there are: nobody pays less than the bound, quota is never exceeded, and an engine that is made anew at any minute,
// from what jobs and prices are then, decides the same.
func TestARestartOfTheEngineChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flavors := drawFlavors(t)
		var jobs []Job
		for i := range rapid.IntRange(1, 5).Draw(t, "jobs") {
			work, submit := rapid.IntRange(30, 200).Draw(t, "work"), rapid.IntRange(0, 300).Draw(t, "submit")
			jobs = append(jobs, Job{Name: fmt.Sprint("job-", i), Submit: submit, Work: work, Deadline: submit + 2*work + 200, Cards: rapid.IntRange(1, 4).Draw(t, "cards")})
		}
		priced := rapid.Bool().Draw(t, "priced")
		run := func(restarts bool) *Result {
			q, err := newQueueRun(flavors, jobs, ElasticReporting, priced, &ofTests)
			if err != nil {
				t.Fatal(err)
			}
			for m := range q.minutes() {
				if restarts && m%rapid.IntRange(1, 90).Draw(t, "minutes between restarts") == 0 {
					q.newEngine()
				}
				if err := q.minute(m); err != nil {
					t.Fatal(err)
				}
				q.withinQuota(t)
			}
			return q.out
		}
		once, again := run(false), run(true)
		if !reflect.DeepEqual(once, again) {
			t.Fatalf("%+v, and with restarts %+v", once, again)
		}
		if bound := BoundOfQueue(flavors, jobs, &ofTests); once.Finished == len(jobs) && once.Late == 0 && once.Money < bound-1e-9 {
			t.Fatalf("%v are paid, and %v are needed", once.Money, bound)
		}
	})
}

func (q *queueRun) withinQuota(t *rapid.T) {
	used := make([]int64, len(q.flavors))
	for _, j := range q.jobs {
		if j.admission != nil {
			used[j.at] += int64(j.Cards)
		} else if j.on > 0 && !j.done {
			t.Fatalf("%s has machines and no quota", j.Name)
		}
	}
	for i := range used {
		if used[i] > q.flavors[i].Cards {
			t.Fatalf("%d cards of %d", used[i], q.flavors[i].Cards)
		}
	}
}
