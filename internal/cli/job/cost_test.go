package job

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// What bought nodes cost an hour is in the workload's status, once for each purchase, while the workload has them. What
// cannot be read costs nothing.
func TestPricePerHour(t *testing.T) {
	update := func(purchase, price string) kueue.PodSetUpdate {
		return kueue.PodSetUpdate{NodeSelector: map[string]string{cloud.PurchaseLabel: purchase}, Annotations: map[string]string{cloud.PriceAnnotation: price}}
	}
	with := func(admitted metav1.ConditionStatus, updates ...kueue.PodSetUpdate) *kueue.Workload {
		wl := &kueue.Workload{}
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: admitted, LastTransitionTime: metav1.Now()}}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "other"}, {Name: "machines", PodSetUpdates: updates}}
		return wl
	}
	for name, test := range map[string]struct {
		wl     *kueue.Workload
		price  float64
		bought bool
	}{
		"no workload":                {},
		"no nodes were bought":       {wl: with(metav1.ConditionTrue)},
		"two pod sets, one purchase": {wl: with(metav1.ConditionTrue, update("uid-1", "80.00"), update("uid-1", "80.00")), price: 80, bought: true},
		"two purchases":              {wl: with(metav1.ConditionTrue, update("uid-1", "80.00"), update("uid-2", "12.50")), price: 92.5, bought: true},
		"it was evicted":             {wl: with(metav1.ConditionFalse, update("uid-1", "80.00"))},
		"nonsense":                   {wl: with(metav1.ConditionTrue, update("uid-1", "NaN"), update("uid-2", "-1"), update("uid-3", "much"), update("", "1"))},
	} {
		if price, bought := (&Job{Workload: test.wl}).pricePerHour(); price != test.price || bought != test.bought {
			t.Errorf("%s: %v, %v", name, price, bought)
		}
	}
}

// There is a column for costs where a job has one.
func TestCostColumn(t *testing.T) {
	table := func(infos ...Info) string {
		var text strings.Builder
		Table(infos, true).Print(output.Writer{Writer: &text}, false)
		return text.String()
	}
	own, cloudy := Info{Name: "own"}, Info{Name: "cloudy", Seconds: int64(time.Hour.Seconds()), Cost: ptr.To(40.004)}
	if text := table(own); strings.Contains(text, "COST") {
		t.Errorf("nothing was bought:\n%s", text)
	}
	if text := table(own, cloudy); !strings.Contains(text, "COST") || !strings.Contains(text, "$40.00") {
		t.Errorf("the cost is missing:\n%s", text)
	}
}
