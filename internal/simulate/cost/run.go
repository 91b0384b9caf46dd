package cost

import (
	"math"
	"time"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// Result is what became of the jobs under one rule.
type Result struct {
	Rule     string  `json:"rule"`
	Jobs     int     `json:"jobs"`
	Finished int     `json:"finished"`
	Late     int     `json:"late"` // finished after their deadline, or not at all
	Money    float64 `json:"money"`
	OnDemand float64 `json:"onDemandHours"` // machine-hours
	Spot     float64 `json:"spotHours"`
	Losses   int     `json:"losses"`
	Tries    int     `json:"failedTries"`
	Bought   int     `json:"purchases"`
	Moves    int     `json:"moves,omitempty"` // of jobs that were stopped to go back to spot
	Parts    Parts   `json:"parts"`           // of the money
}

// Parts of the money, by what it was paid for.
type Parts struct {
	SpotWork       float64 `json:"spotWork"` // that was not lost
	SpotStarts     float64 `json:"spotStarts"`
	LostWork       float64 `json:"lostWork"` // with spot machines, or by a stop
	OnDemandWork   float64 `json:"onDemandWork"`
	OnDemandStarts float64 `json:"onDemandStarts"`
	Second         float64 `json:"secondPurchases"` // of spot machines, while a job runs on demand
}

// PerJob is the money for each job that finished.
func (r *Result) PerJob() float64 { return r.Money / float64(max(1, r.Finished)) }

// Run lets a rule decide for all jobs.
func Run(m *Market, jobs []Job, rule Rule, s *Settings) *Result {
	w := &run{m: m, rule: rule, s: s, shared: &cloud.Learned{}, out: &Result{Rule: rule.Name, Jobs: len(jobs)}}
	for i := range jobs {
		w.jobs = append(w.jobs, &runningJob{Job: &jobs[i], learned: w.shared})
		if !rule.Shared {
			w.jobs[i].learned = &cloud.Learned{}
		}
	}
	for t := range m.Minutes() {
		w.minute(t)
	}
	for _, j := range w.jobs {
		if !j.done {
			w.out.Late++
		}
	}
	return w.out
}

type run struct {
	m      *Market
	rule   Rule
	s      *Settings
	jobs   []*runningJob
	shared *cloud.Learned
	offers []cloud.Offer // spot offers of zones in order, then those on demand
	now    time.Time
	t      int
	opened int // how often a place sold again
	out    *Result
}

type runningJob struct {
	*Job
	learned           *cloud.Learned
	saved, unsaved    int // minutes
	unsavedCost       float64
	savedAt, reported int // when it last saved its work, and when as far as it was reported; 0: never
	on                int // index of the offer, plus 1; 0: none
	starting          int // minutes until it runs
	ran               int // minutes on the machines that it has
	next              int // index of the offer it moves to, plus 1, once its machines have started; 0: none
	nextIn            int // minutes until then; less than 0: since
	look              int // when to ask again
	opened            int // the same when the rule was asked last
	moves             int // how often it was stopped to go elsewhere
	done              bool
}

func (w *run) minute(t int) {
	w.begin(t)
	for _, j := range w.jobs {
		if j.done || t < j.Submit {
			continue
		}
		w.checkLoss(j)
		w.step(j)
	}
}

// begin a minute.
func (w *run) begin(t int) {
	w.t, w.now = t, w.m.Start.Add(minutes(t))
	w.setOffers()
}

// step lets a minute pass for a job. False: no place sells it machines.
func (w *run) step(j *runningJob) (sold bool) {
	w.report(j)
	sold = w.t < j.look && !w.requeued(j) || w.ask(j)
	w.pass(j)
	return sold
}

// requeued says that a job, which waits or runs, is looked at again since another one has bought where nothing was sold: its check is, as the status of
// the CloudOffer changes.
func (w *run) requeued(j *runningJob) bool {
	return w.rule.Shared && j.opened != w.opened && j.starting == 0 && (j.next == 0 || j.nextIn <= 0)
}

// report has a job say that it has saved its work, a minute later. The rule is asked anew then, as the check is.
func (w *run) report(j *runningJob) {
	if !w.rule.Reports || j.reported == j.savedAt || j.savedAt >= w.t {
		return
	}
	if j.reported = j.savedAt; j.next == 0 || j.nextIn <= 0 {
		j.look = min(j.look, w.t)
	}
}

// setOffers makes offers with the prices of this minute, where they changed.
func (w *run) setOffers() {
	zones := w.m.Zones
	if len(w.offers) > 0 {
		same := true
		for i := range zones {
			same = same && zones[i].Spot[w.t] == w.offers[i].Price && zones[i].OnDemand[w.t] == w.offers[len(zones)+i].Price
		}
		if same {
			return
		}
	}
	w.offers = make([]cloud.Offer, 2*len(zones))
	for i := range zones {
		w.offers[i] = cloud.Offer{Place: zones[i].Place, GPUs: float64(w.m.GPUs), Price: zones[i].Spot[w.t]}
		onDemand := zones[i].Place
		onDemand.Spot = false
		w.offers[len(zones)+i] = cloud.Offer{Place: onDemand, GPUs: float64(w.m.GPUs), Price: zones[i].OnDemand[w.t]}
	}
}

func (w *run) available(offer int, machines int) bool {
	return offer >= len(w.m.Zones) || int(w.m.Zones[offer].Available[w.t]) >= machines
}

// checkLoss takes machines away that can no longer be had.
func (w *run) checkLoss(j *runningJob) {
	if j.next > 0 && !w.available(j.next-1, j.Machines) {
		j.learned.Lost(w.offers[j.next-1].Place, j.Machines, w.now)
		j.next, j.look = 0, w.t
		w.out.Losses++
	}
	if j.on == 0 || j.on > len(w.m.Zones) {
		return
	}
	place := w.m.Zones[j.on-1].Place
	if w.available(j.on-1, j.Machines) {
		if w.t%10 == 0 {
			j.learned.Running(place, w.now)
		}
		return
	}
	j.learned.Lost(place, j.Machines, w.now)
	w.loseWork(j, &w.out.Parts.SpotWork)
	j.on, j.starting, j.unsaved, j.ran, j.look = 0, 0, 0, 0, w.t
	w.out.Losses++
}

// ask the rule, and do what it says: at most one try to buy in a minute. False: no place sells.
func (w *run) ask(j *runningJob) (sold bool) {
	j.opened = w.opened
	job := w.job(j)
	if j.on > 0 {
		if job = w.restarting(j, job); job == nil {
			j.next = 0
			return true
		}
		if j.next > 0 {
			w.arrive(j, job)
			return true
		}
	}
	choice := w.rule.Choose(job, w.offers, j.learned, w.now)
	j.look = w.t + 1
	if choice.Action != cloud.Buy {
		if soon := w.now.Add(cloud.LookAgain); w.rule.Shared && soon.Before(choice.Until) { // as the check does
			choice.Until = soon
		}
		j.lookAt(choice.Until, w)
		return !math.IsInf(choice.Cost, 1)
	}
	at := w.index(choice.Offer)
	if !w.available(at, j.Machines) {
		j.learned.StockOut(choice.Offer.Place, j.Machines, w.now)
		w.out.Tries++
		return true
	}
	if seen := j.learned.Of(choice.Offer.Place); seen == nil || !seen.Obtainable {
		w.opened++
	}
	j.learned.Obtained(choice.Offer.Place, j.Machines, w.now)
	w.out.Bought++
	start := max(1, w.s.StartUp)
	j.look = w.t + start
	if j.on > 0 && j.starting == 0 { // it goes on until the others have started
		j.next, j.nextIn = at+1, start
		return true
	}
	j.on, j.starting, j.unsaved, j.ran = at+1, start, 0, 0
	return true
}

// job is what a rule is told of a job.
func (w *run) job(j *runningJob) *cloud.Job {
	job := &cloud.Job{
		Machines: j.Machines, Left: minutes(j.Work - j.saved), Unsaved: minutes(j.unsaved),
		Checkpoint: minutes(w.s.Checkpoint), StartUp: minutes(w.s.StartUp), Deadline: w.m.Start.Add(minutes(j.Deadline)),
		Moves: w.rule.Moves - j.moves, Reported: w.rule.Reports,
	}
	if j.on > 0 {
		job.On = &w.offers[j.on-1]
	}
	return job
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// reportedAt is when a job last saved its work, as it says, at first that it has not since it was submitted; zero: it does not say.
func (w *run) reportedAt(j *runningJob) time.Time {
	if !w.rule.Reports {
		return time.Time{}
	}
	return w.m.Start.Add(minutes(max(j.Submit, j.reported)))
}

// restarting is a job that has machines as one that is stopped to go back to spot; nil: it stays, and is asked again in time.
func (w *run) restarting(j *runningJob, job *cloud.Job) *cloud.Job {
	if job.On.Spot || job.Moves <= 0 {
		j.lookAt(time.Time{}, w)
		return nil
	}
	moves := cloud.Restarting(*job, cloud.Run{On: job.On, Ran: minutes(j.ran), Left: job.Left - job.Unsaved, Saved: w.reportedAt(j)}, w.now)
	if moves == nil {
		j.lookAt(w.now.Add(cloud.LookAgain), w)
	}
	return moves
}

// arrive: the machines are there that a job moves to. It is stopped, if that pays still, which takes a minute, and goes on there; or they
// wait until it has saved its work.
func (w *run) arrive(j *runningJob, job *cloud.Job) {
	place := w.offers[j.next-1].Place
	job.Next, job.Hold = &place, cloud.LongestHold-minutes(-j.nextIn)
	switch choice := w.rule.Choose(job, w.offers, j.learned, w.now); choice.Action {
	case cloud.Wait:
		j.lookAt(choice.Until, w)
		return
	case cloud.Buy:
		w.loseWork(j, &w.out.Parts.OnDemandWork)
		j.on, j.starting, j.unsaved, j.ran, j.moves = j.next, 1, 0, 0, j.moves+1
		w.out.Moves++
	}
	j.next = 0
	j.lookAt(w.now.Add(cloud.LookAgain), w)
}

func (j *runningJob) lookAt(until time.Time, w *run) {
	if until.IsZero() {
		j.look = len(w.m.Zones[0].Available) // asked again when its machines are lost
		return
	}
	j.look = max(w.t+1, int(until.Sub(w.m.Start).Minutes()))
}

func (w *run) index(o *cloud.Offer) int {
	for i := range w.offers {
		if &w.offers[i] == o {
			return i
		}
	}
	panic("a rule chose an offer that is none")
}

// pass lets a minute pass.
func (w *run) pass(j *runningJob) {
	w.pay(j, j.next)
	w.pay(j, j.on)
	switch {
	case j.on == 0:
		return
	case j.starting > 0:
		j.starting--
	default:
		w.work(j)
	}
	j.nextIn-- // below 0 it is for how long they wait
}

// loseWork has a job do again what it has not saved.
func (w *run) loseWork(j *runningJob, from *float64) {
	*from -= j.unsavedCost
	w.out.Parts.LostWork += j.unsavedCost
	j.unsavedCost = 0
}

func (w *run) pay(j *runningJob, offer int) {
	if offer == 0 {
		return
	}
	money := w.offers[offer-1].Price / 60 * float64(j.Machines)
	w.out.Money += money
	spot := offer <= len(w.m.Zones)
	hours := &w.out.OnDemand
	if spot {
		hours = &w.out.Spot
	}
	*hours += float64(j.Machines) / 60
	parts := &w.out.Parts
	switch {
	case offer == j.next:
		parts.Second += money
	case spot && j.starting > 0:
		parts.SpotStarts += money
	case j.starting > 0:
		parts.OnDemandStarts += money
	case spot:
		parts.SpotWork += money
		j.unsavedCost += money
	default:
		parts.OnDemandWork += money
		j.unsavedCost += money
	}
}

func (w *run) work(j *runningJob) {
	j.unsaved++
	j.ran++
	if j.saved+j.unsaved >= j.Work {
		j.done = true
		w.out.Finished++
		if w.t+1 > j.Deadline {
			w.out.Late++
		}
		return
	}
	if w.s.Checkpoint > 0 && j.unsaved == w.s.Checkpoint {
		j.saved, j.unsaved, j.unsavedCost, j.savedAt = j.saved+j.unsaved, 0, 0, w.t+1
	}
}
