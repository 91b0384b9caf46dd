package world

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

func TestSetChangesACopy(t *testing.T) {
	c := Pool([]Share{{"a", 2, 8}, {"b", 1, 8}})
	got, err := c.Set("queue/a.quota=4, queue/*.order=LeastAttainedService,queue/b.borrowingLimit=2,cohort/all.fairSharing=drf,queue/b.backfill=EASY,+1x4:T4,queue/b.weight=2")
	if err != nil {
		t.Fatal(err)
	}
	a, b := got.Queues[0], got.Queues[1]
	if nominalOf(a.Groups, got.Cards) != 4 || a.Order != admission.OrderLeastAttainedService || b.Order != a.Order || *b.FairWeight != 2 {
		t.Errorf("%+v %+v", a, b)
	}
	if most, limited := mostOf(&b, got.Cards); most != 10 || !limited {
		t.Errorf("b may use %d", most)
	}
	if got.Cohorts[0].Policy != admission.PolicyDRF || !got.Queues[1].Backfill || !got.Queues[1].StrictFIFO || got.TotalCards() != 28 || got.Nodes[3].Model != "T4" {
		t.Errorf("%+v", got)
	}
	if nominalOf(c.Queues[0].Groups, c.Cards) != 16 || c.Queues[0].Order != admission.OrderByAge || c.TotalCards() != 24 || c.Queues[1].Backfill {
		t.Errorf("the cluster itself changed: %+v", c)
	}
	for set, want := range map[string]string{
		"queue/x.quota=4":          "there is no queue x",
		"queue/a.quota=-1":         `"-1" is not a number from 0`,
		"queue/a.colour=red":       "the settings of queue are backfill, borrowinglimit, borrowwithincohort, budget, cohort, defragmentation, flavorfungibility.preference",
		"queue/a.order=Best":       `"Best" is none of Age, LeastAttainedService`,
		"nonsense":                 "want queue/NAME.SETTING=VALUE",
		"+4":                       "want COUNTxCARDS:MODEL",
		"+1x8@x":                   "there is no queue x",
		"queue/a.backfill=yes":     `"yes" is none of EASY, None`,
		"queue/a.weight=NaN":       "is not a weight",
		"queue/a.weight=Inf":       "is not a weight",
		"cohort/x.fairSharing=drf": "there is no cohort x",
	} {
		if _, err := c.Set(set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}

// More nodes help where a queue has its own, once they are its own and it has the quota.
func TestMoreNodesForAQueue(t *testing.T) {
	c := Partitions([]Share{{"q", 1, 8}, {"r", 1, 8}})
	tr := trace(t, "a,,q,0,100,8,,,\nb,,q,0,100,8,,,\n")
	more, err := c.Set("+1x8@q,queue/q.quota=16")
	if err != nil {
		t.Fatal(err)
	}
	if w, _ := simulate(t, tr, more, Settings{}); starts(w) != "a 0-100, b 0-100" {
		t.Error(starts(w))
	}
}

// A short job with a limit passes the blocked head that it cannot delay.
func TestBackfill(t *testing.T) {
	tr := trace(t, "a,,q,0,100,4,,,\nb,,q,10,50,8,,,\nc,,q,20,30,2,,,\nd,,q,20,200,2,,,\n")
	tr.AssumeLimits(1)
	c, err := Partitions([]Share{{"q", 1, 8}}).Helios().Set("queue/*.backfill=EASY")
	if err != nil {
		t.Fatal(err)
	}
	w, _ := simulate(t, tr, c, Settings{})
	if got, want := starts(w), "a 0-100, b 100-150, c 20-50, d 150-350"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Who has used least goes first: a short job does not wait for long ones, and they get through.
func TestLeastAttainedService(t *testing.T) {
	var lines strings.Builder
	lines.WriteString("long,,q,0,20000,8,,,\n")
	for i := range 10 {
		fmt.Fprintf(&lines, "short%d,,q,%d,60,8,,,\n", i, 5000+1000*i)
	}
	c := Partitions([]Share{{"q", 1, 8}})
	_, fifo := simulate(t, trace(t, lines.String()), c, Settings{Restart: Restart{OneNode: 40}})
	w, las := simulate(t, trace(t, lines.String()), c.LeastAttainedService(), Settings{Restart: Restart{OneNode: 40}})
	if las.Delay.Mean > 100 || fifo.Delay.Mean < 5000 || las.Preemptions != 10 || las.Ended != 11 {
		t.Errorf("delay %v, before %v, %d preemptions", las.Delay.Mean, fifo.Delay.Mean, las.Preemptions)
	}
	if end := w.JobEnds()[0]; end.End != 20000+10*(60+40) || end.Delay != 600 {
		t.Errorf("%+v", end)
	}
}

func TestPlotIsXML(t *testing.T) {
	_, r := simulate(t, trace(t, "a,,q,0,100,8,,,\nb,,q,10,50000,8,,,\n"), Partitions([]Share{{"q", 1, 8}}), Settings{})
	var b bytes.Buffer
	if err := Plot(&b, []Variant{{"as <it> is", r}, {"other", r}}); err != nil {
		t.Fatal(err)
	}
	curves := 0
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			curves++
		}
	}
	if curves != 6 { // of each variant: cards in use, jobs waiting, the queue
		t.Errorf("%d curves", curves)
	}
}

// The engine knows why a job was evicted: the cooldown holds up whom another queue preempted, and nobody else.
func TestWhyJobsWereEvicted(t *testing.T) {
	tr := trace(t, "x,,a,0,1000,16,,,\ny,,b,10,1000,8,,,\nv,,a,11,1000,8,,,\nz,,b,20,1000,8,,,\n")
	tr.Jobs[3].Priority = 1
	c, err := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}}).Set("queue/*.withinClusterQueue=LowerPriority")
	if err != nil {
		t.Fatal(err)
	}
	w, _ := simulate(t, tr, c, Settings{Until: 30})
	for job, want := range map[int]string{0: "10s Preempted true", 1: "20s Preempted false", 2: " false", 3: " false"} {
		wl, at := w.workload(job), ""
		if !wl.EvictedAt.IsZero() {
			at = wl.EvictedAt.Sub(epoch).String() + " "
		}
		if got := fmt.Sprintf("%s%s %v", at, wl.EvictedBy, wl.PreemptedByOthers); got != want {
			t.Errorf("job %d: %s, want %s", job, got, want)
		}
	}
	w.failNode(w.nodes[w.placed[3][0].Node].at)
	if wl := w.workload(3); wl.EvictedBy != "NodeFailures" || wl.PreemptedByOthers {
		t.Errorf("after a fault: %+v", wl)
	}
}

