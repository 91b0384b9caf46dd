package cloudoffers

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

const table = `cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour
aws,us-east-1,use1-az1,p5.48xlarge,H100,8,98.32,40
aws,us-east-2,use2-az1,p5.48xlarge,H100,8,90,
gcp,us-central1,us-central1-a,a3-highgpu-8g,H100,8,88,52
gcp,us-central1,us-central1-a,g2-standard-4,L4,1,0.71,0.28
aws,us-east-1,use1-az1,m5.large,,0,0.1,0.05
aws,us-east-1,use1-az1,g6f.large,L4,0.125,0.2,
`

func of(spec v1alpha1.CloudOfferSpec) *v1alpha1.CloudOffer {
	return &v1alpha1.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "h100", Generation: 3}, Spec: spec}
}

func TestTheCheapestThatIsMeant(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   v1alpha1.CloudOfferSpec
		offers int32
		want   string // place, price of a card, losses
	}{
		{"any card", v1alpha1.CloudOfferSpec{}, 8, "gcp us-central1 g2-standard-4 Spot 0.28 0.09991"},
		{"a model", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{GPUs: []string{"H100"}}}, 5, "aws us-east-1 p5.48xlarge Spot 5 0.09991"},
		{"on demand", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{GPUs: []string{"H100"}, CapacityType: v1alpha1.OnDemand}}, 3, "gcp us-central1 a3-highgpu-8g OnDemand 11 0"},
		{"a cloud", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{Clouds: []string{"aws"}, CapacityType: v1alpha1.OnDemand, InstanceTypes: []string{"p5.48xlarge"}}}, 2, "aws us-east-2 p5.48xlarge OnDemand 11.25 0"},
		{"a region", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{Regions: []string{"us-east-2"}}}, 1, "aws us-east-2 p5.48xlarge OnDemand 11.25 0"},
		{"shares of a card", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{InstanceTypes: []string{"g6f.large"}}}, 1, "aws us-east-1 g6f.large OnDemand 1.6 0"},
		{"not too dear", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{GPUs: []string{"H100"}}, MaxPricePerHour: ptr.To(resource.MustParse("39.5"))}, 0, ""},
		{"declared losses", v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{CapacityType: v1alpha1.Spot}, LossesPerHour: ptr.To(resource.MustParse("0.02"))}, 3, "gcp us-central1 g2-standard-4 Spot 0.28 0.02"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, err := assess(of(c.spec), matching(of(c.spec), table), nil, time.Time{})
			got := ""
			if m := status.Cheapest; m != nil {
				got = fmt.Sprintf("%s %s %s %s %s %s", m.Cloud, m.Region, m.InstanceType, m.CapacityType, status.PricePerHour, status.LossesPerHour)
			}
			if got != c.want || status.Offers != c.offers || (err != nil) != (c.want == "") {
				t.Errorf("%d offers, %q, %v; want %d, %q", status.Offers, got, err, c.offers, c.want)
			}
		})
	}
}

// Of each region the cheapest that can be had is in the status, the cheapest region first; of regions where nothing can be had
// nothing is, unless there is no other.
func TestPricesOfRegions(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	offer := of(v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{GPUs: []string{"H100"}}, StartUp: "5m"})
	regions := func(learned *cloud.Learned) string {
		status, err := assess(offer, matching(offer, table), learned, now)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range status.Regions {
			out = append(out, fmt.Sprintf("%s/%s %s %s", r.Cloud, r.Region, r.PricePerHour, r.StartUp.Duration))
		}
		return strings.Join(out, ", ")
	}
	if got := regions(nil); got != "aws/us-east-1 5 5m0s, gcp/us-central1 6.5 5m0s, aws/us-east-2 11.25 5m0s" {
		t.Error(got)
	}
	learned := &cloud.Learned{}
	for _, o := range matching(offer, table).offers {
		if o.Spot || o.Region == "us-east-1" {
			learned.StockOut(o.Place, 1, now)
		}
	}
	learned.Started(cloud.Place{Cloud: "aws", Region: "us-east-2", Zone: "use2-az1", InstanceType: "p5.48xlarge"}, time.Hour)
	if got := regions(learned); got != "gcp/us-central1 11 5m0s, aws/us-east-2 11.25 1h0m0s" {
		t.Error(got)
	}
	for _, o := range matching(offer, table).offers {
		learned.StockOut(o.Place, 1, now)
	}
	if got := regions(learned); !strings.HasPrefix(got, "aws/us-east-1 5 ") || strings.Count(got, ",") != 2 {
		t.Error(got)
	}
}

