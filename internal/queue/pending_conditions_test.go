package queue

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A workload that waits says what it asks for and which checks it will have to pass, in one write. With
// quota it says neither: its assignment has the usage.
func TestPendingWorkloadSaysWhatItAsksFor(t *testing.T) {
	p := newHarness(t)
	p.options.Lifecycle.GranularReasons = false
	p.oneQueue()
	p.see(check("check", "example.com/check", true), queueObject("cq", "", "check"))
	p.submit("first", "main", "batch", 1, "3")
	before := p.version
	wl := p.workload("second", "main", "batch", 1, "500m")
	wl.Spec.PodSets[0].Count = 8
	p.see(wl)
	second := p.written["second"]
	if writes := p.version - before - 1; writes != 1 {
		t.Errorf("%d writes", writes)
	}
	if c := apimeta.FindStatusCondition(second.Status.Conditions, kueue.WorkloadQuotaReserved); c == nil || c.Reason != "Pending" {
		t.Errorf("QuotaReserved is %+v", c)
	}
	if r := second.Status.ResourceRequests; len(r) != 1 || r[0].Name != "main" || ptr.To(r[0].Resources["cpu"]).String() != "4" {
		t.Errorf("it asks for %+v", r)
	}
	if c := second.Status.AdmissionChecks; len(c) != 1 || c[0].State != kueue.CheckStatePending {
		t.Errorf("its checks are %+v", c)
	}
	p.change("first", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	if second = p.written["second"]; !workload.HasReservation(second) || second.Status.ResourceRequests != nil {
		t.Errorf("status %+v", second.Status)
	}
}

// Where another scheduler decides, workloads have their checks all the same, and when a queue asks for
// other checks those that wait have those.
func TestChecksComeBeforeQuota(t *testing.T) {
	p := newHarness(t)
	p.options.Lifecycle.GranularReasons = false
	p.oneQueue()
	p.see(check("one", "example.com/check", true), check("two", "example.com/check", true), queueObject("cq", "", "one"))

	wl := p.workload("huge", "main", "batch", 1, "100")
	wl.Annotations = map[string]string{workload.GatedByAnnotation: "example.com/gate"}
	p.see(wl)
	has := func() string {
		var names string
		for _, c := range p.written["huge"].Status.AdmissionChecks {
			names += string(c.Name)
		}
		return names
	}
	if has() != "one" {
		t.Errorf("its checks are %q", has())
	}
	p.see(queueObject("cq", "", "two"))
	if has() != "two" {
		t.Errorf("its checks are %q after its queue asks for another", has())
	}
}
