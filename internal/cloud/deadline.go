package cloud

import "math"

// What slack is worth. Slack is the time to the deadline less the run time left; a job with slack enough to start
// machines on demand will not be late. Running spends none of it; waiting, starting up and losing work do.
//
// Spot machines are up or down: lost at one rate, back at another. A job is in one of three states: it has nothing, runs
// on spot, or runs on demand. The least expected cost from each, for every slack and run time left, is computed from
// small slack up: each step spends slack, or run time at the same slack.

// market is what a job can buy, in hours and US dollars an hour for all its machines.
type market struct {
	spot, onDemand           float64 // price
	fixedSpot, fixedOnDemand float64 // what each start costs beside
	startSpot, startOnDemand float64
	back                     float64 // rate at which spot machines come back
	fresh                    float64 // chance that machines of a place that just came back last until work was saved
	first                    float64 // the same of the machines that can be bought now
	freshStart, firstStart   float64 // chances that they last until they have started
	loss                     float64 // rate at which machines that lasted so long are lost
	another                  float64 // chance that another place sells spot machines when one is lost
	save                     float64 // the most work that a loss costs
	delay                    float64 // what an hour is worth
	stays                    bool    // it does not go back from machines on demand
	stop                     stop    // to go back from those
}

// stop is what it costs a job to be stopped: work that it does again, as expected, and slack that this takes at worst.
type stop struct{ again, reserve float64 }

// cells along each side of the table, at most.
const mostCells = 120

// forecast is the table: least expected cost by slack (rows) and run time left (columns).
type forecast struct {
	market
	step       float64 // hours
	rows, cols int
	nothing    []float64 // it has nothing, and no place sells spot machines
	open       []float64 // it has nothing, and one does
	running    []float64 // on spot
	paying     []float64 // on demand
}

// newForecast computes the table for slack and run times left up to these.
func newForecast(m market, slack, left float64) *forecast {
	f := &forecast{market: m}
	f.step = max(min(m.startSpot, m.startOnDemand), 1.0/60, max(slack, left+m.save)/mostCells)
	// A start-up spends at least a row, so that rows need earlier ones only. What it costs is exact.
	f.rows, f.cols = int(max(0, slack)/f.step)+2, int((left+m.save)/f.step)+2
	size := f.rows * f.cols
	all := make([]float64, 4*size)
	f.nothing, f.open, f.running, f.paying = all[:size], all[size:2*size], all[2*size:3*size], all[3*size:]
	back, lost := -math.Expm1(-m.back*f.step), -math.Expm1(-m.loss*f.step)
	for i := range f.rows {
		f.fillNothing(i, back)
		f.fillRunning(i, lost)
		f.fillPaying(i, back)
	}
	return f
}

func (f *forecast) fillNothing(i int, back float64) {
	for j := 1; j < f.cols; j++ {
		slack, left := float64(i)*f.step, float64(j)*f.step
		at := i*f.cols + j
		f.nothing[at] = f.buy(slack, left)
		if slack-f.step >= f.startOnDemand {
			f.nothing[at] = min(f.nothing[at], f.delay*f.step+(1-back)*f.nothing[at-f.cols]+back*f.open[at-f.cols])
		}
		f.open[at] = min(f.nothing[at], f.move(slack, left))
	}
}

func (f *forecast) fillPaying(i int, back float64) {
	for j := 1; j < f.cols; j++ {
		at := i*f.cols + j
		next := f.paying[at-1]
		f.paying[at] = (f.onDemand+f.delay)*f.step + (1-back)*next + back*min(next, f.goBack(f.fresh, f.freshStart, f.startSpot, f.stop, float64(i)*f.step, float64(j-1)*f.step))
	}
}

func (f *forecast) fillRunning(i int, lost float64) {
	slack := float64(i) * f.step
	for j := 1; j < f.cols; j++ {
		at := i*f.cols + j
		if slack < f.startOnDemand+f.save {
			f.running[at] = f.buy(slack, float64(j)*f.step)
			continue
		}
		left := float64(j-1)*f.step + f.save/2
		after := (1-f.another)*f.at(f.nothing, slack-f.save/2, left) + f.another*f.at(f.open, slack-f.save/2, left)
		f.running[at] = (f.spot+f.delay)*f.step + (1-lost)*f.running[at-1] + lost*after
	}
}

// buy machines on demand now.
func (f *forecast) buy(slack, left float64) float64 {
	return f.fixedOnDemand + (f.onDemand+f.delay)*f.startOnDemand + f.at(f.paying, slack-max(f.startOnDemand, f.step), left)
}

// move to spot machines of a place that just came back.
func (f *forecast) move(slack, left float64) float64 { return f.moveTo(f.fresh, slack, left) }

// moveTo spot machines, of which a chance is known that they last until work was saved. Otherwise they are lost half-way.
// Not where the loss of all unsaved work would make the job late.
func (f *forecast) moveTo(chance, slack, left float64) float64 {
	if slack-f.startSpot < f.startOnDemand+f.save {
		return math.Inf(1)
	}
	price, until := f.spot+f.delay, f.startSpot+f.save
	well := price*until + f.at(f.running, slack-max(f.startSpot, f.step), left-f.save)
	lost := price*until/2 + f.at(f.nothing, slack-max(until/2, f.step), left)
	return f.fixedSpot + chance*well + (1-chance)*lost
}

// goBack to spot machines from those on demand, that take some hours to start. The job goes on until then, so that the start costs money and
// no slack; if they are lost before, it stays. Then it may have to do some work again.
func (f *forecast) goBack(chance, started, start float64, by stop, slack, left float64) float64 {
	if f.stays || started <= 0 || slack-by.reserve < f.startOnDemand+f.save {
		return math.Inf(1)
	}
	after := max(0, left-start)
	both := f.fixedSpot + (f.spot+f.onDemand+f.delay)*min(left, start)
	price, there, slackThere := f.spot+f.delay, after+by.again, slack-by.again
	well := price*min(there, f.save) + f.at(f.running, slackThere, there-f.save)
	lost := price*min(there, f.save)/2 + f.at(f.nothing, slackThere-f.save/2, there)
	return both + chance*well + (started-chance)*lost + (1-started)*f.at(f.paying, slack, after)
}

// wait for a step.
func (f *forecast) wait(slack, left float64) float64 {
	if slack-f.step < f.startOnDemand {
		return math.Inf(1)
	}
	back := -math.Expm1(-f.back * f.step)
	return f.delay*f.step + (1-back)*f.at(f.nothing, slack-f.step, left) + back*f.at(f.open, slack-f.step, left)
}

// at is the value between four cells of a table.
func (f *forecast) at(table []float64, slack, left float64) float64 {
	i, u := cell(slack/f.step, f.rows)
	j, v := cell(left/f.step, f.cols)
	at := i*f.cols + j
	value := (1 - v) * table[at]
	if v > 0 {
		value += v * table[at+1]
	}
	if u == 0 {
		return value
	}
	above := (1 - v) * table[at+f.cols]
	if v > 0 {
		above += v * table[at+f.cols+1]
	}
	return (1-u)*value + u*above
}

// cell is the place below a number, and how far above it that is.
func cell(x float64, n int) (int, float64) {
	switch {
	case x <= 0:
		return 0, 0
	case x >= float64(n-1):
		return n - 1, 0
	}
	i := int(x)
	return i, x - float64(i)
}
