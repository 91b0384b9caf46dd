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

// What bought nodes have cost is in the workload's status: of the runs that are over, and once for each purchase of the one that it has. What cannot
// be read costs nothing.
func TestCostOfJob(t *testing.T) {
	now := time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)
	update := func(purchase, price string) kueue.PodSetUpdate {
		return kueue.PodSetUpdate{NodeSelector: map[string]string{cloud.PurchaseLabel: purchase}, Annotations: map[string]string{cloud.PriceAnnotation: price}}
	}
	with := func(admitted metav1.ConditionStatus, updates ...kueue.PodSetUpdate) *kueue.Workload {
		wl := &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}
		for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: admitted, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
		}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "other"}, {Name: "machines", PodSetUpdates: updates}}
		return wl
	}
	after := func(wl *kueue.Workload, cost string) *kueue.Workload {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: "elasticai.io/EarlierRunsCost", Status: metav1.ConditionTrue, Message: cost})
		return wl
	}
	for name, test := range map[string]struct {
		wl   *kueue.Workload
		want *float64
	}{
		"no workload":                {},
		"no nodes were bought":       {wl: with(metav1.ConditionTrue)},
		"two pod sets, one purchase": {wl: with(metav1.ConditionTrue, update("uid-1", "80.00"), update("uid-1", "80.00")), want: ptr.To(80.0)},
		"two purchases":              {wl: with(metav1.ConditionTrue, update("uid-1", "80.00"), update("uid-2", "12.50")), want: ptr.To(92.5)},
		"after another run":          {wl: after(with(metav1.ConditionTrue, update("uid-1", "80.00")), "20.500000 US dollars"), want: ptr.To(100.5)},
		"it waits after a run":       {wl: after(with(metav1.ConditionFalse), "20.500000 US dollars"), want: ptr.To(20.5)},
		"it waits for the first":     {wl: with(metav1.ConditionFalse, update("uid-1", "80.00"))},
		"nonsense":                   {wl: after(with(metav1.ConditionTrue, update("uid-1", "NaN"), update("uid-2", "-1"), update("uid-3", "much"), update("", "1")), "NaN")},
	} {
		if got := (&Job{Workload: test.wl}).costBy(now); !ptr.Equal(got, test.want) {
			t.Errorf("%s: %v", name, ptr.Deref(got, -1))
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
