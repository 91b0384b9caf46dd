package world

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// Half of the cards of two nodes are a's. One is lost at 1000 s for two hours: its quota is half of eight once the grace has
// passed, and what ran goes on.
func TestQuotasFollowNodes(t *testing.T) {
	c := set(t, Pool([]Share{{"a", 1, 8}, {"b", 1, 8}}), "queue/a.shareOfNodes=50/10m,queue/a.borrowingLimit=0")
	tr := trace(t, "first,,a,0,3000,4,,,\nin-grace,,a,1300,5,4,,,\nlater,,a,1700,50,4,,,\nlast,,a,9000,50,8,,,\n")
	w, err := New(tr, c, Settings{Check: true, Until: 999})
	if err != nil {
		t.Fatal(err)
	}
	w.settings.Until = 0
	w.events.push(event{at: 1000, kind: nodeFails, of: 1})
	w.settings.Faults = Faults{Every: 1 << 40, Down: 7200}
	if _, err = w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The lost node is the one on which nobody is, whichever that is, or first begins again.
	if got, want := starts(w), "first 0-3000, in-grace 1300-1305, later 3000-3050, last 9000-9050"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r := w.report()
	if g := r.ByQueue[0]; g.QuotaChanges != 2 || g.Quota < 5 || g.Quota > 6 {
		t.Errorf("%+v", g)
	}
	if declared := c.Queues[0].Groups[0].Flavors[0].Quotas[CardResource].Nominal; declared != 8 {
		t.Errorf("the cluster of the caller has a quota of %d now", declared)
	}
}

// At night the queue has twelve cards, by day four: what waits for more starts at eight in the evening.
func TestQuotaWindows(t *testing.T) {
	c := set(t, Pool([]Share{{"a", 2, 8}}), "queue/a.quota=4,queue/a.window=12@0 20 * * *+10h")
	tr := trace(t, "small,,a,25200,60,4,,,\nlarge,,a,25201,60,12,,,\nnever,,a,25202,60,16,,,\nnext,,a,75600,43200,12,,,\nday,,a,108000,60,1,,,\n")
	w, r := simulate(t, tr, c, Settings{})
	// It runs on when the night is over, and then nobody else starts.
	if got, want := starts(w), "small 25200-25260, large 72000-72060, never -1--1, next 75600-118800, day 118800-118860"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r.Never != 1 || r.ByQueue[0].QuotaChanges < 3 {
		t.Errorf("%+v", r)
	}
}

// Quotas of a cluster that follow nodes go on from what elastic-queue stored of them.
func TestQuotasOfACluster(t *testing.T) {
	objects := liveCluster(kueue.BestEffortFIFO)
	p := &queuepolicy.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.TargetRefs = []queuepolicy.TargetRef{{Kind: queuepolicy.KindClusterQueue, Name: "q"}}
	p.Spec.Quota = &queuepolicy.Quota{ShareOfNodes: ptr.To[int32](50), Windows: []queuepolicy.Window{{
		Name: "w", Start: "0 13 * * *", Duration: "1h", Quotas: []queuepolicy.WindowQuota{{Flavor: "f", Resource: CardResource, NominalQuota: resource.MustParse("3")}},
	}}}
	c, err := FromObjects(append(objects, p), admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	c.Start = now
	quota := func(c *Cluster, until int64) int64 {
		t.Helper()
		w, _ := simulate(t, trace(t, "a,,q,0,1,1,,,\nb,,q,20000,1,1,,,\n"), c, Settings{Until: until})
		return nominalOf(w.cluster.Queues[0].Groups, CardResource)
	}
	cards := c.TotalCards()
	if got := quota(c, 10); got != cards/2 {
		t.Errorf("%d of %d cards", got, cards)
	}
	if got := quota(c, 3700); got != 3 { // it is twelve when it begins
		t.Errorf("%d in the window", got)
	}
	if got := quota(set(t, c, "queue/q.window=off,policy/p.shareOfNodes=100"), 3700); got != cards {
		t.Errorf("%d of %d cards with all of them", got, cards)
	}
	declared := nominalOf(c.Queues[0].Groups, CardResource)
	if got := quota(set(t, c, "queue/q.window=off,queue/q.shareOfNodes=off"), 3700); got != declared {
		t.Errorf("%d, want the %d that are declared", got, declared)
	}
}

// Five jobs like them have run for a minute: the sixth is taken to run as long, and passes the head, which waits for long to
// end. Without a policy nobody knows how long it will run, and it waits.
func TestLearnedRunTimes(t *testing.T) {
	jobs := ""
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		jobs += name + ",,q,0,60,1,,,\n"
	}
	jobs += "long,,q,100,10000,4,,,\nhead,,q,200,100,8,,,\nlike,,q,300,60,1,,,\n"
	for policies, want := range map[string]int64{"queue/q.backfill=EASY": 10200, "queue/q.backfill=EASY,queue/q.quantile=80": 300, "queue/q.backfill=EASY,queue/q.runTime=3h": 10200, "queue/q.backfill=EASY,queue/q.runTime=1h": 300} {
		tr := trace(t, jobs)
		tr.Jobs[5].Limit = 10000
		w, _ := simulate(t, tr, set(t, Partitions([]Share{{"q", 1, 8}}), policies), Settings{})
		if got := w.JobEnds()[7]; got.Start != want {
			t.Errorf("%s: %s, want like at %d", policies, starts(w), want)
		}
	}
}

// What has ended in the cluster before is learned from.
func TestLearnsFromWhatEnded(t *testing.T) {
	objects := append(liveCluster(kueue.BestEffortFIFO), waitingWorkload("waits", 3, time.Minute),
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}})
	p := &queuepolicy.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.TargetRefs = []queuepolicy.TargetRef{{Kind: queuepolicy.KindClusterQueue, Name: "q"}}
	p.Spec.Backfill = &queuepolicy.Backfill{Quantile: ptr.To[int32](90)}
	objects = append(objects, p)
	for i := range 5 {
		wl := waitingWorkload(fmt.Sprint("ended-", i), 3, time.Hour)
		wl.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
			{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour + 48*time.Second))},
		}
		objects = append(objects, wl)
	}
	c, err := FromObjects(objects, admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := simulate(t, trace(t, "a,,q,0,1,1,,,\n").With(c, Lengths{}), c, Settings{Until: 1})
	if wl := w.workload(1); wl.ExpectedRunTime != 48*time.Second {
		t.Errorf("%+v", wl)
	}
}
