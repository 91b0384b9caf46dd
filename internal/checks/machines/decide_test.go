package machines

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

// sold are offers of flavor h100: eight cards in two zones, and four cards.
func sold() []cloud.Offer {
	at := func(zone, kind string, spot bool) cloud.Place {
		return cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: zone, InstanceType: kind, Spot: spot}
	}
	return []cloud.Offer{
		{Place: at("a", "p5.48xlarge", true), GPU: "H100", GPUs: 8, VCPUs: 192, MemoryGiB: 2048, Price: 20},
		{Place: at("b", "p5.48xlarge", true), GPU: "H100", GPUs: 8, VCPUs: 192, MemoryGiB: 2048, Price: 24},
		{Place: at("a", "p5.24xlarge", false), GPU: "H100", GPUs: 4, VCPUs: 96, MemoryGiB: 1024, Price: 30},
	}
}

func h100() *cloudv1.CloudOffer {
	return &cloudv1.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: cloudv1.CloudOfferSpec{
		Via: &cloudv1.Via{NodeClass: &cloudv1.NodeClass{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "gpu"}},
	}}
}

// asking is a workload with quota on flavor h100 for pods that each ask for so much.
func asking(count int32, cards, cpus string) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl", UID: "uid", Finalizers: []string{kueue.ResourceInUseFinalizerName}}}
	set := kueue.PodSet{Name: "main", Count: count}
	set.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"nvidia.com/gpu": resource.MustParse(cards), corev1.ResourceCPU: resource.MustParse(cpus),
	}}}}
	wl.Spec.PodSets = []kueue.PodSet{set}
	wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To(count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"},
	}}}
	return wl
}

// How many nodes of each offer the pods need; 0: they do not fit.
func TestNodesOfAGang(t *testing.T) {
	mixed := asking(3, "4", "1")
	mixed.Spec.PodSets = append(mixed.Spec.PodSets, *asking(2, "2", "1").Spec.PodSets[0].DeepCopy())
	mixed.Spec.PodSets[1].Name = "small"
	second := mixed.Status.Admission.PodSetAssignments[0]
	second.Name, second.Count = "small", ptr.To(int32(2))
	mixed.Status.Admission.PodSetAssignments = append(mixed.Status.Admission.PodSetAssignments, second)
	grown := asking(1, "1", "1")
	grown.Annotations = map[string]string{workload.ReplacesAnnotation: "ns/old"}
	inB, elsewhere, forged := asking(1, "1", "1"), asking(1, "1", "1"), asking(1, "1", "1")
	inB.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "b", "team": "x"}
	elsewhere.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "c"}
	forged.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{cloudv1.PurchaseLabel: "others-1"}
	for name, test := range map[string]struct {
		wl    *kueue.Workload
		nodes [3]int
		unfit string
	}{
		"one card":                     {asking(1, "1", "1"), [3]int{1, 1, 1}, ""},
		"a whole node each":            {asking(4, "8", "1"), [3]int{4, 4, 0}, ""},
		"three on a node":              {asking(4, "2", "50"), [3]int{2, 2, 4}, ""}, // by CPUs
		"more cards than any node has": {asking(1, "16", "1"), [3]int{}, "fit on no machine"},
		"more CPUs than any node has":  {asking(1, "1", "500"), [3]int{}, "fit on no machine"},
		"sets of two sizes":            {mixed, [3]int{2, 2, 4}, ""},
		"pods without cards":           {asking(300, "0", "0"), [3]int{3, 3, 3}, ""},
		"too many":                     {asking(mostNodes+1, "8", "1"), [3]int{}, "more than 512"},
		"absurdly many":                {asking(1<<31-1, "1", "1"), [3]int{}, "more than 512"},
		"a zone":                       {inB, [3]int{0, 1, 0}, ""},
		"no zone of ours":              {elsewhere, [3]int{}, "fit on no machine"},
		"a job that grew":              {grown, [3]int{1, 1, 1}, "changes its size"},
		"nodes of another workload":    {forged, [3]int{1, 1, 1}, "is the check's to set"},
	} {
		t.Run(name, func(t *testing.T) {
			p := podsOn(test.wl, h100())
			p.fitOn(sold(), h100())
			var nodes [3]int
			for _, o := range p.offers {
				nodes[slices.IndexFunc(sold(), func(s cloud.Offer) bool { return s.Place == o.Place })] = o.Machines
			}
			if nodes != test.nodes || !strings.Contains(p.unfit, test.unfit) || (p.unfit != "") != (test.unfit != "") {
				t.Errorf("%v, %q", nodes, p.unfit)
			}
		})
	}
}

