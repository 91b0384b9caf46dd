package budget

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// cluster is what is stored: objects of workloads, and an account. A leader knows what it read, and writes.
type cluster struct {
	t       *rapid.T
	now     time.Time // the time; leaders' clocks differ from it
	skew    time.Duration
	stored  []byte             // the account
	objects map[string]*Object // workloads; those that are gone are not there
	ghosts  []Object           // workloads that are gone, and that a cache may still show
	gone    map[string]time.Time
	runs    map[string]Run // all runs there ever were, by name
	serial  int
}

// clock is what the leader's clock says.
func (c *cluster) clock() time.Time { return c.now.Add(c.skew).Truncate(time.Second) }

func (c *cluster) account() Account {
	var a Account
	if len(c.stored) > 0 {
		if err := json.Unmarshal(c.stored, &a); err != nil {
			c.t.Fatal(err)
		}
	}
	return a
}

func (c *cluster) store(a Account) {
	text, err := json.Marshal(a)
	if err != nil {
		c.t.Fatal(err)
	}
	c.stored = text
}

func name(r *Run) string { return fmt.Sprintf("%s since %d", r.UID, r.Start.Unix()) }

// set stores a workload with its run.
func (c *cluster) set(o *Object) {
	c.objects[o.UID] = o
	if o.Run != nil {
		c.runs[name(o.Run)] = *o.Run
	}
}

// sees is what a leader knows: the objects, and sometimes one that is gone already.
func (c *cluster) sees() []Object {
	var list []Object
	for _, o := range c.objects {
		list = append(list, *o)
	}
	for _, ghost := range c.ghosts {
		if c.now.Sub(c.gone[ghost.UID]) < remembered/2 && rapid.Bool().Draw(c.t, "the cache is behind") {
			list = append(list, ghost)
		}
	}
	slices.SortFunc(list, func(a, b Object) int { return slices.Compare([]byte(a.UID), []byte(b.UID)) })
	return list
}

func runsOf(objects []Object) []Run {
	var list []Run
	for _, o := range objects {
		if o.Run != nil {
			list = append(list, *o.Run)
		}
	}
	return list
}

// lead is a turn of a leader, which may die after any write.
func (c *cluster) lead(windows []Window) {
	objects, a := c.sees(), c.account()
	var settle []Run
	for i := range objects {
		if must, _ := a.Next(&objects[i]); must && rapid.IntRange(0, 3).Draw(c.t, "settled now") > 0 {
			settle = append(settle, *objects[i].Run)
		}
	}
	if len(settle) > 0 {
		tells := func(uid string, start time.Time) bool {
			o := c.objects[uid]
			return o != nil && o.Run != nil && o.Run.Start.Unix() == start.Unix()
		}
		a = a.Settle(settle, windows, tells, c.clock())
		if rapid.IntRange(0, 4).Draw(c.t, "the leader dies before it writes") == 0 {
			return
		}
		c.store(a)
	}
	for i := range objects {
		_, release := a.Next(&objects[i])
		if o := c.objects[objects[i].UID]; release && o != nil && rapid.IntRange(0, 4).Draw(c.t, "the leader dies before it lets go") > 0 {
			c.letGo(o)
		}
	}
}

// letGo has a workload vanish, or start anew.
func (c *cluster) letGo(o *Object) {
	if o.Deleting {
		delete(c.objects, o.UID)
		c.ghosts, c.gone[o.UID] = append(c.ghosts, *o), c.now
		return
	}
	if start := c.clock(); o.Run == nil || start.After(o.Run.Start) { // a second start in the same second would be the same run
		c.set(&Object{UID: o.UID, Run: c.drawRun(o.UID, start)})
	}
}

func (c *cluster) drawRun(uid string, start time.Time) *Run {
	r := &Run{UID: uid, User: rapid.SampledFrom([]string{"ann", "bob", ""}).Draw(c.t, "user"), Start: start, Queue: rapid.SampledFrom([]string{"a", "b"}).Draw(c.t, "queue")}
	for _, flavor := range []string{"h100", "t4"} {
		if n := rapid.Int64Range(0, 8).Draw(c.t, flavor); n > 0 {
			r.Amounts = append(r.Amounts, Amount{Flavor: flavor, Resource: "gpu", Units: n})
		}
	}
	if price := rapid.Int64Range(0, 3).Draw(c.t, "price"); price > 0 { // its nodes are there some time after it has quota
		waits := time.Duration(rapid.IntRange(0, 7200).Draw(c.t, "waits for nodes")) * time.Second
		r.Amounts = append(r.Amounts, Amount{Flavor: "h100", Resource: Money, Units: price, Since: start.Add(waits)})
	}
	return r
}

