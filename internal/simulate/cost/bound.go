package cost

import "math"

// Bound is what the jobs cost at least: for each the cheapest schedule that ends by its deadline, chosen with the whole
// future known, from all zones and from machines on demand. It pays for every start-up, may go on elsewhere meanwhile, and
// loses no work: it saves just before it leaves. No rule can do better than that, and none that has to save its work now and then, or to try
// before it knows, can do as well.
func Bound(m *Market, jobs []Job, s *Settings) float64 {
	b := newBounds([]*Market{m})
	total := 0.0
	for i := range jobs {
		total += b.least(&jobs[i], []int{jobs[i].Machines}, max(1, s.StartUp))
	}
	return total
}

// BoundOfQueue is that of jobs on all flavors of a queue, as if each had quota at once in all of them.
func BoundOfQueue(flavors []Flavor, jobs []Job, s *Settings) float64 {
	var markets []*Market
	for _, f := range flavors {
		markets = append(markets, f.Market)
	}
	b := newBounds(markets)
	total, machines := 0.0, make([]int, len(markets))
	for i := range jobs {
		for k, m := range markets {
			machines[k] = m.machinesFor(jobs[i].Cards)
		}
		total += b.least(&jobs[i], machines, max(1, s.StartUp))
	}
	return total
}

// bounds has what the schedules of some markets share. Places are their zones, and of each market machines on demand.
type bounds struct {
	minutes int
	places  []boundPlace
}

type boundPlace struct {
	market    int
	available []int16   // nil: always
	prices    []float64 // of a minute
	sums      []float64 // of minutes before
}

func newBounds(markets []*Market) *bounds {
	b := &bounds{minutes: math.MaxInt}
	for _, m := range markets {
		b.minutes = min(b.minutes, m.Minutes())
	}
	for i, m := range markets {
		onDemand := make([]float64, b.minutes)
		for t := range onDemand {
			onDemand[t] = math.Inf(1)
		}
		for z := range m.Zones {
			spot := make([]float64, b.minutes)
			for t := range spot {
				spot[t], onDemand[t] = m.Zones[z].Spot[t]/60, min(onDemand[t], m.Zones[z].OnDemand[t]/60)
			}
			b.places = append(b.places, boundPlace{market: i, available: m.Zones[z].Available, prices: spot})
		}
		b.places = append(b.places, boundPlace{market: i, prices: onDemand})
	}
	for k := range b.places {
		p := &b.places[k]
		p.sums = make([]float64, b.minutes+1)
		for t := range p.prices {
			p.sums[t+1] = p.sums[t] + p.prices[t]
		}
	}
	return b
}

// until is when machines bought at each minute are lost, for so many machines.
func (p *boundPlace) until(machines, from, to int) []int {
	out := make([]int, to-from+1)
	out[to-from] = to
	for t := to - 1; t >= from; t-- {
		switch {
		case p.available != nil && int(p.available[t]) < machines:
			out[t-from] = t
		default:
			out[t-from] = out[t-from+1]
		}
	}
	return out
}

// least goes backwards in time. run[k][u][w] is the least that w more minutes of work cost from a minute on for a job that
// runs on k; idle[w] likewise for one that has nothing, and arrive[w] for one that goes on elsewhere while machines start
// that it has bought. A purchase leads a start-up ahead, so that many minutes are stored.
// Of each market the job wants so many machines.
func (b *bounds) least(j *Job, machines []int, startUp int) float64 {
	from, to, work := j.Submit, min(j.Deadline, b.minutes), j.Work
	places := len(b.places)
	wanted := func(k int) float64 { return float64(machines[b.places[k].market]) }
	ring := startUp + 1
	run := make([][][]float64, places)
	until := make([][]int, places)
	for k := range run {
		until[k] = b.places[k].until(machines[b.places[k].market], from, to)
		run[k] = make([][]float64, ring)
		for u := range run[k] {
			run[k][u] = infinite(work)
		}
	}
	idle, arrive := infinite(work), infinite(work)
	for t := to - 1; t >= from; t-- {
		least, most := max(1, work-(t-from)), min(work, to-t)
		for w := least; w <= most; w++ {
			arrive[w] = math.Inf(1)
		}
		for k := range places {
			if start := t + startUp; until[k][t-from] >= start && start < to {
				price, ahead := wanted(k)*(b.places[k].sums[start]-b.places[k].sums[t]), run[k][start%ring]
				for w := least; w <= most; w++ {
					idle[w] = min(idle[w], price+ahead[w])
					arrive[w] = min(arrive[w], price+ahead[max(0, w-startUp)])
				}
			}
		}
		for k := range places {
			now, next := run[k][t%ring], run[k][(t+1)%ring]
			if until[k][t-from] == t {
				copy(now[least:most+1], idle[least:most+1])
				continue
			}
			price := wanted(k) * b.places[k].prices[t]
			for w := least; w <= most; w++ {
				now[w] = min(idle[w], price+next[w-1])
			}
			if start := t + startUp; until[k][t-from] >= start {
				price = wanted(k) * (b.places[k].sums[start] - b.places[k].sums[t])
				for w := least; w <= most; w++ {
					now[w] = min(now[w], price+arrive[w])
				}
			}
		}
	}
	return idle[work]
}

// infinite costs for all work but none.
func infinite(work int) []float64 {
	out := make([]float64, work+1)
	for w := 1; w <= work; w++ {
		out[w] = math.Inf(1)
	}
	return out
}