// cluster is all NodeClaims, and what Karpenter makes of them.
type cluster struct {
	now     time.Time
	claims  []claim
	owner   map[string]types.UID // of NodeClaims by name
	learned *cloud.Learned
	closed  bool
	idleFor time.Duration
	moves   int // how often a workload may go back to spot nodes
	without int // so many of the first offers are not sold any more
	// spotAlone has the flavor sell spot nodes alone, and sibling those on demand by another one.
	spotAlone, sibling bool
}

// world is a workload in a cluster, on which decisions are carried out.
type world struct {
	*cluster
	wl     *kueue.Workload
	phase  phase
	state  kueue.AdmissionCheckState
	bought []purchase
}

func newWorld(wl *kueue.Workload) *world {
	return (&cluster{now: noon, learned: &cloud.Learned{}, owner: map[string]types.UID{}}).with(wl)
}

func (c *cluster) with(wl *kueue.Workload) *world {
	return &world{cluster: c, wl: wl, phase: wants, state: kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}}
}

func (w *world) view() *view {
	p := podsOn(w.wl, h100())
	offers := sold()[w.without:]
	if w.spotAlone {
		offers = slices.DeleteFunc(offers, func(o cloud.Offer) bool { return !o.Spot })
	}
	p.fitOn(offers, h100())
	if w.sibling && workload.MayBeHandedOver(w.wl) {
		onDemand := h100()
		onDemand.Name = "h100-on-demand"
		p.others = p.onDemandOf(w.wl, sold(), onDemand)
	}
	p.bring(w.wl, h100())
	p.known = p.known || w.closed
	v := &view{
		now: w.now, workload: "ns/" + w.wl.Name, uid: w.wl.UID, phase: w.phase, state: w.state, parts: []part{p}, learned: w.learned.Clone(),
		keepIdle: map[string]time.Duration{"h100": w.idleFor}, claims: w.mine(), made: lastAttempt(w.wl.UID, w.claims),
	}
	v.run, v.declared = workload.RunTime(w.wl)
	v.history(w.wl)
	v.moves, v.moving = map[string]int{"h100": w.moves}, moving(w.wl)
	v.terms, _ = workload.PurchaseTermsOf(w.wl.Annotations)
	if w.phase == wants {
		v.pool = slices.DeleteFunc(slices.Clone(w.claims), func(c claim) bool { return !c.idle() })
		for i := range v.pool {
			v.pool[i].unfit = slices.ContainsFunc(w.claims, func(c claim) bool {
				return c.label == v.pool[i].label && (c.held || !c.deleted) && !c.idle() && w.owner[c.name] != w.wl.UID
			})
		}
	}
	return v
}

func (w *world) mine() (list []claim) {
	for i := range w.claims {
		if w.owner[w.claims[i].name] == w.wl.UID {
			list = append(list, w.claims[i])
		}
	}
	return list
}

// step decides and does what was decided, of it the first so many writes: then the program is killed.
func (w *world) step(writes int) (plan, bool) {
	v := w.view()
	p := decide(v)
	do := func(f func()) {
		if writes > 0 {
			f()
		}
		writes--
	}
	if len(p.counted) > 0 {
		do(func() { w.learned = v.learned })
	}
	named := func(name string) *claim {
		return &w.claims[slices.IndexFunc(w.claims, func(c claim) bool { return c.name == name })]
	}
	for _, name := range p.letGo {
		do(func() { named(name).held = false })
		do(func() { named(name).deleted = true })
	}
	for _, name := range p.toIdle {
		do(func() { named(name).Idle = w.now })
	}
	if p.state != nil {
		do(func() { w.state = *p.state })
	}
	for _, a := range p.adopt {
		do(func() { named(a.name).purchase, w.owner[a.name] = a.purchase, w.wl.UID })
	}
	for _, b := range p.buy {
		do(func() {
			name := b.name(w.wl.UID)
			if slices.ContainsFunc(w.claims, func(c claim) bool { return c.name == name }) {
				panic(name + " is made twice")
			}
			w.claims = append(w.claims, claim{purchase: b, name: name, label: b.group(w.wl.UID), created: w.now, expires: w.now.Add(48 * time.Hour), held: true})
			w.owner[name] = w.wl.UID
			w.bought = append(w.bought, b)
		})
	}
	w.claims = slices.DeleteFunc(w.claims, func(c claim) bool { return c.deleted && !c.held })
	return p, writes >= 0
}

func (w *world) register() {
	for i := range w.claims {
		c := &w.claims[i]
		if c.live() && !c.registered {
			if !c.launched {
				c.launched, c.launchedAt = true, w.now
			}
			c.registered, c.registeredAt = true, w.now
		}
	}
}