// happens is something that the leader does not decide: time passes, jobs come, end, are evicted and deleted, the leader
// changes and its clock is another.
func (c *cluster) happens() {
	c.now = c.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 5 * time.Hour}).Draw(c.t, "later"))
	uids := make([]string, 0, len(c.objects))
	for uid := range c.objects {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	what := rapid.SampledFrom([]string{"comes", "ends", "is evicted", "is evicted", "is deleted", "another leader"}).Draw(c.t, "what")
	if what == "another leader" {
		c.skew = time.Duration(rapid.IntRange(-90, 90).Draw(c.t, "skew")) * time.Second
		return
	}
	if what == "comes" || len(uids) == 0 {
		c.serial++
		c.set(&Object{UID: fmt.Sprint("w", c.serial), Waits: true})
		return
	}
	o := *c.objects[rapid.SampledFrom(uids).Draw(c.t, "who")]
	if o.Run != nil && !o.Run.over() { // whatever becomes of it, its quota is given back
		r := *o.Run
		r.End = c.clock()
		o.Run = &r
		o.Waits = what == "is evicted" && !o.Deleting
	}
	o.Deleting = o.Deleting || what == "is deleted"
	o.Waits = o.Waits && !o.Deleting
	c.set(&o)
}

// What was used is what all runs that are over took, each once, at any time, whenever leaders die or change.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{t: t, now: time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC), objects: map[string]*Object{}, gone: map[string]time.Time{}, runs: map[string]Run{}}
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin"}).Draw(t, "zone")
		for range rapid.IntRange(1, 60).Draw(t, "times") {
			c.happens()
			windows := c.windows(zone, c.clock())
			c.lead(windows)
			c.check(windows)
		}
	})
}

func (c *cluster) windows(zone string, at time.Time) []Window {
	var list []Window
	for _, p := range []Period{Day, Week, Month} {
		w, err := WindowAt(p, zone, at)
		if err != nil {
			c.t.Fatal(err)
		}
		list = append(list, w)
	}
	return list
}

func (c *cluster) check(windows []Window) {
	a := c.account()
	objects := c.sees()
	for _, w := range windows {
		var want []Used
		for _, r := range c.runs {
			if r.over() {
				want = addRun(want, &r, w)
			}
		}
		if got := a.Used(w, runsOf(objects)); !slices.Equal(got, want) {
			c.t.Fatalf("%s from %s: %v, not %v", w.Period, w.From, got, want)
		}
		c.checkUsers(w, a.UsedBy(w, runsOf(objects)))
	}
}

// checkUsers: each user has what the runs of its jobs took, and what is nobody's is the rest.
func (c *cluster) checkUsers(w Window, got []UserUsed) {
	want, known := map[UserUsed]int64{}, false
	for _, r := range c.runs {
		if !r.over() {
			continue
		}
		for _, u := range addRun(nil, &r, w) {
			want[UserUsed{User: r.User, Resource: u.Resource}] += u.UnitSeconds
			known = known || r.User != ""
		}
	}
	if !known {
		clear(want)
	}
	for _, u := range got {
		key := UserUsed{User: u.User, Resource: u.Resource}
		if want[key] != u.UnitSeconds {
			c.t.Fatalf("%s from %s: %+v, not %d", w.Period, w.From, u, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		c.t.Fatalf("%s from %s: nobody has %v", w.Period, w.From, want)
	}
}

// However many users there are, an account stays small, what it is reckoned with is as without them, and nothing is lost: users
// beyond the first are counted together.
func TestUsersAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC)
	var a Account
	for i := range 6 * 24 * 20 {
		now = now.Add(10 * time.Minute)
		var windows []Window
		for _, p := range []Period{Day, Month} {
			w, err := WindowAt(p, "UTC", now)
			if err != nil {
				t.Fatal(err)
			}
			windows = append(windows, w)
		}
		r := Run{UID: fmt.Sprint(i), User: fmt.Sprintf("user-%d", i%5000), Start: now.Add(-time.Minute), End: now, Queue: "q", Amounts: []Amount{{Flavor: "h100", Resource: "gpu", Units: 8}}}
		a = a.Settle([]Run{r}, windows, func(string, time.Time) bool { return false }, now)
	}
	lines := 0
	for _, s := range a.Sums {
		lines += len(s.Users)
		if n := len(userNames(s.Users)); n > mostUsers+1 {
			t.Fatalf("%d users in %s from %s", n, s.Period, s.From)
		}
	}
	month := a.Sums[slices.IndexFunc(a.Sums, func(s Sum) bool { return s.Period == Month && s.From.Month() == time.November })]
	sum, others := int64(0), int64(0)
	for _, u := range month.Users {
		sum += u.UnitSeconds
		if u.User == OtherUsers {
			others = u.UnitSeconds
		}
	}
	if lines > mostUserLines || others == 0 || sum != month.Used[0].UnitSeconds || len(a.Sums) < 15 {
		t.Errorf("%d periods, %d lines of users, %d of %d known, others %d", len(a.Sums), lines, sum, month.Used[0].UnitSeconds, others)
	}
}

