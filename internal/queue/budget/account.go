package budget

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// Run is a time in which a workload had quota.
type Run struct {
	UID     string // of the workload
	User    string // who made its job; "": nobody knows
	Start   time.Time
	End     time.Time // zero: it goes on
	Queue   string    // the ClusterQueue that the quota is of
	Amounts []Amount
}

// Amount is what a run has of a resource.
type Amount struct {
	Flavor, Resource string
	Units            int64
	Since            time.Time // it counts from then on; zero: from the start of the run
}

// Money stands for what the nodes of a run cost, beside its resources: millionths of a US dollar an hour. Prices change from
// hour to hour, so that what a run cost is written down with it, and not reckoned when it is read.
const Money = "elasticai.io/usd"

// over says that the run has ended.
func (r *Run) over() bool { return !r.End.IsZero() }

// Account is what a LocalQueue's workloads have used, as it is stored.
type Account struct {
	Sums []Sum `json:"sums,omitempty"`
	// Settled are the runs that the sums have, and of which workloads may still tell.
	Settled []Settled `json:"settled,omitempty"`
}

// Sum is what was used in a period.
type Sum struct {
	Window `json:",inline"`
	Used   []Used `json:"used,omitempty"`
	// Users are what is known of who used it.
	Users []UserUsed `json:"users,omitempty"`
}

// Used is an amount of a resource in a flavor, times seconds.
type Used struct {
	Queue       string `json:"clusterQueue"`
	Flavor      string `json:"flavor"`
	Resource    string `json:"resource"`
	UnitSeconds int64  `json:"unitSeconds"`
}

// Settled names a run, and says since when no workload tells of it; nil: one still may.
type Settled struct {
	UID   string     `json:"uid"`
	Start time.Time  `json:"start"`
	Gone  *time.Time `json:"gone,omitempty"`
}

const (
	// remembered is how long an account names a run of which no workload tells any more: longer than a cache can still show
	// one that is gone.
	remembered = 10 * time.Minute
	// late is longer than clocks differ.
	late = time.Hour
	// mostSettled is how many runs an account names at most, so that its object stays small: those beyond wait, and count
	// by what their workloads tell.
	mostSettled = 4096
	// mostUsed is how many lines the sums of an account have at most, for the same reason: beyond that the periods go that are
	// over for longest.
	mostUsed = 1000
)

// storedFor is how long after its end a period is stored, for those who ask what was spent in it.
func (p Period) storedFor() time.Duration {
	const day = 24 * time.Hour
	switch p {
	case Day:
		return 14 * day
	case Week:
		return 8 * 7 * day
	}
	return 400 * day
}

// settled says that the sums of an account have a run.
func (a *Account) settled(r *Run) bool {
	return slices.ContainsFunc(a.Settled, func(s Settled) bool { return s.UID == r.UID && s.Start.Unix() == r.Start.Unix() })
}

// Settle is the account with runs that are over added to it. Windows are the periods in force. Runs that it has already
// are not added again. Tells says whether a workload still tells of a run.
func (a *Account) Settle(runs []Run, windows []Window, tells func(uid string, start time.Time) bool, now time.Time) Account {
	var out Account
	for _, s := range a.Settled {
		switch {
		case tells(s.UID, s.Start):
			s.Gone = nil
		case s.Gone == nil:
			s.Gone = &now
		case now.Sub(*s.Gone) >= remembered:
			continue
		}
		out.Settled = append(out.Settled, s)
	}
	for _, s := range a.Sums {
		if now.Sub(s.Until) < s.Period.storedFor() {
			out.Sums = append(out.Sums, Sum{Window: s.Window, Used: slices.Clone(s.Used), Users: slices.Clone(s.Users)})
		}
	}
	for _, w := range windows {
		out.open(w)
	}
	named := out.names()
	for i := range runs {
		r := runs[i]
		if !r.over() || named[runName(r.UID, r.Start)] || len(out.Settled) >= mostSettled {
			continue
		}
		if most := now.Add(late); r.End.After(most) {
			r.End = most // nobody runs in the future, and each period until then would be opened
		}
		out.add(&r, windows, now)
		out.Settled = append(out.Settled, Settled{UID: r.UID, Start: r.Start})
		named[runName(r.UID, r.Start)] = true
	}
	out.trim(now)
	out.trimUsers()
	return out
}