func (w *world) live() (n int) {
	for _, c := range w.mine() {
		if c.live() {
			n++
		}
	}
	return n
}

func TestOneWorkloadOneOffer(t *testing.T) {
	w := newWorld(asking(2, "8", "1"))
	w.step(99)
	if len(w.claims) != 2 || w.claims[0].Place != sold()[0].Place || w.claims[0].name != "elastic-uid-1-0" || w.state.Message != "0 of 2 nodes there: aws/us-east-1/a p5.48xlarge spot" {
		t.Fatalf("%+v, %q", w.claims, w.state.Message)
	}
	w.claims[1].launched, w.claims[1].registered, w.claims[1].registeredAt = true, true, w.now
	if w.step(99); w.state.State != kueue.CheckStatePending || w.state.Message != "1 of 2 nodes there: aws/us-east-1/a p5.48xlarge spot" || len(w.bought) != 2 {
		t.Fatalf("%+v", w.state)
	}
	w.now = w.now.Add(4 * time.Minute)
	w.register()
	w.step(99)
	if w.state.State != kueue.CheckStateReady || len(w.state.PodSetUpdates) != 1 || w.state.PodSetUpdates[0].Annotations[cloudv1.PriceAnnotation] != "40.00" || w.state.PodSetUpdates[0].NodeSelector[cloudv1.PurchaseLabel] != "uid-1" {
		t.Fatalf("%+v", w.state)
	}
	if seen := w.learned.Of(sold()[0].Place); seen == nil || !seen.Obtainable || seen.StartUpHours != (4*time.Minute).Hours() {
		t.Errorf("learned %+v", seen)
	}
	if at := w.state.PodSetUpdates[0].Annotations[cloudv1.BoughtAtAnnotation]; at != noon.Format(time.RFC3339) {
		t.Errorf("ordered at %q", at)
	}
	if p, _ := w.step(99); len(p.letGo)+len(p.buy)+len(p.counted) > 0 {
		t.Errorf("it is done, and does %+v", p)
	}
	w.phase = gone
	if w.step(99); len(w.claims) > 0 {
		t.Errorf("left: %+v", w.claims)
	}
}

// Where nobody makes the nodes of an attempt, as Karpenter does not run, or says nothing of them, it ends: one stock-out is counted, and other places are
// tried. A CloudOffer that says that nodes take long to start is waited for longer.
func TestNobodyMakesTheNodes(t *testing.T) {
	w := newWorld(asking(2, "8", "1"))
	w.step(99)
	w.claims[0].registered, w.claims[0].registeredAt = true, w.now
	w.now = w.now.Add(longestStart - time.Second)
	if p, _ := w.step(99); w.live() != 2 || p.again != time.Second {
		t.Fatalf("%+v, looks again in %s", w.claims, p.again)
	}
	w.now = w.now.Add(time.Second)
	v := w.view()
	v.parts[0].startUp = time.Hour
	if p := decide(v); len(p.letGo) > 0 || p.again != 100*time.Minute {
		t.Errorf("its nodes take an hour to start: %+v", p)
	}
	w.step(1) // it is killed once that is learned
	w.step(99)
	seen := w.learned.Of(sold()[0].Place)
	if seen == nil || seen.Obtainable || seen.Failures != 1 || w.live() != 2 || w.claims[len(w.claims)-1].Place != sold()[1].Place {
		t.Errorf("%+v, %+v", seen, w.claims)
	}
}

// Who may run longer than the nodes live is told so. They are deleted all the same: that is the end of what a mistake can cost.
func TestNodesThatEndBeforeTheWorkload(t *testing.T) {
	for hours, want := range map[int32]string{
		47: "1 node: aws/us-east-1/a p5.48xlarge spot",
		49: "1 node: aws/us-east-1/a p5.48xlarge spot; they are deleted by 2026-11-19 12:00 UTC (expireAfter of the CloudOffer), and it may run longer",
		0:  "1 node: aws/us-east-1/a p5.48xlarge spot", // it does not say
	} {
		w := newWorld(asking(1, "8", "1"))
		if hours > 0 {
			w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(hours * 3600)
		}
		w.step(99)
		w.register()
		if w.step(99); w.state.Message != want {
			t.Errorf("%d hours: %q", hours, w.state.Message)
		}
	}
}

