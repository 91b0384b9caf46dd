package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Every metric is there after a day in the life of two queues, with the values
// a person would count.
func TestMetrics(t *testing.T) {
	p := newHarness(t)
	namespace, flavor := &corev1.Namespace{}, &kueue.ResourceFlavor{}
	namespace.Name, flavor.Name = "ns", "default"
	check := &kueue.AdmissionCheck{}
	check.Name = "check"
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	org, team := &kueue.Cohort{}, &kueue.Cohort{}
	org.Name, team.Name, team.Spec.ParentName = "org", "team", "org"
	objects := []client.Object{namespace, flavor, check, org, team, queueObject("cq", "team", ""), queueObject("checked", "", "check")}
	for name, queue := range map[string]string{"main": "cq", "quiet": "checked", "dark": "cq"} {
		lq := &kueue.LocalQueue{}
		lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", name, types.UID(name), kueue.ClusterQueueReference(queue)
		objects = append(objects, lq)
	}
	p.see(objects...)

	// One is admitted, its pods come up, and a workload of higher priority preempts it.
	p.submit("low", "main", "batch", 1, "3")
	p.advance(10 * time.Second)
	p.change("low", func(wl *kueue.Workload) { workload.PodsReady(wl, true, kueue.WorkloadStarted, "", p.time) })
	p.advance(20 * time.Second)
	p.submit("high", "main", "urgent", 9, "4")
	p.advance(2 * time.Second)
	p.change("low", func(wl *kueue.Workload) { workload.Release(wl, "stopped", p.time) })
	// A third waits behind the first, which waits again.
	p.submit("third", "main", "batch", 1, "2")
	// In the other queue a check takes five seconds.
	p.submit("slow", "quiet", "batch", 1, "1")
	p.advance(5 * time.Second)
	p.change("slow", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
	p.submit("waits", "quiet", "batch", 1, "1")
	// One ends, one is replaced by a bigger one of the same job.
	p.submit("done", "quiet", "batch", 1, "500m")
	p.change("done", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
	p.change("done", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	p.submit("small", "quiet", "batch", 1, "500m")
	p.change("small", func(wl *kueue.Workload) { workload.Finish(wl, kueue.WorkloadSliceReplaced, "", p.time) })
	p.options.Metrics.JobQueued("Job", 250*time.Millisecond)
	for _, wl := range p.written { // of those that are not admitted nothing is observed
		p.options.Metrics.GateRemoved(kueue.TopologySchedulingGate, wl, false)
	}
	p.options.Metrics.Dispatched("cq", "east")
	p.options.Metrics.AdmittedRemotely("cq", "east")
	p.options.Metrics.CountNodesFrom(func(report func(flavor, state string, nodes int)) { report("spot", "ready", 3) })
	p.options.Metrics.Inc("elastic_explanations_total", "why")
	p.options.Metrics.Inc("elastic_writes_total", "workload", "done")
	p.options.Metrics.Inc("elastic_events_left_out_total", "Admitted")
	p.reportPanics([]admission.Panic{{Value: "no such card"}})
	p.see(cpuBudget("team", "500", onQueue))

	got := p.scrape()
	for _, d := range metrics.Definitions() {
		there := false
		for key := range got {
			there = there || strings.HasPrefix(key, d.Name+"{")
		}
		if !there {
			t.Errorf("%s is not there", d.Name)
		}
	}
	for key, want := range map[string]float64{
		"kueue_admitted_workloads_total{cluster_queue=cq,priority_class=batch}":                         1,
		"kueue_local_queue_admitted_workloads_total{name=main,namespace=ns,priority_class=batch}":       1,
		"kueue_quota_reserved_workloads_total{cluster_queue=checked,priority_class=batch}":              4,
		"kueue_admission_wait_time_seconds{cluster_queue=checked,priority_class=batch}":                 5,
		"kueue_admission_checks_wait_time_seconds{cluster_queue=checked,priority_class=batch}":          5,
		"kueue_ready_wait_time_seconds{cluster_queue=cq,priority_class=batch}":                          10,
		"kueue_admitted_until_ready_wait_time_seconds{cluster_queue=cq,priority_class=batch}":           10,
		"kueue_evicted_workloads_total{cluster_queue=cq,priority_class=batch,reason=Preempted}":         1,
		"kueue_evicted_workloads_once_total{cluster_queue=cq,priority_class=batch,reason=Preempted}":    1,
		"kueue_preempted_workloads_total{preempting_cluster_queue=cq,reason=InClusterQueue}":            1,
		"kueue_pods_ready_to_evicted_time_seconds{cluster_queue=cq,reason=Preempted}":                   20,
		"kueue_workload_eviction_latency_seconds{cluster_queue=cq,reason=Preempted}":                    2,
		"kueue_finished_workloads_total{cluster_queue=checked,priority_class=batch}":                    2,
		"kueue_finished_workloads{cluster_queue=checked}":                                               2,
		"kueue_replaced_workload_slices_total{cluster_queue=checked}":                                   1,
		"kueue_cohort_subtree_admitted_workloads_total{cohort=org,priority_class=batch}":                1,
		"kueue_cohort_info{cohort=team,parent_cohort=org,root_cohort=org}":                              1,
		"kueue_cluster_queue_info{cluster_queue=cq,parent_cohort=team,root_cohort=org}":                 1,
		"kueue_cluster_queue_status{cluster_queue=cq,status=active}":                                    1,
		"kueue_cluster_queue_status{cluster_queue=cq,status=pending}":                                   0,
		"kueue_reserving_active_workloads{cluster_queue=checked}":                                       2,
		"kueue_admitted_active_workloads{cluster_queue=checked}":                                        1,
		"kueue_cluster_queue_resource_reservation{cluster_queue=checked,flavor=default,resource=cpu}":   2,
		"kueue_cluster_queue_resource_usage{cluster_queue=checked,flavor=default,resource=cpu}":         1,
		"kueue_cluster_queue_nominal_quota{cluster_queue=cq,cohort=team,flavor=default,resource=cpu}":   4,
		"kueue_cluster_queue_borrowing_limit{cluster_queue=cq,cohort=team,flavor=default,resource=cpu}": 2,
		"kueue_cluster_queue_lending_limit{cluster_queue=cq,cohort=team,flavor=default,resource=cpu}":   0.5,
		"kueue_cluster_queue_resource_pending{cluster_queue=cq,resource=cpu}":                           5,
		"kueue_local_queue_resource_reservation{flavor=default,name=main,namespace=ns,resource=cpu}":    4,
		"kueue_cohort_subtree_admitted_active_workloads{cohort=org}":                                    1,
		"kueue_unadmitted_workloads{cluster_queue=checked,reason=UnsatisfiedAdmissionChecks}":           1,

		"kueue_unadmitted_workloads{cluster_queue=cq,reason=NoReservation,underlying_cause=WaitingForQuota}": 2,
		"kueue_workload_creation_latency_seconds{job_kind=Job}":                                              0.25,
		"kueue_pending_workloads{cluster_queue=cq,status=inadmissible}":                                      2,
		"elastic_bought_nodes{flavor=spot,state=ready}":                                                      3,
		"elastic_budget_amount{period=Day,target=ClusterQueue/cq,unit=CPU}":                                  500,
		"kueue_local_queue_pending_workloads{name=main,namespace=ns,status=inadmissible}":                    2,
	} {
		if value, there := got[key]; !there || value != want {
			t.Errorf("%s is %v (there: %t), want %v", key, value, there, want)
		}
	}
	for key := range got {
		if strings.Contains(key, "local_queue") && strings.Contains(key, "name=dark") {
			t.Errorf("%s: that LocalQueue has no metrics of its own", key)
		}
	}
	if t.Failed() {
		for _, key := range slices.Sorted(keysOf(got)) {
			t.Logf("%s %v", key, got[key])
		}
	}
}

// A workload that ends without quota is counted as Kueue counts it: for its LocalQueue, and for no ClusterQueue.
func TestFinishedWithoutQuota(t *testing.T) {
	p := newHarness(t)
	namespace, lq := &corev1.Namespace{}, &kueue.LocalQueue{}
	namespace.Name = "ns"
	lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", "main", "main", "cq"
	p.see(namespace, queueObject("cq", "", ""), lq)
	for _, queue := range []string{"main", "missing"} {
		p.submit(queue, queue, "batch", 1, "9")
		p.change(queue, func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	}
	got := p.scrape()
	for key, want := range map[string]float64{
		"kueue_finished_workloads_total{priority_class=batch}":                                    2,
		"kueue_local_queue_finished_workloads_total{name=main,namespace=ns,priority_class=batch}": 1,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	for key := range got {
		if strings.Contains(key, "name=missing") {
			t.Errorf("%s: there is no such LocalQueue", key)
		}
	}
}

// What a deleted queue or cohort counted goes with it: queues come and go by the hundred, and their
// series would stay for the life of the process.
func TestMetricsOfDeletedQueues(t *testing.T) {
	p := newHarness(t)
	namespace, flavor, org := &corev1.Namespace{}, &kueue.ResourceFlavor{}, named(&kueue.Cohort{}, "org")
	namespace.Name, flavor.Name = "ns", "default"
	p.see(namespace, flavor, org)
	add := func(name, cohort string) (*kueue.ClusterQueue, *kueue.LocalQueue) {
		lq := &kueue.LocalQueue{}
		lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", "to-"+name, types.UID(name), kueue.ClusterQueueReference(name)
		cq := queueObject(name, cohort, "")
		p.see(cq, lq)
		p.submit("low-"+name, lq.Name, "batch", 1, "4")
		p.change("low-"+name, func(wl *kueue.Workload) { workload.PodsReady(wl, true, kueue.WorkloadStarted, "", p.time) })
		p.submit("high-"+name, lq.Name, "batch", 9, "4")
		p.change("low-"+name, func(wl *kueue.Workload) { workload.Release(wl, "stopped", p.time) })
		p.change("high-"+name, func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
		return cq, lq
	}
	series := func(label string) (found []string) {
		for _, key := range slices.Sorted(keysOf(p.scrape())) {
			if strings.Contains(key, label) {
				found = append(found, key)
			}
		}
		return found
	}
	remove := func(objects ...client.Object) {
		for _, o := range objects {
			p.turn([]message{{object: o, deleted: true}})
		}
	}
	inOrg, toOrg := add("one", "org")
	implied, _ := add("two", "implied")
	add("three", "org")
	for _, label := range []string{"cluster_queue=one,", "preempting_cluster_queue=one", "name=to-one,", "cohort=org,priority", "cohort=implied,priority"} {
		if len(series(label)) == 0 {
			t.Errorf("nothing is counted with %s", label)
		}
	}
	remove(toOrg, inOrg)
	if left := append(series("cluster_queue=one"), series("name=to-one,")...); left != nil {
		t.Errorf("of deleted queues there is still %v", left)
	}
	for _, label := range []string{"admitted_workloads_total{cluster_queue=three,", "name=to-three,", "cohort=org,priority"} {
		if len(series(label)) == 0 {
			t.Errorf("the series of another queue with %s are gone, too", label)
		}
	}
	// A late word about one of its workloads does not bring them back.
	p.change("high-one", func(wl *kueue.Workload) {
		wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 1}}}
	})
	if back := series("cluster_queue=one"); back != nil {
		t.Errorf("a deleted queue has %v again", back)
	}
	moved := implied.DeepCopy()
	moved.Spec.CohortName = "org"
	p.see(moved)
	if left := series("cohort=implied"); left != nil {
		t.Errorf("of a cohort that nothing is in there is still %v", left)
	}
	remove(org)
	if left := series("{cohort=org"); left != nil {
		t.Errorf("of a deleted cohort there is still %v", left)
	}
	inThree := queueObject("three", "org", "")
	inThree.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, Reason: "Ready"}}
	p.see(inThree.DeepCopy())
	if left := series("{cohort=org"); left != nil {
		t.Errorf("a condition of a queue brings back %v", left)
	}
	inThree.Status.ReservingWorkloads = 1
	p.see(inThree)
	if series("subtree_quota{cohort=org") == nil {
		t.Error("a queue whose usage changed shows its cohort's quota, object or not")
	}
	if left := series("admitted_active_workloads{cohort=org"); left != nil {
		t.Errorf("a status brings back %v, where nothing was admitted since the cohort was deleted", left)
	}
	p.change("low-three", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	p.submit("late", "to-three", "batch", 1, "1")
	if got := p.scrape()["kueue_cohort_subtree_admitted_active_workloads{cohort=org}"]; got != 2 {
		t.Errorf("after an admission %v are counted below the cohort, want 2", got)
	}
	again := queueObject("three", "org", "")
	again.UID = "three-again"
	p.see(again)
	if series("subtree_quota{cohort=org") == nil {
		t.Error("a cohort that a queue is in shows its quota, object or not")
	}
	if left := series("total{cluster_queue=three"); left != nil {
		t.Errorf("a queue that was deleted and created again still counts %v", left)
	}
}

// A Cohort that gets another parent: what is admitted in it is counted there with the next admission below that parent, as
// Kueue counts it. The old parent has nothing left.
func TestMetricsOfMovedCohort(t *testing.T) {
	p := newHarness(t)
	namespace, flavor, team := &corev1.Namespace{}, &kueue.ResourceFlavor{}, named(&kueue.Cohort{}, "team")
	namespace.Name, flavor.Name, team.Spec.ParentName = "ns", "default", "before"
	p.see(namespace, flavor, team, named(&kueue.Cohort{}, "after"))
	for name, cohort := range map[string]string{"one": "team", "two": "after"} {
		lq := &kueue.LocalQueue{}
		lq.Namespace, lq.Name, lq.Spec.ClusterQueue = "ns", name, kueue.ClusterQueueReference(name)
		p.see(queueObject(name, cohort, ""), lq)
		p.submit("in-"+name, name, "batch", 1, "1")
	}
	admitted := func(want map[string]float64) {
		t.Helper()
		got := p.scrape()
		for _, cohort := range []string{"team", "before", "after"} {
			if n := got["kueue_cohort_subtree_admitted_active_workloads{cohort="+cohort+"}"]; n != want[cohort] {
				t.Errorf("%v are admitted below cohort %s, want %v", n, cohort, want[cohort])
			}
		}
	}
	admitted(map[string]float64{"team": 1, "before": 1, "after": 1})
	moved := team.DeepCopy()
	moved.Spec.ParentName = "after"
	p.see(moved)
	admitted(map[string]float64{"team": 1, "after": 1})
	p.submit("later", "two", "batch", 1, "1")
	admitted(map[string]float64{"team": 1, "after": 3})
}

func keysOf(m map[string]float64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// As in Kueue, a workload that did not fit is tried again when quotas change, and what comes within a second is one attempt.
// Its status tells of the quotas there are.
func TestAttemptsInVain(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("huge", "main", "batch", 1, "100")
	attempts := func() float64 { return p.scrape()["kueue_admission_attempts_total{result=inadmissible}"] }
	if got := attempts(); got != 1 {
		t.Fatalf("%v attempts", got)
	}
	raise := func(n int) {
		for i := range n {
			cq := queueObject("cq", "", "")
			cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse(fmt.Sprintf("%dm", 5000+i))
			p.see(cq)
		}
	}
	p.advance(time.Minute)
	raise(10)
	if got := attempts(); got != 2 {
		t.Errorf("%v attempts, with changes of one moment", got)
	}
	if c := apimeta.FindStatusCondition(p.written["huge"].Status.Conditions, kueue.WorkloadQuotaReserved); !strings.Contains(c.Message, "maximum capacity (5009m)") {
		t.Errorf("it was told %q", c.Message)
	}
	p.advance(time.Minute)
	raise(3)
	if got := attempts(); got != 3 {
		t.Errorf("%v attempts, with changes later", got)
	}
}