// Without backfill a queue is ordered as it declares, whatever was set before.
func TestBackfillOffRestoresTheStrategy(t *testing.T) {
	for changes, want := range map[string]string{
		"queue/a.backfill=on":                      "true true",
		"queue/a.backfill=on,queue/a.backfill=off": "false false",
		"queue/a.backfill=EASY,queue/a.queueingStrategy=StrictFIFO,queue/a.backfill=None": "false true",
		"queue/a.queueingStrategy=StrictFIFO,queue/a.backfill=on,queue/a.backfill=off":    "false true",
		"queue/a.backfill=on,queue/a.queueingStrategy=BestEffortFIFO":                     "true true",
		"queue/a.queueingStrategy=StrictFIFO,queue/a.queueingStrategy=BestEffortFIFO":     "false false",
	} {
		q := set(t, Pool([]Share{{"a", 1, 8}}), changes).Queues[0]
		if got := fmt.Sprint(q.Backfill, q.StrictFIFO); got != want {
			t.Errorf("%s: %s, want %s", changes, got, want)
		}
	}
	// A policy's backfill is taken away from a queue that declares BestEffortFIFO.
	policy := &queuepolicy.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	policy.Spec.TargetRefs = []queuepolicy.TargetRef{{Kind: queuepolicy.KindClusterQueue, Name: "q"}}
	policy.Spec.Backfill = &queuepolicy.Backfill{Strategy: "EASY"}
	c, err := FromObjects(append(liveCluster(kueue.BestEffortFIFO), policy), admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if before, after := c.Queues[0], set(t, c, "policy/p.backfill=off").Queues[0]; !before.Backfill || !before.StrictFIFO || after.Backfill || after.StrictFIFO {
		t.Errorf("before %v %v, after %v %v", before.Backfill, before.StrictFIFO, after.Backfill, after.StrictFIFO)
	}
}

// Times of a CronJob may have commas.
func TestCommasInTimes(t *testing.T) {
	c := set(t, Pool([]Share{{"a", 1, 8}}), "queue/a.window=16@0 8,20 * * *+2h, queue/a.reservation=4@0 6,7 * * 1,2+1h,queue/a.weight=2")
	if len(c.QueuePolicies) != 1 || c.QueuePolicies[0].Spec.Quota.Windows[0].Start != "0 8,20 * * *" || c.Reservations[0].Start != "0 6,7 * * 1,2" || *c.Queues[0].FairWeight != 2 {
		t.Errorf("%+v, %+v", c.QueuePolicies, c.Reservations)
	}
}

// Names may have dots: the longest counts after which a setting follows.
func TestNamesWithDots(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}, {"a.b", 1, 8}, {"a.quota", 1, 8}})
	c.Cohorts[0].Name = "all.of.us"
	for i := range c.Queues {
		c.Queues[i].Cohort = "all.of.us"
	}
	got := set(t, c, "queue/a.quota.gpu=1,queue/a.b.quota=2,queue/a.quota.quota.gpu=3,cohort/all.of.us.fairSharing=drf")
	for i, want := range []int64{1, 2, 3} {
		if has := nominalOf(got.Queues[i].Groups, c.Cards); has != want {
			t.Errorf("%s has %d, want %d", got.Queues[i].Name, has, want)
		}
	}
	if got.Cohorts[0].Policy != admission.PolicyDRF {
		t.Errorf("%+v", got.Cohorts)
	}
	if _, err := c.Set("queue/a.c.quota=1"); err == nil || !strings.Contains(err.Error(), "the settings of queue are") {
		t.Error(err)
	}
}