// A stock-out closes the place for all, siblings go, and the next offer is tried at once; when all are closed the check
// says Retry, once the CloudOffer says so.
func TestStockOut(t *testing.T) {
	w := newWorld(asking(2, "4", "60")) // on one node of eight cards, or two of four
	refuse := func() {
		w.now = w.now.Add(10 * time.Second)
		for i := range w.claims {
			w.claims[i].deleted = w.claims[i].live() && w.claims[i].Node == 0 // Karpenter deletes what it cannot launch
		}
	}
	for attempt, want := range []cloud.Place{sold()[0].Place, sold()[1].Place, sold()[2].Place} {
		w.step(99)
		last := w.bought[len(w.bought)-1]
		if last.Place != want || last.Attempt != attempt+1 {
			t.Fatalf("attempt %d is at %v", last.Attempt, last.Place)
		}
		refuse()
	}
	w.step(99)
	if w.state.State != kueue.CheckStatePending || w.live() != 0 {
		t.Fatalf("%+v, %d live", w.state, w.live())
	}
	w.closed = true
	w.step(99)
	if w.state.State != kueue.CheckStateRetry || ptr.Deref(w.state.RequeueAfterSeconds, 0) != 1 || len(w.claims) != 0 {
		t.Fatalf("%+v, %+v", w.state, w.claims)
	}
	for _, o := range sold() {
		if seen := w.learned.Of(o.Place); seen.Failures != 1 || seen.Closed(o.Machines+2, w.now).IsZero() {
			t.Errorf("%s: %+v", o.Place, seen)
		}
	}
	w.state.State, w.state.RetryCount = kueue.CheckStatePending, ptr.To(int32(12))
	if w.step(99); w.state.State != kueue.CheckStateRetry || ptr.Deref(w.state.RequeueAfterSeconds, 0) < 60 || ptr.Deref(w.state.RequeueAfterSeconds, 0) > 120 {
		t.Errorf("after many tries it waits until a place opens: %+v", w.state)
	}
	if len(w.bought) != 4 {
		t.Errorf("%d nodes were asked for", len(w.bought))
	}
}

// Nodes are bought beside the input of a workload where that costs less than to bring it elsewhere. What it says that cannot be read
// changes nothing, and a CloudOffer may say that bringing it costs nothing.
func TestNodesBesideTheInput(t *testing.T) {
	free := h100()
	free.Spec.Egress = cloudv1.Egress{OtherRegion: ptr.To(resource.MustParse("0")), OtherCloud: ptr.To(resource.MustParse("0"))}
	for name, test := range map[string]struct {
		size, in string
		offer    *cloudv1.CloudOffer
		want     string
	}{
		"none":             {"", "", h100(), "us-west-2"},
		"little":           {"1Gi", "aws/us-east-1", h100(), "us-west-2"},
		"much":             {"10Ti", "aws/us-east-1", h100(), "us-east-1"},
		"of another cloud": {"10Ti", "gcp/us-central1", h100(), "us-west-2"},
		"for nothing":      {"10Ti", "aws/us-east-1", free, "us-west-2"},
		"absurd":           {"1e300", "aws/us-east-1", h100(), "us-west-2"},
		"an unknown place": {"10Ti", "moon/sea", h100(), "us-west-2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(asking(1, "4", "1"))
			if test.size != "" {
				w.wl.Annotations = map[string]string{cloudv1.InputSizeAnnotation: test.size, cloudv1.InputRegionAnnotation: test.in}
			}
			east := sold()[0]
			east.Region, east.Price = "us-east-1", 30
			west := east
			west.Region, west.Price = "us-west-2", 20
			v := w.view()
			p := podsOn(w.wl, test.offer)
			p.fitOn([]cloud.Offer{east, west}, test.offer)
			p.bring(w.wl, test.offer)
			v.parts = []part{p}
			if plan := decide(v); len(plan.buy) != 1 || plan.buy[0].Place.Region != test.want {
				t.Errorf("%+v", plan.buy)
			}
		})
	}
}

// waitsUntil is what a workload says whose run of an hour, start-up of ten minutes and margin of three end at 8 the next day.
var waitsUntil = regexp.MustCompile(`^waits for spot nodes of flavor h100 until 2026-\d\d-\d\d 06:47 UTC at the latest: about \$\d+ are expected, and on demand now \$\d+$`)

