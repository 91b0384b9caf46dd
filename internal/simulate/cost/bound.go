package cost

import "math"

// Bound is what the jobs cost at least: for each the cheapest schedule that ends by its deadline, chosen with the whole
// future known, from all zones and from machines on demand. It pays for every start-up, may go on elsewhere meanwhile, and
// loses no work: it saves just before it leaves. No rule can do better than that, and none that has to save its work now and then, or to try
// before it knows, can do as well.
func Bound(m *Market, jobs []Job, s *Settings) float64 {
	b := newBounds(m)
	total := 0.0
	for i := range jobs {
		total += b.least(&jobs[i], max(1, s.StartUp))
	}
	return total
}

// bounds has what the schedules of one market share.
type bounds struct {
	m      *Market
	prices [][]float64 // of a minute, by zone; the last is on demand
	sums   [][]float64 // of minutes before
}

func newBounds(m *Market) *bounds {
	b := &bounds{m: m}
	n := m.Minutes()
	cheapest := make([]float64, n)
	for t := range n {
		cheapest[t] = math.Inf(1)
		for i := range m.Zones {
			cheapest[t] = min(cheapest[t], m.Zones[i].OnDemand[t]/60)
		}
	}
	for i := range m.Zones {
		perMinute := make([]float64, n)
		for t := range n {
			perMinute[t] = m.Zones[i].Spot[t] / 60
		}
		b.prices = append(b.prices, perMinute)
	}
	b.prices = append(b.prices, cheapest)
	for _, p := range b.prices {
		sum := make([]float64, n+1)
		for t := range n {
			sum[t+1] = sum[t] + p[t]
		}
		b.sums = append(b.sums, sum)
	}
	return b
}

// until is when machines bought at each minute are lost, for so many machines.
func (b *bounds) until(zone, machines, from, to int) []int {
	out := make([]int, to-from+1)
	out[to-from] = to
	for t := to - 1; t >= from; t-- {
		switch {
		case zone < len(b.m.Zones) && int(b.m.Zones[zone].Available[t]) < machines:
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
func (b *bounds) least(j *Job, startUp int) float64 {
	from, to, work := j.Submit, min(j.Deadline, b.m.Minutes()), j.Work
	places := len(b.prices)
	ring := startUp + 1
	run := make([][][]float64, places)
	until := make([][]int, places)
	for k := range run {
		until[k] = b.until(k, j.Machines, from, to)
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
				price, ahead := b.sums[k][start]-b.sums[k][t], run[k][start%ring]
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
			price := b.prices[k][t]
			for w := least; w <= most; w++ {
				now[w] = min(idle[w], price+next[w-1])
			}
			if start := t + startUp; until[k][t-from] >= start {
				price = b.sums[k][start] - b.sums[k][t]
				for w := least; w <= most; w++ {
					now[w] = min(now[w], price+arrive[w])
				}
			}
		}
	}
	return idle[work] * float64(j.Machines)
}

// infinite costs for all work but none.
func infinite(work int) []float64 {
	out := make([]float64, work+1)
	for w := 1; w <= work; w++ {
		out[w] = math.Inf(1)
	}
	return out
}