// What a QueuePolicy has at LocalQueues is set there, and what it cannot have there is told.
func TestPoliciesOfLocalQueues(t *testing.T) {
	policy := &queuepolicy.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "team.x"}}
	policy.Spec.TargetRefs = []queuepolicy.TargetRef{{Kind: queuepolicy.KindLocalQueue, Namespace: "ns", Name: "jobs"}}
	local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "jobs"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}}
	c, err := FromObjects(append(liveCluster(kueue.BestEffortFIFO), policy, local), admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, changes := range []string{"policy/team.x.runTime=1h", "localqueue/ns/jobs.runTime=1h"} {
		changed := set(t, c, changes)
		wl := admission.Workload{Key: admission.Key{Namespace: "ns", Name: "w"}, LocalQueue: "jobs"}
		l := changed.newLearned()
		if got := l.expected(&wl); got.Hours() != 1 {
			t.Errorf("%s: taken to run %s", changes, got)
		}
	}
	if _, err := c.Set("policy/team.x.backfill=EASY"); err == nil || !strings.Contains(err.Error(), "QueuePolicy team.x is about no ClusterQueue; of its targets budget, quantile, reservation, runtime can be set") {
		t.Error(err)
	}
}

// Settings of the preemption and fungibility of queues, and of cohorts.
func TestMoreSettings(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}})
	got := set(t, c, "queue/a.borrowWithinCohort=LowerPriority/5,queue/a.flavorFungibility.whenCanBorrow=TryNextFlavor,queue/a.flavorFungibility.whenCanPreempt=MayStopSearch,"+
		"queue/a.flavorFungibility.preference=PreemptionOverBorrowing,queue/a.shareOfNodes=50,queue/a.headroom=10,cohort/all.weight=3,cohort/all.parent=top")
	a := got.Queues[0]
	if p := a.Preemption; !p.BorrowWithinCohort || *p.BorrowMaxPriority != 5 || a.Fungibility != (admission.Fungibility{BorrowTryNext: true, PreemptStay: true, PreferPreemption: true}) {
		t.Errorf("%+v", a)
	}
	if q := got.QueuePolicies[0].Spec.Quota; *q.Headroom != 10 || *q.ShareOfNodes != 50 {
		t.Errorf("%+v", q)
	}
	if co := got.Cohorts[0]; *co.FairWeight != 3 || co.Parent != "top" || c.Cohorts[0].Parent != "" {
		t.Errorf("%+v", co)
	}
	_, r := simulate(t, trace(t, "x,,a,0,100,4,,,\n"), got, Settings{})
	if r.ByQueue[0].Quota != 7 { // half of nine tenths of 16
		t.Errorf("quota %d", r.ByQueue[0].Quota)
	}
	for changes, want := range map[string]string{
		"cohort/all.parent=all":                               "cohort all is all, or above it",
		"cohort/all.parent=top,cohort/top.parent=all":         "cohort top is all, or above it",
		"cohort/all.weight=-1":                                "is not a weight",
		"queue/a.borrowWithinCohort=Never/3":                  "want LowerPriority, LowerPriority/PRIORITY or Never",
		"queue/a.headroom=100":                                "at most 99",
		"faults.spot=8h@B200":                                 "no node is B200; none has a model",
		"faults.stockOut=1h-2h@simulate.elasticai.io/queue=c": "no node is simulate.elasticai.io/queue=c",
	} {
		if _, err := c.Set(changes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", changes, err, want)
		}
	}
	set(t, c, "faults.spot=8h@B200,+1x8:B200")
}