// Where nodes are bought for each job, each size of a region is in the status, with the cheapest, but for those for which a
// larger one may stand: a job pays for whole nodes.
func TestSizesOfRegions(t *testing.T) {
	const sizes = `cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour
aws,east,a,eight,H100,8,40,
aws,east,b,eight,H100,8,48,
aws,east,a,four,H100,4,30,
aws,east,a,two,H100,2,30,
aws,east,a,one,H100,1,9,
aws,west,a,two,H100,2,22,
`
	for want, via := range map[string]*v1alpha1.Via{
		"east 8 at 5, east 4 at 7.5, east 1 at 9, west 2 at 11": {NodeClass: &v1alpha1.NodeClass{}},
		"east  at 5, west  at 11":                               nil, // nodes are for several jobs, which are not known
	} {
		status, err := assess(of(v1alpha1.CloudOfferSpec{Via: via}), matching(of(v1alpha1.CloudOfferSpec{}), sizes), nil, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range status.Regions {
			got = append(got, fmt.Sprintf("%s %s at %s", r.Region, r.GPUs, r.PricePerHour))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestWhatIsWrongIsReported(t *testing.T) {
	for _, c := range []struct {
		name, table string
		spec        v1alpha1.CloudOfferSpec
		want        metav1.ConditionStatus
		reason      string
		text        string
	}{
		{"all is well", table, v1alpha1.CloudOfferSpec{}, metav1.ConditionTrue, v1alpha1.ReasonPriced, "8 offers"},
		{"one row", table + "aws,us-east-1,,p4d.24xlarge,A100,8,-3,\n", v1alpha1.CloudOfferSpec{}, metav1.ConditionTrue, v1alpha1.ReasonRowsLeftOut, "line 8, column price_usd_hour"},
		{"an unknown cloud", table + "moon,sea,,p4d.24xlarge,A100,8,3,\n", v1alpha1.CloudOfferSpec{}, metav1.ConditionTrue, v1alpha1.ReasonRowsLeftOut, `line 8, column cloud: unknown cloud "moon"`},
		{"a column", strings.Replace(table, "gpu_count", "cards", 1), v1alpha1.CloudOfferSpec{}, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "no column gpu_count"},
		{"no table", "", v1alpha1.CloudOfferSpec{}, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "line 1"},
		{"nothing is meant", table, v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{GPUs: []string{"h100"}}}, metav1.ConditionFalse, v1alpha1.ReasonNothingMatches, "spec.match"},
		{"nothing is left", strings.ReplaceAll(table, "gcp", "gpc"), v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{Clouds: []string{"gcp"}}}, metav1.ConditionFalse, v1alpha1.ReasonNothingMatches, "2 rows of the price table were left out"},
		{"a time span", table, v1alpha1.CloudOfferSpec{StartUp: "soon"}, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "spec.startUp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			offer := of(c.spec)
			status, err := assess(offer, matching(offer, c.table), nil, time.Time{})
			got := condition(offer, &status, err)
			if got.Status != c.want || got.Reason != c.reason || !strings.Contains(got.Message, c.text) || got.ObservedGeneration != 3 {
				t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
			}
			if (status.PricePerHour != "") != (c.want == metav1.ConditionTrue) {
				t.Errorf("price %q", status.PricePerHour)
			}
		})
	}
}

// TestAnyTable: whatever a table says, there is a price if and only if no problem is reported, it is a positive number, and a
// status stays small.
func TestAnyTable(t *testing.T) {
	header, _, _ := strings.Cut(table, "\n")
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.StringMatching(`(aws|gcp|moon)?,(us|eu)?,a?,[a-z]{0,3},(H100|L4|),(0|1|8|1e400|-1|x),(0.0001|3|9999|NaN|-1|),(0.0001|1e9|)`), 0, 40).Draw(t, "rows")
		offer := of(v1alpha1.CloudOfferSpec{StartUp: "5m"})
		status, err := assess(offer, matching(offer, header+"\n"+strings.Join(rows, "\n")), nil, time.Time{})
		if (err == nil) != (status.PricePerHour != "") {
			t.Fatalf("%v, price %v", err, status.PricePerHour)
		}
		price, _ := strconv.ParseFloat(status.PricePerHour, 64)
		if err == nil && (!(price > 0) || status.Offers < 1 || status.StartUp.Duration != 5*time.Minute) {
			t.Fatalf("%+v", status)
		}
		if len(status.Regions) > mostRegions || (len(status.Regions) > 0) != (err == nil) || err == nil && status.Regions[0].PricePerHour != status.PricePerHour {
			t.Fatalf("regions %+v, price %s", status.Regions, status.PricePerHour)
		}
		if len(status.RowProblems) > namedRows || int(status.RowsLeftOut) > len(rows) {
			t.Fatalf("%d rows left out, %d named", status.RowsLeftOut, len(status.RowProblems))
		}
	})
}
