package queue

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func priced(flavor, price string) *cloud.CloudOffer {
	offer := named(&cloud.CloudOffer{}, flavor)
	offer.Spec.Resource, offer.Status.PricePerHour = "cpu", price
	return offer
}

// flavorOf is where a workload was admitted.
func (p *harness) flavorOf(name string) string {
	admission := p.written[name].Status.Admission
	if admission == nil {
		return ""
	}
	return string(admission.PodSetAssignments[0].Flavors["cpu"])
}

// Flavors are tried in the order of prices that CloudOffers' statuses say, and without them as written.
func TestPricesOfCloudOffersOrderFlavors(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	cq := queueObject("cq", "", "")
	group := &cq.Spec.ResourceGroups[0]
	group.Flavors[0].Resources[0].NominalQuota = resource.MustParse("100")
	second := *group.Flavors[0].DeepCopy()
	second.Name = "second"
	group.Flavors = append(group.Flavors, second)
	p.see(named(&kueue.ResourceFlavor{}, "second"), cq)

	var got []string
	submit := func(name string) {
		p.submit(name, "main", "", 0, "1")
		got = append(got, p.flavorOf(name))
	}
	submit("as-written")
	p.see(priced("default", "3"), priced("second", "2"))
	submit("cheaper")
	p.see(priced("default", "1"))
	submit("price-fell")
	p.see(priced("default", ""))
	submit("not-known-is-last")
	p.see(priced("default", "3"))
	submit("dear-again")
	closed := priced("second", "2")
	closed.Status.ClosedUntil = &metav1.Time{Time: p.now().Add(time.Minute)}
	p.see(closed)
	submit("cannot-be-had-is-last")
	p.turn([]message{{object: priced("default", "3"), deleted: true}, {object: priced("second", "2"), deleted: true}})
	submit("no-prices")
	elsewhere := priced("default", "3")
	elsewhere.Spec.Via = &cloud.Via{Cluster: "east"}
	p.see(elsewhere)
	submit("price-of-a-cluster")
	p.see(priced("default", "3"))
	submit("of-the-flavor-again")
	p.see(elsewhere)
	submit("and-of-the-cluster")
	if want := []string{"default", "second", "default", "second", "second", "default", "default", "default", "second", "default"}; !slices.Equal(got, want) {
		t.Errorf("flavors are %v, want %v", got, want)
	}
}

// What a job costs on a flavor with a price is in its status from when it gets quota, and is as it was then. Without a CloudOffer nothing is, nor where
// nodes are bought for each job: their check says what they cost.
func TestPriceAtAdmission(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	cost := func(name string) float64 {
		p.submit(name, "main", "", 0, "1")
		c, _ := workload.CostOf(p.written[name])
		return c.PerHour
	}
	if got := cost("no-prices"); got != 0 {
		t.Errorf("without a CloudOffer it is %v", got)
	}
	p.see(priced("default", "2.5"))
	if got := cost("priced"); got != 2.5 {
		t.Errorf("it is %v", got)
	}
	p.see(priced("default", "9"))
	if c, known := workload.CostOf(p.written["priced"]); !known || c.PerHour != 2.5 {
		t.Errorf("after another price: %+v", c)
	}
	bought := priced("default", "9")
	bought.Spec.Via = &cloud.Via{NodeClass: &cloud.NodeClass{}}
	p.see(bought)
	if got := cost("bought"); got != 0 {
		t.Errorf("before its nodes are bought it is %v", got)
	}
}

// A flavor that is cheapest is not tried by a job one of whose pods fits on no node that is bought for it: its nodes could not be bought,
// and another flavor would do. Other jobs go there.
func TestNodesThatAreTooSmall(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	cq := queueObject("cq", "", "")
	group := &cq.Spec.ResourceGroups[0]
	group.Flavors[0].Resources[0].NominalQuota = resource.MustParse("100")
	second := *group.Flavors[0].DeepCopy()
	second.Name = "second"
	group.Flavors = append(group.Flavors, second)
	small, large := priced("default", "1"), priced("second", "3")
	small.Status.Largest = []corev1.ResourceList{{"cpu": resource.MustParse("1900m")}}
	large.Status.Largest = []corev1.ResourceList{{"cpu": resource.MustParse("8")}}
	p.see(named(&kueue.ResourceFlavor{}, "second"), cq, small, large)
	p.submit("fits", "main", "", 0, "1900m")
	p.submit("too-large", "main", "", 0, "2")
	p.submit("for-none", "main", "", 0, "9")
	if got := []string{p.flavorOf("fits"), p.flavorOf("too-large"), p.flavorOf("for-none")}; !slices.Equal(got, []string{"default", "second", ""}) {
		t.Errorf("flavors are %v", got)
	}
	grown := large.DeepCopy()
	grown.Status.Largest[0]["cpu"] = resource.MustParse("16")
	if p.see(grown); p.flavorOf("for-none") != "second" {
		t.Error("what waits is not looked at when larger nodes are sold")
	}
}

// What would become of a job says what it would cost on the flavor that it would get.
func TestPlanSaysWhatAJobCosts(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	offer := priced("default", "3")
	offer.Status.StartUp = metav1.Duration{Duration: 30 * time.Minute}
	p.see(offer)
	wl := p.workload("train", "main", "", 0, "2")
	wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(7200))
	x := p.engine.Consider(p.forEngine(wl), p.time)
	if got := p.workloadStanding(&x); got.ExpectedCost != "15.00" || got.Cost != "expected cost for 2h0m0s: default 15.00" {
		t.Errorf("two CPUs at 3 an hour for two hours, and half an hour to start: %q, %q", got.ExpectedCost, got.Cost)
	}
	offer.Status.Regions = []cloud.RegionPrice{{Cloud: "aws", Region: "us-west-2", PricePerHour: "3", StartUp: offer.Status.StartUp}}
	p.see(offer)
	wl.Annotations = map[string]string{cloud.InputSizeAnnotation: "100Gi", cloud.InputRegionAnnotation: "aws/us-east-1"}
	x = p.engine.Consider(p.forEngine(wl), p.time)
	if got := p.workloadStanding(&x); got.ExpectedCost != "17.00" || !strings.HasPrefix(got.Cost, "expected cost for 2h0m0s: default 17.00, of it 2.00 for its input") {
		t.Errorf("100 GiB from another region: %q, %q", got.ExpectedCost, got.Cost)
	}
	if got := withInputProblem("a", wl); got != "a" {
		t.Errorf("an input that can be read: %q", got)
	}
	wl.Annotations[cloud.InputSizeAnnotation] = "much"
	x = p.engine.Consider(p.forEngine(wl), p.time)
	if got := p.workloadStanding(&x); got.ExpectedCost != "15.00" || !strings.Contains(withInputProblem(got.Cost, wl), `15.00; its input does not count: annotation elasticai.io/input-size "much"`) {
		t.Errorf("a size that is none: %q, %q", got.ExpectedCost, withInputProblem(got.Cost, wl))
	}
	p.see(priced("default", ""))
	x = p.engine.Consider(p.forEngine(wl), p.time)
	if got := p.workloadStanding(&x); got.ExpectedCost != "" || got.Cost != "expected cost for 2h0m0s: default (its price is not known)" {
		t.Errorf("a price that nobody knows: %q, %q", got.ExpectedCost, got.Cost)
	}
}