// A workload with a deadline waits for spot nodes that are sold out, while it has time, and says so; then it buys on demand.
// Without a deadline it does not wait.
func TestWaitsForSpot(t *testing.T) {
	start := func(deadline string) *world {
		w := newWorld(asking(1, "4", "1"))
		w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(3600))
		w.wl.Annotations = map[string]string{cloudv1.DeadlineAnnotation: deadline, cloudv1.CheckpointAnnotation: "10m"}
		for _, o := range sold()[:2] {
			w.learned.StockOut(o.Place, 1, w.now)
		}
		return w
	}
	w := start(noon.Add(20 * time.Hour).Format(time.RFC3339))
	p, _ := w.step(99)
	if len(w.bought) > 0 || w.state.State != kueue.CheckStatePending || !waitsUntil.MatchString(w.state.Message) || p.again <= 0 || p.again > cloud.LookAgain {
		t.Fatalf("%+v, bought %+v, look again in %v", w.state, w.bought, p.again)
	}
	said := w.state.Message
	for range 30 { // what it says is written into a status that is watched, and must not change by being asked
		w.now = w.now.Add(time.Second)
		if w.step(99); w.state.Message != said {
			t.Fatalf("%s, and then %s", said, w.state.Message)
		}
	}
	w.now = noon.Add(19*time.Hour - 10*time.Minute)
	for _, o := range sold()[:2] {
		w.learned.StockOut(o.Place, 1, w.now)
	}
	if w.step(99); len(w.bought) != 1 || w.bought[0].Place != sold()[2].Place {
		t.Fatalf("%+v, bought %+v", w.state, w.bought)
	}
	for name, deadline := range map[string]string{"none": "", "unreadable": "soon", "passed": "2020-01-01T00:00:00Z"} {
		w := start(deadline)
		if w.step(99); len(w.bought) != 1 || w.bought[0].Place != sold()[2].Place {
			t.Errorf("%s: %+v, bought %+v", name, w.state, w.bought)
		}
	}
	far := start("9999-12-31T00:00:00Z").view()
	if got := far.job(&far.parts[0]).Deadline; got != noon.Add(longestWait) {
		t.Errorf("a deadline counts however far it is: %v", got)
	}
}

// All nodes of a gang that are refused, and gangs that are refused at the same time, are one failure.
func TestOneFailureIsCountedOnce(t *testing.T) {
	w := newWorld(asking(4, "8", "1"))
	w.step(99)
	first := w.claims[0].Place
	for i := range w.claims {
		w.claims[i].deleted = true
	}
	w.now = w.now.Add(time.Second)
	if w.step(99); w.learned.Of(first).Failures != 1 {
		t.Errorf("%+v", w.learned.Of(first))
	}
}

// A node that is lost while the workload runs evicts it; the other nodes stay until its pods have stopped, and so does what says
// what they cost: the account of the run is made from that.
func TestLostNode(t *testing.T) {
	w := newWorld(asking(2, "8", "1"))
	w.step(99)
	w.register()
	w.step(99)
	first := w.claims[0].Place
	w.now = w.now.Add(time.Hour)
	w.claims[1].deleted = true
	w.step(99)
	if w.state.State != kueue.CheckStateRetry || !strings.Contains(w.state.Message, "MachineLost: a node was lost: elastic-uid-1-1") || w.live() != 1 {
		t.Fatalf("%+v, %d live", w.state, w.live())
	}
	if len(w.state.PodSetUpdates) != 1 || w.state.PodSetUpdates[0].Annotations[cloudv1.PriceAnnotation] == "" {
		t.Errorf("what its nodes cost is forgotten before the run is accounted for: %+v", w.state)
	}
	if seen := w.learned.Of(first); seen.Losses == 0 || seen.Closed(2, w.now).IsZero() {
		t.Errorf("learned %+v", seen)
	}
	w.phase = gone
	if w.step(99); len(w.claims) != 0 || w.learned.Of(first).Obtainable {
		t.Errorf("left: %+v, learned %+v", w.claims, w.learned.Of(first))
	}
}

// A workload that is on another flavor now, or has other pods, has no nodes of the old.
func TestOtherNodesThanBefore(t *testing.T) {
	w := newWorld(asking(2, "8", "1"))
	w.step(99)
	w.wl = asking(3, "8", "1")
	if w.step(99); w.live() != 3 || w.claims[len(w.claims)-1].Attempt != 2 || len(w.claims) != 3 {
		t.Errorf("%+v", w.claims)
	}
	w.claims = append(w.claims, claim{purchase: purchase{Flavor: "other", Nodes: 1, Attempt: 7}, name: "other", held: true}, claim{name: "unreadable", held: true}, claim{name: "let-go"})
	w.owner["other"], w.owner["unreadable"], w.owner["let-go"] = "uid", "uid", "uid"
	if w.step(99); len(w.claims) != 3 {
		t.Errorf("%+v", w.claims)
	}
}

// runs takes a workload through to all its nodes.
func (w *world) runs(t *testing.T) {
	t.Helper()
	w.step(99)
	w.register()
	if w.step(99); w.state.State != kueue.CheckStateReady {
		t.Fatalf("%+v", w.state)
	}
}