// An account does not grow with the workloads that there were.
func TestAccountsStaySmall(t *testing.T) {
	now := time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC)
	var a Account
	for i := range 5000 {
		now = now.Add(time.Minute)
		w, err := WindowAt(Month, "UTC", now)
		if err != nil {
			t.Fatal(err)
		}
		r := Run{UID: fmt.Sprint(i), Start: now.Add(-time.Minute), End: now, Queue: "q", Amounts: []Amount{{Flavor: "h100", Resource: "gpu", Units: 8}}}
		a = a.Settle([]Run{r}, []Window{w}, func(string, time.Time) bool { return false }, now)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Settled) > 13 || len(a.Sums) != 1 || a.Sums[0].Used[0].UnitSeconds != 5000*60*8 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// Amounts that nobody has are no overflow.
func TestSaturates(t *testing.T) {
	w, err := WindowAt(Month, "UTC", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	huge := func(uid string) Run {
		return Run{UID: uid, Start: w.From, End: w.Until, Amounts: []Amount{{Flavor: "f", Resource: "gpu", Units: math.MaxInt64}}}
	}
	var a Account
	a = a.Settle([]Run{huge("a"), huge("b")}, []Window{w}, func(string, time.Time) bool { return true }, w.Until)
	if got := a.Used(w, []Run{huge("c")}); len(got) != 1 || got[0].UnitSeconds != math.MaxInt64 {
		t.Error(got)
	}
}

// Accounts come back from their objects as they were, and less than nothing is nothing.
func TestStored(t *testing.T) {
	w, err := WindowAt(Week, "Europe/Berlin", time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	now := w.From.Add(2 * time.Hour)
	run := Run{UID: "a", User: "ann", Start: w.From, End: w.From.Add(time.Hour), Queue: "q", Amounts: []Amount{{Flavor: "h100", Resource: "gpu", Units: 8}}}
	var a Account
	a = a.Settle([]Run{run}, []Window{w}, func(string, time.Time) bool { return false }, now)
	a = a.Settle(nil, []Window{w}, func(string, time.Time) bool { return false }, now) // nobody tells of it any more
	status := a.Stored()
	back := FromStored(&status)
	if again := back.Stored(); fmt.Sprint(again) != fmt.Sprint(status) || !back.Names(&run) || back.Used(w, nil)[0].UnitSeconds != 8*3600 {
		t.Errorf("%+v, not %+v", again, status)
	}
	status.Sums[0].Used[0].UnitSeconds = -1
	back = FromStored(&status)
	if used := back.Used(w, nil); len(used) != 0 {
		t.Error(used)
	}
}

// A run that claims to end in the far future, or more runs than an account may name, make no object that cannot be stored.
func TestAccountsAreBounded(t *testing.T) {
	w, err := WindowAt(Day, "UTC", time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	now := w.From.Add(12 * time.Hour)
	tells := func(string, time.Time) bool { return true }
	var a Account
	forged := Run{UID: "forged", Start: now.Add(-time.Hour), End: now.AddDate(7000, 0, 0), Amounts: []Amount{{Flavor: "f", Resource: "gpu", Units: 1}}}
	a = a.Settle([]Run{forged}, []Window{w}, tells, now)
	if used := a.Used(w, nil); len(a.Sums) != 1 || used[0].UnitSeconds != 2*3600 {
		t.Errorf("%d periods, %v", len(a.Sums), used)
	}
	runs := make([]Run, mostSettled+10)
	for i := range runs {
		runs[i] = Run{UID: fmt.Sprint(i), Start: now.Add(-time.Second), End: now, Amounts: []Amount{{Flavor: "f", Resource: "gpu", Units: 1}}}
	}
	a = Account{}
	a = a.Settle(runs, []Window{w}, tells, now)
	if len(a.Settled) != mostSettled || len(a.Unsettled(runs)) != 10 || a.Used(w, runs)[0].UnitSeconds != mostSettled+10 {
		t.Errorf("%d named, %d not, %v", len(a.Settled), len(a.Unsettled(runs)), a.Used(w, runs))
	}
	if a.MayStart("5", now.Add(-time.Second)) || !a.MayStart("5", now) {
		t.Error("a run may have the name of another, or none may begin")
	}
	if got := Cost([]Used{{"q", "f", "gpu", math.MaxInt64 / 2}, {"q", "g", "gpu", math.MaxInt64 / 2}, {"other", "f", "gpu", 1}},
		map[string]map[string]int64{"": {"gpu": 1}, "g": {"gpu": 1000}}, func(q string) bool { return q == "q" }); got != math.MaxInt64 {
		t.Error(got)
	}
}

// What was spent in earlier periods can be asked for: of days for two weeks, and of each that a run was in.
func TestEarlierPeriods(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	window := func(at time.Time) Window {
		w, err := WindowAt(Day, "UTC", at)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	gone := func(string, time.Time) bool { return false }
	run := Run{UID: "a", Start: day(2).Add(22 * time.Hour), End: day(5).Add(time.Hour), Queue: "q", Amounts: []Amount{
		{Flavor: "h100", Resource: "gpu", Units: 1}, {Flavor: "h100", Resource: Money, Units: 5, Since: day(3).Add(23 * time.Hour)},
	}}
	now := day(5).Add(2 * time.Hour)
	var a Account
	a = a.Settle([]Run{run}, []Window{window(now)}, gone, now)
	for n, want := range map[int][2]int64{1: {}, 2: {2}, 3: {24, 1}, 4: {24, 24}, 5: {1, 1}} {
		got := [2]int64{}
		for _, u := range a.Used(window(day(n)), nil) {
			if u.Resource == Money {
				got[1] = u.UnitSeconds / 5 / 3600
			} else {
				got[0] = u.UnitSeconds / 3600
			}
		}
		if got != want {
			t.Errorf("day %d: %v hours of a card and of money, want %v", n, got, want)
		}
	}
	if a = a.Settle(nil, []Window{window(day(18))}, gone, day(18)); len(a.Used(window(day(2)), nil)) != 0 || len(a.Used(window(day(4)), nil)) == 0 || !a.Expired().Equal(window(day(18)).Until.Add(Day.storedFor())) {
		t.Errorf("after two weeks: %+v, expires %s", a.Sums, a.Expired())
	}
}

// Earlier periods go before an account is too large for its object; the one that is stays whole.
func TestEarlierPeriodsAreBounded(t *testing.T) {
	var a Account
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for range 12 {
		now = now.Add(24 * time.Hour)
		w, err := WindowAt(Day, "UTC", now)
		if err != nil {
			t.Fatal(err)
		}
		r := Run{UID: now.String(), Start: now.Add(-time.Hour), End: now, Queue: "q"}
		for i := range 300 {
			r.Amounts = append(r.Amounts, Amount{Flavor: fmt.Sprint(i), Resource: "gpu", Units: 1})
		}
		if a = a.Settle([]Run{r}, []Window{w}, func(string, time.Time) bool { return false }, now); len(a.Used(w, nil)) != 300 || len(a.Sums) > 3 {
			t.Fatalf("%d of this day, %d periods", len(a.Used(w, nil)), len(a.Sums))
		}
	}
}
