package world

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

func set(t *testing.T, c *Cluster, changes string) *Cluster {
	t.Helper()
	out, err := c.Set(changes)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// limits gives the jobs limits, in the trace's order.
func limits(tr *Trace, seconds ...int64) *Trace {
	for i, s := range seconds {
		tr.Jobs[i].Limit = s
	}
	return tr
}

// A day's budget is for two hours of the node. What a job without a limit uses counts as it goes; one with a limit starts if
// it fits, or so late that the rest of it is the next day's.
func TestBudgetsStopJobs(t *testing.T) {
	const hour = 3600
	jobs := fmt.Sprintf("a,,q,0,%d,8,,,\nb,,q,%d,%d,8,,,\nc,,q,%d,%d,8,,,\n", hour, hour, 2*hour, 2*hour, hour)
	c := set(t, Partitions([]Share{{"q", 1, 8}}), "queue/q.budget=16/Day")
	var seen []string
	tr := trace(t, jobs)
	w, r := simulate(t, tr, c, Settings{Watch: func(m Moment) {
		if m.What == WaitsForBudget {
			seen = append(seen, fmt.Sprintf("%d %s: %s", m.At, tr.Jobs[m.Job].ID, m.Why))
		}
	}})
	// All is spent when c comes, and b goes on for an hour beyond it.
	if got, want := starts(w), "a 0-3600, b 3600-10800, c 86400-90000"; got != want {
		t.Errorf("without limits: %s, want %s", got, want)
	}
	if got := fmt.Sprint(r.Budgets); got != "[{ClusterQueue/q 16 GPU-hours Day [{0 86400 24} {86400 172800 8}]}]" {
		t.Errorf("%s", got)
	}
	if r.ForBudget != (Waited{1, 86400 - 2*hour}) || r.ByQueue[0].ForBudget != r.ForBudget || w.JobEnds()[2].ForBudget != r.ForBudget.Seconds {
		t.Errorf("waited %+v, %+v", r.ForBudget, w.JobEnds()[2])
	}
	if len(seen) != 1 || !strings.Contains(seen[0], "7200 c: ") || !strings.Contains(seen[0], "for the budget of ClusterQueue/q") {
		t.Errorf("%q", seen)
	}
	// With limits b would take it beyond, and c does not. Half an hour is left then: b starts that long before midnight.
	tr = trace(t, strings.Replace(jobs, "7200,3600,", "7200,1800,", 1))
	w, r = simulate(t, limits(tr, hour, 2*hour, hour/2), c, Settings{})
	if got, want := starts(w), "a 0-3600, b 84600-91800, c 7200-9000"; got != want {
		t.Errorf("with limits: %s, want %s", got, want)
	}
	if r.Ended != 3 {
		t.Errorf("%+v", r)
	}
}

// What is drained goes on in the next period.
func TestDrainedBudgets(t *testing.T) {
	c := set(t, Partitions([]Share{{"q", 1, 8}}), "queue/q.budget=16/Day/Drain")
	w, r := simulate(t, trace(t, "a,,q,0,10800,8,,,\n"), c, Settings{})
	if got := starts(w); got != "a 0-90000" || r.Drained != 1 || r.Evictions != 1 {
		t.Errorf("%s, %+v", got, r)
	}
	if wl := w.workload(0); wl.EvictedBy != "BudgetSpent" || wl.PreemptedByOthers {
		t.Errorf("%+v", wl)
	}
}

// Two queues of a cohort share its budget, and one has its own beside it.
func TestBudgetsOfCohorts(t *testing.T) {
	c := set(t, Pool([]Share{{"a", 1, 8}, {"b", 1, 8}}), "cohort/all.budget=24/Week,queue/b.budget=8/Week")
	tr := trace(t, "x,,a,0,7200,8,,,\ny,,b,0,3600,8,,,\nz,,a,7200,60,1,,,\n")
	w, r := simulate(t, tr, c, Settings{})
	if got, want := starts(w), "x 0-7200, y 0-3600, z 604800-604860"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if len(r.Budgets) != 2 || r.Budgets[0].Periods[0].Spent != 24 || r.Budgets[1].Periods[0].Spent != 8 {
		t.Errorf("%+v", r.Budgets)
	}
	if got := set(t, c, "cohort/all.budget=off,queue/b.budget=9/Week"); len(got.Budgets) != 1 || got.Budgets[0].Amount.String() != "9" || len(c.Budgets) != 2 {
		t.Errorf("%+v, was %+v", got.Budgets, c.Budgets)
	}
}

// What is reserved is there at its time: only who is over by then starts on it.
func TestReservations(t *testing.T) {
	c := set(t, Pool([]Share{{"a", 1, 8}, {"b", 1, 8}}), "queue/b.reservation=16@10h+1h")
	tr := limits(trace(t, "long,,a,0,72000,16,,,\nshort,,a,0,3600,16,,,\npaper,,b,36000,600,16,,,\n"), 80000, 3600, 0)
	w, r := simulate(t, tr, c, Settings{})
	if got, want := starts(w), "long 39600-111600, short 0-3600, paper 36000-36600"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := fmt.Sprint(r.Reservations); got != "[{ClusterQueue/b 36000 39600 16 0}]" || r.ForReservation != (Waited{1, 39600 - 3600 - 600}) {
		t.Errorf("%s, %+v", got, r.ForReservation)
	}
	w, _ = simulate(t, tr, c, Settings{Until: 7200})
	if x := w.Explain(0); !strings.Contains(x.Message, "are reserved for ClusterQueue/b") || len(x.Suggestions) == 0 {
		t.Errorf("%+v", x)
	}
	// One that comes every night leaves no time for the long job: it waits for ever, and the makespan does not.
	c = set(t, c, "queue/b.reservation=off,queue/b.reservation=16@0 0 * * *+1h")
	_, r = simulate(t, trace(t, "long,,a,3600,90000,16,,,\nshort,,a,3600,600,1,,,\n"), c, Settings{})
	if r.Never != 2 || r.Makespan != 0 {
		t.Errorf("%+v", r)
	}
}

// Four cards are free on each of two nodes: with one move a job finds eight on one.
func TestDefragmentation(t *testing.T) {
	jobs := "a,,q,0,600,4,,,\nb,,q,0,9000,4,,,\nc,,q,0,600,4,,,\nd,,q,0,9000,4,,,\ne,,q,1000,100,8,,,\n"
	c := Partitions([]Share{{"q", 2, 8}})
	s := Settings{Restart: Restart{OneNode: 40}}
	w, r := simulate(t, trace(t, jobs), c, s)
	if got := w.JobEnds()[4]; got.Start != 9000 || r.Moves != 0 {
		t.Errorf("without: %+v", got)
	}
	w, r = simulate(t, trace(t, jobs), set(t, c, "queue/q.defragmentation=1/1h"), s)
	if got := w.JobEnds(); got[4].Start != 1000 || r.Moves != 1 || r.Preemptions != 1 || got[1].End+got[3].End != 2*9000+40 || r.MovedHours != 160.0/3600 || r.LostHours != r.MovedHours {
		t.Errorf("with: %s, %d moves, %v h", starts(w), r.Moves, r.MovedHours)
	}
	if w, r = simulate(t, trace(t, jobs), set(t, c, "queue/q.defragmentation=1/10m"), s); r.Moves != 0 {
		t.Errorf("they lose more than they may: %s", starts(w))
	}
}

// Who moves was there first, and would like best the node that it has just left: it is the other's.
func TestWhatOthersLeaveIsTheirs(t *testing.T) {
	c := Partitions([]Share{{"q", 2, 8}})
	w, r := simulate(t, trace(t, "a,,q,0,9000,2,,,\nb,,q,0,9000,2,,,\nc,,q,1000,100,8,,,\n"), set(t, c, "policy.placement=spread,queue/q.defragmentation=1/1h"), Settings{})
	if got := w.JobEnds()[2]; got.Start != 1000 || r.Moves != 1 {
		t.Errorf("%s, %d moves", starts(w), r.Moves)
	}
}

// Nobody starts in the place of one that moves while it ends, though there is quota for both.
func TestWhoMovesHasNodesSetAside(t *testing.T) {
	c := set(t, Partitions([]Share{{"q", 2, 8}}), "policy.placement=spread,queue/q.quota=24,queue/q.defragmentation=1/1h")
	w, r := simulate(t, trace(t, "a,,q,0,9000,2,,,\nb,,q,0,9000,2,,,\nc,,q,1000,100,8,,,\nd,,q,1000,100,6,,,\n"), c, Settings{})
	if got, want := starts(w), "a 0-9000, b 0-9000, c 1000-1100, d 1100-1200"; got != want || r.Moves != 1 || w.moves.again != 1 {
		t.Errorf("%s, want %s; %d moves, %+v", got, want, r.Moves, w.moves)
	}
}

func TestSetPolicies(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}})
	for set, want := range map[string]string{
		"queue/a.budget=5":              "want AMOUNT/Day",
		"queue/a.budget=x/Day":          "want AMOUNT/Day",
		"queue/a.budget=-5/Day":         "must be more than 0",
		"queue/a.budget=5/Year":         `"Year" is none of Day, Week, Month`,
		"queue/a.budget=5/Day/Stop":     `"Stop" is none of`,
		"cohort/x.budget=5/Day":         "there is no cohort x",
		"localqueue/ns/x.budget=5/Day":  "there is no localqueue ns/x",
		"policy/x.budget=5/Day":         "there is no policy x",
		"queue/a.reservation=5":         "want CARDS@START+DURATION",
		"queue/a.reservation=5@soon+1h": "start:",
		"queue/a.reservation=5@1h+soon": "duration:",
		"queue/a.reservation=0@1h+1h":   "must be more than 0",
		"queue/a.defragmentation=many":  "want MOVES/LOSTWORK",
		"queue/a.defragmentation=17/1h": "must be at least 1 and at most 16",
		"queue/a.defragmentation=1":     "is no time span",
		"queue/a.shareOfNodes=half":     "want PERCENT",
		"queue/a.shareOfNodes=0":        "must be at least 1 and at most 100",
		"queue/a.shareOfNodes=50/soon":  "is no time span",
		"queue/a.window=8":              "want CARDS@START+DURATION",
		"queue/a.window=8@soon+1h":      "start:",
		"queue/a.window=8@0 8 * * *+x":  "duration:",
		"queue/a.runTime=long":          "is no time span",
		"queue/a.quantile=most":         "want PERCENT",
		"queue/a.quantile=101":          "must be at least 1 and at most 100",
	} {
		if _, err := c.Set(set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}

// Policies of a cluster count as there: a LocalQueue's budget with what was spent of it before, by the day of the week that
// it is, and a reservation for one job.
func TestPoliciesOfACluster(t *testing.T) {
	objects := liveCluster(kueue.BestEffortFIFO)
	for _, name := range []string{"lq", "other"} {
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		lq.Spec.ClusterQueue = "q"
		objects = append(objects, lq)
	}
	p := &queuepolicy.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.TargetRefs = []queuepolicy.TargetRef{{Kind: queuepolicy.KindLocalQueue, Namespace: "ns", Name: "lq"}}
	p.Spec.Budgets = []queuepolicy.Budget{{Period: queuepolicy.PeriodDay, Amount: resource.MustParse("20")}}
	other := &queuepolicy.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	other.Spec.TargetRefs = []queuepolicy.TargetRef{{Kind: queuepolicy.KindLocalQueue, Namespace: "ns", Name: "other"}}
	other.Spec.Reservations = []queuepolicy.Reservation{{
		Name: "r", Start: "2026-01-01T13:00", Duration: "1h", Job: "job/paper", Quotas: []queuepolicy.ReservedQuota{{Flavor: "f", Resource: CardResource, Amount: resource.MustParse("6")}},
	}}
	window, err := budget.WindowAt(budget.Day, "UTC", now)
	if err != nil {
		t.Fatal(err)
	}
	var spent budget.Account
	run := budget.Run{UID: "x", Start: now.Add(-2 * time.Hour), End: now.Add(-time.Hour), Queue: "q", Amounts: []budget.Amount{{Flavor: "f", Resource: CardResource, Units: 14}}}
	spent = spent.Settle([]budget.Run{run}, []budget.Window{window}, func(string, time.Time) bool { return false }, now)
	account := &queuepolicy.BudgetAccount{Spec: queuepolicy.BudgetAccountSpec{Namespace: "ns", LocalQueue: "lq"}, Status: spent.Stored()}
	c, err := FromObjects(append(objects, p, other, account), admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	c.Start = now
	// 14 hours are spent, and train, which has had 8 cards for 10 minutes, uses the rest by 12:35. Then those of lq wait for
	// midnight; those of the other queue do not, where they leave 6 cards to paper from 13:00 on: long cannot before train has ended.
	tr := trace(t, "first,,ns/other,0,1,1,,,\nfits,,ns/other,2160,60,3,,,\nlong,,ns/other,2160,86400,3,,,\nw,,ns/lq,2160,60,1,,,\npaper,,other,3660,60,6,,,\n")
	limits(tr, 1, 60, 0, 60, 60)
	tr.Map(nil, c)
	w, r := simulate(t, tr.With(c, Lengths{Running: 4000}), c, Settings{})
	got := map[string]int64{}
	for _, end := range w.JobEnds() {
		got[end.ID] = end.Start
	}
	midnight := int64(12 * 3600)
	if got["w"] != midnight || got["fits"] != 2160 || got["long"] != 4000 || got["paper"] != 3660 {
		t.Errorf("%v, %+v", got, r.Budgets)
	}
	if use := r.Budgets[0]; use.On != "LocalQueue/ns/lq" || use.Periods[0].Spent != 14+8*(600+4000)/3600.0 || use.Periods[0].From != -midnight {
		t.Errorf("%+v", r.Budgets)
	}
	changed := set(t, c, "policy/p.budget=100/Day,localqueue/ns/other.reservation=off")
	if len(changed.Reservations) != 0 || changed.Budgets[0].Amount.String() != "100" || changed.Budgets[0].Policy != "p" {
		t.Errorf("%+v", changed.Budgets)
	}
	if w, _ = simulate(t, tr.With(changed, Lengths{Running: 4000}), changed, Settings{}); w.JobEnds()[4].Start != 2220 {
		t.Errorf("with another budget: %s", starts(w))
	}
}

// Jobs are mapped by the name that the trace has, or by the ClusterQueue that it stands for; who maps what is not there is told.
func TestMap(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}})
	c.Aliases = map[string]string{"jobs": "a"}
	for text, want := range map[string]string{
		"":               "[a b other] []",
		"jobs=b":         "[b b other] []",
		"a=b":            "[b b other] []",
		"*=a":            "[a b a] []",
		"a=b,b=a":        "[b a other] []",
		"typo=b,other=b": "[a b b] [typo]",
	} {
		to := map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			if from, target, ok := strings.Cut(pair, "="); ok {
				to[from] = target
			}
		}
		tr := trace(t, "x,,jobs,0,1,1,,,\ny,,b,1,1,1,,,\nz,,other,2,1,1,,,\n")
		none := tr.Map(to, c)
		if got := fmt.Sprint([]string{tr.Jobs[0].Queue, tr.Jobs[1].Queue, tr.Jobs[2].Queue}, none); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