// named is a workload of another name than that of asking.
func named(name string, wl *kueue.Workload) *kueue.Workload {
	wl.Name, wl.UID = name, types.UID(name)
	return wl
}

// The next workload takes over nodes that are idle, without a purchase; what it lacks is bought beside them, and what it does
// not need goes. Idle nodes end when their time is up.
func TestIdleNodes(t *testing.T) {
	first := newWorld(asking(2, "8", "1"))
	c := first.cluster
	c.idleFor = 10 * time.Minute
	first.runs(t)
	first.phase = gone
	if p, _ := first.step(99); c.idle() != 2 || p.again != c.idleFor {
		t.Fatalf("%+v, look again in %v", c.claims, p.again)
	}
	c.now = c.now.Add(9 * time.Minute)
	if p, _ := first.step(99); c.idle() != 2 || p.again != time.Minute {
		t.Fatalf("%+v, look again in %v", c.claims, p.again)
	}
	same := c.with(named("same", asking(2, "8", "1")))
	same.step(99)
	if same.step(99); same.state.State != kueue.CheckStateReady || len(same.bought) > 0 || same.state.PodSetUpdates[0].NodeSelector[cloudv1.PurchaseLabel] != "uid-1" {
		t.Fatalf("%+v, bought %+v", same.state, same.bought)
	}
	if at, has := same.state.PodSetUpdates[0].Annotations[cloudv1.BoughtAtAnnotation]; has {
		t.Errorf("nodes that were there count as ordered at %q", at)
	}
	if seen := c.learned.Of(sold()[0].Place); seen.StartUpHours > 0.01 {
		t.Errorf("nodes that were there count as a start-up of %v h", seen.StartUpHours)
	}
	// The first has quota again. Numbers of its attempts that others have nodes of are not used again.
	first.phase, first.state.State = wants, kueue.CheckStatePending
	first.step(99)
	if last := first.bought[len(first.bought)-1]; last.Attempt != 2 || len(first.bought) != 4 {
		t.Errorf("bought %+v", first.bought)
	}
	first.phase = gone
	first.step(99) // nothing is registered: all of it goes
	same.phase = gone
	same.step(99)
	larger := c.with(named("larger", asking(3, "8", "1")))
	larger.step(99)
	if len(larger.bought) != 1 || larger.live() != 3 || larger.bought[0].Bought != 1 || larger.bought[0].Place != sold()[0].Place {
		t.Fatalf("bought %+v beside %+v", larger.bought, c.claims)
	}
	larger.runs(t)
	larger.phase = gone
	larger.step(99)
	smaller := c.with(named("smaller", asking(1, "8", "1")))
	smaller.step(99)
	if smaller.step(99); smaller.state.State != kueue.CheckStateReady || len(smaller.bought) > 0 || len(c.claims) != 1 {
		t.Fatalf("%+v, %+v", smaller.state, c.claims)
	}
	smaller.phase = gone
	smaller.step(99)
	c.now = c.now.Add(c.idleFor)
	if smaller.step(99); len(c.claims) > 0 {
		t.Errorf("their time is up: %+v", c.claims)
	}
}

// Idle nodes are no reason to pay more, and not for who would outlive them; they make way for what is bought.
func TestIdleNodesThatDoNotServe(t *testing.T) {
	first := newWorld(asking(1, "8", "1"))
	c := first.cluster
	c.idleFor = time.Hour
	first.wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "b"}
	first.runs(t)
	if first.phase = gone; first.claims[0].Place != sold()[1].Place {
		t.Fatalf("%+v", first.claims)
	}
	first.step(99)
	long := c.with(named("long", asking(1, "8", "1")))
	long.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(24 * 3600))
	if long.step(99); len(long.bought) != 1 || long.bought[0].Place != sold()[0].Place || c.idle() != 0 {
		t.Errorf("bought %+v, idle %d", long.bought, c.idle())
	}
	long.runs(t)
	long.phase = gone
	long.step(99)
	c.claims[0].created, c.claims[0].expires = c.now.Add(-46*time.Hour), c.now.Add(2*time.Hour)
	for name, wl := range map[string]*kueue.Workload{"for-three-hours": asking(1, "8", "1"), "undeclared": asking(1, "8", "1")} {
		if name != "undeclared" {
			wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(3 * 3600))
		}
		if v := c.with(named(name, wl)).view(); v.serves(&v.pool[0]) {
			t.Errorf("%s takes over %+v", name, v.pool)
		}
	}
	short := asking(1, "8", "1")
	short.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(3600))
	if v := c.with(named("short", short)).view(); !v.serves(&v.pool[0]) {
		t.Errorf("%+v is not taken over", c.claims)
	}
	// One that is lost while it is idle is a loss.
	c.claims[0].deleted = true
	if long.step(99); len(c.claims) > 0 || c.learned.Of(sold()[0].Place).Losses == 0 {
		t.Errorf("%+v", c.learned.Of(sold()[0].Place))
	}
}

