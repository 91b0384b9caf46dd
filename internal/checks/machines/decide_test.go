package machines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Via: &cloudv1.Via{NodeClass: cloudv1.NodeClass{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "gpu"}},
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

// world is a workload, its NodeClaims and what Karpenter makes of them, on which decisions are carried out.
type world struct {
	now     time.Time
	wl      *kueue.Workload
	phase   phase
	state   kueue.AdmissionCheckState
	claims  []claim
	learned *cloud.Learned
	closed  bool
	bought  []purchase
}

func newWorld(wl *kueue.Workload) *world {
	return &world{now: noon, wl: wl, phase: wants, state: kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}, learned: &cloud.Learned{}}
}

func (w *world) view() *view {
	p := podsOn(w.wl, h100())
	p.fitOn(sold(), h100())
	p.known = p.known || w.closed
	return &view{
		now: w.now, workload: "ns/wl", uid: w.wl.UID, phase: w.phase, state: w.state, run: runTime(w.wl), parts: []part{p},
		claims: slices.Clone(w.claims), learned: w.learned.Clone(),
	}
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
	for _, name := range p.letGo {
		at := func() int { return slices.IndexFunc(w.claims, func(c claim) bool { return c.name == name }) }
		do(func() { w.claims[at()].held = false })
		do(func() { w.claims[at()].deleted = true })
	}
	if p.state != nil {
		do(func() { w.state = *p.state })
	}
	for _, b := range p.buy {
		do(func() {
			name := b.name(w.wl.UID)
			if slices.ContainsFunc(w.claims, func(c claim) bool { return c.name == name }) {
				panic(name + " is made twice")
			}
			w.claims = append(w.claims, claim{purchase: b, name: name, created: w.now, held: true})
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
			c.launched, c.registered, c.registeredAt = true, true, w.now
		}
	}
}

func (w *world) live() (n int) {
	for i := range w.claims {
		if w.claims[i].live() {
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
	if w.state.State != kueue.CheckStateReady || len(w.state.PodSetUpdates) != 1 || w.state.PodSetUpdates[0].NodeSelector[cloudv1.PurchaseLabel] != "uid-1" {
		t.Fatalf("%+v", w.state)
	}
	if seen := w.learned.Of(sold()[0].Place); seen == nil || !seen.Obtainable || seen.StartUpHours != (4*time.Minute).Hours() {
		t.Errorf("learned %+v", seen)
	}
	if p, _ := w.step(99); len(p.letGo)+len(p.buy)+len(p.counted) > 0 {
		t.Errorf("it is done, and does %+v", p)
	}
	w.phase = gone
	if w.step(99); len(w.claims) > 0 {
		t.Errorf("left: %+v", w.claims)
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

// A node that is lost while the workload runs evicts it; the other nodes stay until its pods have stopped.
func TestLostNode(t *testing.T) {
	w := newWorld(asking(2, "8", "1"))
	w.step(99)
	w.register()
	w.step(99)
	first := w.claims[0].Place
	w.now = w.now.Add(time.Hour)
	w.claims[1].deleted = true
	w.step(99)
	if w.state.State != kueue.CheckStateRetry || !strings.Contains(w.state.Message, "a node was lost: elastic-uid-1-1") || w.live() != 1 {
		t.Fatalf("%+v, %d live", w.state, w.live())
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
	if w.step(99); len(w.claims) != 3 {
		t.Errorf("%+v", w.claims)
	}
}

// TestAnyHistory: whatever Karpenter does and whenever the program is killed, a workload has nodes of at most one attempt and
// no more than it needs, is ready only with all of them, tries no place that is closed, and leaves nothing behind.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(asking(int32(rapid.IntRange(1, 5).Draw(t, "pods")), rapid.SampledFrom([]string{"1", "4", "8"}).Draw(t, "cards"), "1"))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.happens(t)
			known := w.learned.Clone()
			before := len(w.bought)
			p, whole := w.step(rapid.SampledFrom([]int{99, 99, 99, 0, 1, 2, 3, 5}).Draw(t, "writes before it is killed"))
			for _, b := range w.bought[before:] {
				if !known.Of(b.Place).Closed(b.Nodes, w.now).IsZero() {
					t.Fatalf("bought at %v, which is closed", b.Place)
				}
			}
			w.holds(t, p, whole)
		}
		w.phase = gone
		for range 3 {
			w.step(99)
		}
		if len(w.claims) > 0 {
			t.Fatalf("left behind: %+v", w.claims)
		}
	})
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
			c.launched = !c.refused
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
	for i := range w.claims {
		if c := &w.claims[i]; c.live() {
			attempts[c.Attempt] = true
			if c.Node >= c.Nodes || w.live() > c.Nodes && whole {
				t.Fatalf("more nodes than %d: %+v", c.Nodes, w.claims)
			}
		}
	}
	if whole && len(attempts) > 1 {
		t.Fatalf("nodes of %d attempts: %+v", len(attempts), w.claims)
	}
	if w.phase == wants && p.state != nil && p.state.State == kueue.CheckStateReady && whole {
		group := p.state.PodSetUpdates[0].NodeSelector[cloudv1.PurchaseLabel]
		for i := range w.claims {
			if c := &w.claims[i]; c.live() && (!c.registered || c.group(w.wl.UID) != group) {
				t.Fatalf("ready with %s, which is not there: %+v", group, w.claims)
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