// trim lets go of the periods that are over for longest, until the others are few enough. Those that a clock may come back
// to stay.
func (a *Account) trim(now time.Time) {
	used := 0
	for i := range a.Sums {
		used += 1 + len(a.Sums[i].Used)
	}
	for used > mostUsed {
		oldest := -1
		for i := range a.Sums {
			if until := a.Sums[i].Until; now.Sub(until) >= late && (oldest < 0 || until.Before(a.Sums[oldest].Until)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return
		}
		used -= 1 + len(a.Sums[oldest].Used)
		a.Sums = slices.Delete(a.Sums, oldest, oldest+1)
	}
}

// Names says that the account has a run.
func (a *Account) Names(r *Run) bool { return a.settled(r) }

// names are the runs that the account has.
func (a *Account) names() map[string]bool {
	named := make(map[string]bool, len(a.Settled))
	for _, s := range a.Settled {
		named[runName(s.UID, s.Start)] = true
	}
	return named
}

// runName names a run.
func runName(uid string, start time.Time) string {
	return uid + "@" + strconv.FormatInt(start.Unix(), 10)
}

// Expired says from when on nobody needs the account: its periods are over for as long as they are stored.
func (a *Account) Expired() (at time.Time) {
	for i := range a.Sums {
		if until := a.Sums[i].Until.Add(a.Sums[i].Period.storedFor()); until.After(at) {
			at = until
		}
	}
	return at
}

// MayStart says from when on a workload may have another run: one that began in the same second would have the same name.
func (a *Account) MayStart(uid string, now time.Time) bool {
	return !slices.ContainsFunc(a.Settled, func(s Settled) bool { return s.UID == uid && s.Start.Unix() >= now.Unix() })
}

// open adds a period that the account does not have yet.
func (a *Account) open(w Window) {
	if !slices.ContainsFunc(a.Sums, func(s Sum) bool { return s.Same(w) }) {
		a.Sums = append(a.Sums, Sum{Window: w})
	}
}

// add counts a run in all periods. One that ends in the next, by a clock that is ahead, counts there as well, and one that
// began in earlier ones there, as long as they are stored.
func (a *Account) add(r *Run, windows []Window, now time.Time) {
	for _, w := range windows {
		a.openEarlier(w, r, now)
		for w = w.at(w.Until); w.seconds(r.Start, r.End) > 0; w = w.at(w.Until) {
			a.open(w)
		}
	}
	for i := range a.Sums {
		s := &a.Sums[i]
		s.Used, s.Users = addRun(s.Used, r, s.Window), addUserRun(s.Users, r, s.Window)
	}
}

// openEarlier adds the periods before one in which a run began, as far back as they are stored.
func (a *Account) openEarlier(w Window, r *Run, now time.Time) {
	for {
		w = w.at(w.From.Add(-time.Second))
		if now.Sub(w.Until) >= w.Period.storedFor() || !w.Until.After(r.Start) || !w.From.Before(w.Until) {
			return
		}
		if w.seconds(r.Start, r.End) > 0 {
			a.open(w)
		}
	}
}

// addRun adds what a run used within a period.
func addRun(used []Used, r *Run, w Window) []Used {
	for _, m := range r.Amounts {
		from := r.Start
		if m.Since.After(from) {
			from = m.Since
		}
		used = addUsed(used, Used{r.Queue, m.Flavor, m.Resource, Times(m.Units, w.seconds(from, r.End))})
	}
	return used
}

// addUsed adds to a list that is in order, so that equal accounts are written alike.
func addUsed(used []Used, u Used) []Used {
	if u.UnitSeconds <= 0 {
		return used
	}
	i, found := slices.BinarySearchFunc(used, u, func(a, b Used) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Resource, b.Resource))
	})
	if !found {
		return slices.Insert(used, i, u)
	}
	used[i].UnitSeconds = Plus(used[i].UnitSeconds, u.UnitSeconds)
	return used
}

// Times multiplies, saturating; less than nothing is nothing.
func Times(a, b int64) int64 {
	switch {
	case a <= 0 || b <= 0:
		return 0
	case a > math.MaxInt64/b:
		return math.MaxInt64
	}
	return a * b
}

// Used is what was used in a period by runs that are over: those that the account has, and those that workloads tell of
// and it does not name. What goes on is not among them.
func (a *Account) Used(w Window, runs []Run) []Used {
	var used []Used
	for i := range a.Sums {
		if a.Sums[i].Same(w) {
			used = slices.Clone(a.Sums[i].Used)
		}
	}
	for _, r := range a.Unsettled(runs) {
		used = addRun(used, &r, w)
	}
	return used
}

// Unsettled are the runs that are over, and that the account does not have.
func (a *Account) Unsettled(runs []Run) []Run {
	var list []Run
	named := a.names()
	for i := range runs {
		if r := &runs[i]; r.over() && !named[runName(r.UID, r.Start)] {
			list = append(list, *r)
		}
	}
	return list
}

// Object is what a workload's object tells.
type Object struct {
	UID string
	Run *Run // its last; nil: it had none
	// Deleting: it was deleted, and waits for us, or has finished: it will have no other run.
	Deleting bool
	// Waits: it is pending, and may get quota, and so another run.
	Waits bool
}

// Next says of a workload whether its last run must be in the account before it can go on, and whether it is let go: if
// it will have no other run, it need not tell of the last any more, and may vanish; if it waits, it may have quota.
func (a *Account) Next(o *Object) (settle, release bool) {
	switch {
	case !o.Deleting && !o.Waits || o.Run != nil && !o.Run.over():
		return false, false
	case o.Run == nil || a.settled(o.Run):
		return false, true
	}
	return true, false
}

// Cost is what was used at rates by flavor and resource, "" for flavors that are not named. Counts says which
// ClusterQueues' quota counts.
func Cost(used []Used, rates map[string]map[string]int64, counts func(queue string) bool) int64 {
	sum := int64(0)
	for _, u := range used {
		of, named := rates[u.Flavor]
		if !named {
			of = rates[""]
		}
		if rate := of[u.Resource]; rate > 0 && counts(u.Queue) {
			sum = Plus(sum, Times(u.UnitSeconds, rate))
		}
	}
	return sum
}

// Plus adds, saturating.
func Plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