// TestAnyHistory: whatever Karpenter does and whenever the program is killed, a workload has nodes of at most one attempt and
// no more than it needs, is ready only with all of them, tries no place that is closed, shares no node and no label with
// another one, and leaves nothing behind once nodes have been idle for long enough.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newWorld(nil).cluster
		c.idleFor = time.Duration(rapid.SampledFrom([]int{0, 5, 30}).Draw(t, "minutes idle")) * time.Minute
		var worlds []*world
		for i := range rapid.IntRange(1, 3).Draw(t, "workloads") {
			wl := asking(int32(rapid.IntRange(1, 5).Draw(t, "pods")), rapid.SampledFrom([]string{"1", "4", "8"}).Draw(t, "cards"), "1")
			wl.Name, wl.UID = fmt.Sprint("wl-", i), types.UID(fmt.Sprintf("uid-%d", i))
			worlds = append(worlds, c.with(wl))
		}
		most := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w := worlds[rapid.IntRange(0, len(worlds)-1).Draw(t, "whose turn")]
			w.happens(t)
			known := w.learned.Clone()
			before := len(w.bought)
			p, whole := w.step(rapid.SampledFrom([]int{99, 99, 99, 0, 1, 2, 3, 5}).Draw(t, "writes before it is killed"))
			for _, b := range w.bought[before:] {
				if !known.Of(b.Place).Closed(b.wanted(), w.now).IsZero() {
					t.Fatalf("bought at %v, which is closed", b.Place)
				}
			}
			w.holds(t, p, whole)
			c.apart(t)
			live := 0
			for i := range worlds {
				live += worlds[i].live()
			}
			if most = max(most, live); whole && live+c.idle() > max(most, live) {
				t.Fatalf("%d nodes, and there were never more than %d in use: %+v", live+c.idle(), most, c.claims)
			}
		}
		for range 3 {
			for _, w := range worlds {
				w.phase = gone
				w.step(99)
			}
			c.now = c.now.Add(c.idleFor)
		}
		if len(c.claims) > 0 {
			t.Fatalf("left behind: %+v", c.claims)
		}
	})
}

func (c *cluster) idle() (n int) {
	for i := range c.claims {
		if c.claims[i].idle() {
			n++
		}
	}
	return n
}

// apart checks that nodes with one label are of one workload, of those that have them now.
func (c *cluster) apart(t *rapid.T) {
	labels := map[string]types.UID{}
	for i := range c.claims {
		claim := &c.claims[i]
		if !claim.live() {
			continue
		}
		if other, has := labels[claim.label]; has && other != c.owner[claim.name] {
			t.Fatalf("%s and %s have nodes with label %s: %+v", other, c.owner[claim.name], claim.label, c.claims)
		}
		labels[claim.label] = c.owner[claim.name]
	}
}

// happens is something that Karpenter, the engine or time does.
func (w *world) happens(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
	w.closed = rapid.Bool().Draw(t, "the CloudOffer says closed")
	if len(w.claims) > 0 {
		c := &w.claims[rapid.IntRange(0, len(w.claims)-1).Draw(t, "which")]
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			c.deleted = true
		case 1:
			c.refused = !c.launched
		case 2:
			if !c.launched && !c.refused {
				c.launched, c.launchedAt = true, w.now
			}
		default:
			w.register()
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "engine") {
	case 0:
		w.phase = gone
	case 1:
		if w.phase == gone { // it has quota again
			w.phase, w.state = wants, kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending, RetryCount: ptr.To(ptr.Deref(w.state.RetryCount, 0) + 1)}
		}
	case 2:
		if w.phase == wants && w.state.State == kueue.CheckStateRetry {
			w.phase = holds
		}
	}
	if w.phase == wants && (w.state.State == kueue.CheckStateRetry || w.state.State == kueue.CheckStateRejected) {
		w.phase = gone
	}
}

// holds checks what must be true after each step.
func (w *world) holds(t *rapid.T, p plan, whole bool) {
	attempts := map[int]bool{}
	mine := w.mine()
	for i := range mine {
		if c := &mine[i]; c.live() {
			attempts[c.Attempt] = true
			if c.Node >= c.Nodes || w.live() > c.Nodes && whole {
				t.Fatalf("more nodes than %d: %+v", c.Nodes, w.claims)
			}
		}
	}
	if whole && len(attempts) > 1 {
		t.Fatalf("nodes of %d attempts: %+v", len(attempts), w.claims)
	}
	if w.phase == wants && whole && w.live() > 0 && w.state.State == kueue.CheckStatePending {
		w.saleIsKnown(t, mine)
	}
	if w.phase == wants && p.state != nil && p.state.State == kueue.CheckStateReady && whole {
		group := p.state.PodSetUpdates[0].NodeSelector[cloudv1.PurchaseLabel]
		for i := range mine {
			c := &mine[i]
			if c.live() && (!c.registered || c.label != group) {
				t.Fatalf("ready with %s, which is not there: %+v", group, w.claims)
			}
			if c.live() && w.live() != c.Nodes {
				t.Fatalf("ready with %d of %d nodes: %+v", w.live(), c.Nodes, w.claims)
			}
		}
		if w.live() == 0 {
			t.Fatal("ready without a node")
		}
	}
}

// What is asked of Karpenter comes from the CloudOffer and the flavor.
func TestNodeClaimOfAPurchase(t *testing.T) {
	flavor := &kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"pool": "h100", uidLabel: "forged"}, NodeTaints: []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
	}}
	offer := h100()
	offer.Spec.Via.ZoneLabel, offer.Spec.Via.ExpireAfter = "topology.k8s.aws/zone-id", "12h"
	p := purchase{Workload: "ns/wl", Flavor: "h100", Place: sold()[0].Place, Attempt: 3, Node: 1, Nodes: 2}
	n, err := newClaim(asking(2, "8", "1"), &p, 8, offer, flavor)
	if err != nil {
		t.Fatal(err)
	}
	var wants []string
	for _, r := range n.Spec.Requirements {
		wants = append(wants, fmt.Sprint(r.Key, r.Operator, r.Values))
	}
	if got := strings.Join(wants, " "); got != "karpenter.sh/capacity-typeIn[spot] node.kubernetes.io/instance-typeIn[p5.48xlarge] topology.k8s.aws/zone-idIn[a] topology.kubernetes.io/regionIn[us-east-1]" {
		t.Errorf("requirements %s", got)
	}
	cards := n.Spec.Resources.Requests["nvidia.com/gpu"]
	if n.Name != "elastic-uid-3-1" || n.Labels[uidLabel] != "uid" || n.Labels["pool"] != "h100" || n.Labels[cloudv1.PurchaseLabel] != "uid-3" || cards.Value() != 8 ||
		n.Spec.ExpireAfter != "12h" || n.Spec.TerminationGracePeriod != "1h" || n.Spec.NodeClassRef.Name != "gpu" || len(n.Spec.Taints) != 1 || n.Labels["karpenter.sh/nodepool"] != "" {
		t.Errorf("%+v", n)
	}
	read := readClaim(n)
	if read.purchase != p || !read.live() || workloadOf(n).String() != "ns/wl" {
		t.Errorf("read again: %+v", read)
	}
	n.Annotations[purchaseAnnotation] = "{"
	if read := readClaim(n); read.Nodes != 0 || workloadOf(n).String() != "/" {
		t.Errorf("unreadable: %+v", read)
	}
}

// What was learned of workloads like it counts for one that does not say how long it runs, and nothing else changes for one that does.
func TestLearnedRunTimes(t *testing.T) {
	for _, c := range []struct {
		name                            string
		declared, learned, before, want time.Duration
		saves                           bool
	}{
		{"nobody knows", 0, 0, 0, time.Hour, true},
		{"learned", 0, 5 * time.Hour, 0, 5 * time.Hour, false},
		{"declared, which is a limit", 10 * time.Hour, 5 * time.Hour, time.Hour, 9 * time.Hour, true},
		{"part of it is done and saved", 0, 5 * time.Hour, 2 * time.Hour, 3 * time.Hour, true},
		{"part of it is done and lost", 0, 5 * time.Hour, 2 * time.Hour, 5 * time.Hour, false},
		{"it has run for longer than others", 0, 5 * time.Hour, 7 * time.Hour, 5 * time.Hour, true},
	} {
		v := &view{run: cmp.Or(c.declared, time.Hour), declared: c.declared > 0, learnedRun: c.learned, before: c.before}
		if c.saves {
			v.terms.Checkpoint = 30 * time.Minute
		}
		if got := v.job(&part{}).Left; got != c.want {
			t.Errorf("%s: %s are left, want %s", c.name, got, c.want)
		}
	}
}
