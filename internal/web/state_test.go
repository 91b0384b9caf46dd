package web

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// records decodes what a tab has got so far, as the page does.
type records map[string]map[string]map[string]any

func (r records) take(t *testing.T, message []byte) {
	t.Helper()
	var m struct {
		Kind string
		Set  []map[string]any
		Gone []string
	}
	if err := json.Unmarshal(message, &m); err != nil {
		t.Fatal(err)
	}
	if r[m.Kind] == nil {
		r[m.Kind] = map[string]map[string]any{}
	}
	for _, record := range m.Set {
		key := fmt.Sprint(record["name"])
		if m.Kind == kindJobs {
			key = fmt.Sprint(record["namespace"], "/", record["name"])
		}
		r[m.Kind][key] = record
	}
	for _, key := range m.Gone {
		delete(r[m.Kind], key)
	}
}

// drain takes what waits in a tab's channel; false where the tab was cut off.
func (r records) drain(t *testing.T, tab *subscriber) (messages int, open bool) {
	t.Helper()
	for {
		select {
		case message, open := <-tab.changes:
			if !open {
				return messages, false
			}
			messages++
			r.take(t, message.data)
		default:
			return messages, true
		}
	}
}

func sinkOf(t *testing.T, s *State, what string) *sink {
	t.Helper()
	for i := range sources {
		if sources[i].what == what {
			return &sink{source: &sources[i], state: s, keys: map[string]struct{}{}}
		}
	}
	t.Fatalf("there is no source %s", what)
	return nil
}

func card(name, node string, index int, pods ...string) *egpu.GPU {
	g := &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: egpu.GPUSpec{NodeName: node, Index: index, Model: "H100-80G", Memory: 81920}}
	g.Status.Allocated = map[string]*egpu.PodResource{}
	for _, pod := range pods {
		g.Status.Allocated[pod] = &egpu.PodResource{Containers: []egpu.ContainerResource{{Resource: corev1.ResourceList{
			egpu.ResourceCore: resource.MustParse("40"), egpu.ResourceMemory: resource.MustParse("1024"),
		}}}}
	}
	return g
}

func workload(name, local string, conditions ...metav1.Condition) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: metav1.Now()},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(local), PodSets: []kueue.PodSet{{Name: "main", Count: 2}}},
		Status:     kueue.WorkloadStatus{Conditions: conditions},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A tab sees the same whatever comes first: the share's pod or its card, the job or its LocalQueue.
func TestRecordsAreJoinedInAnyOrder(t *testing.T) {
	pod := podMetadata()
	pod.Namespace, pod.Name = "team", "train-0"
	pod.Labels = map[string]string{"kueue.x-k8s.io/cluster-queue-name": "vision"}
	pod.Annotations = map[string]string{kueue.WorkloadAnnotation: "job-train"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	local := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "vision"}}
	steps := []struct {
		what   string
		object any
	}{{"pods", pod}, {"gpus", card("n0-0", "n0", 0, "team/train-0")}, {"nodes", node}, {"localqueues", local}, {"workloads", workload("job-train", "main")}}
	var first string
	for _, backwards := range []bool{false, true} {
		s := NewState()
		tab, _ := s.subscribe()
		got := records{}
		for i := range steps {
			step := steps[i]
			if backwards {
				step = steps[len(steps)-1-i]
			}
			must(t, sinkOf(t, s, step.what).Add(step.object))
			s.flush()
			got.drain(t, tab)
		}
		text, err := json.Marshal(got)
		must(t, err)
		if first == "" {
			first = string(text)
		}
		if string(text) != first {
			t.Errorf("another order gives another state:\n%s\n%s", first, text)
		}
		share := got[kindNodes]["n0"]["cards"].([]any)[0].(map[string]any)["shares"].([]any)[0].(map[string]any)
		if share["queue"] != "vision" || share["workload"] != "job-train" || share["core"] != 40.0 {
			t.Errorf("the share is not its pod's: %v", share)
		}
		if got[kindJobs]["team/job-train"]["queue"] != "vision" {
			t.Errorf("the job is not in its queue: %v", got[kindJobs])
		}
	}
}

func TestWhatIsNotShownIsNoChange(t *testing.T) {
	s := NewState()
	workloads := sinkOf(t, s, "workloads")
	wl := workload("a", "main")
	must(t, workloads.Add(wl))
	tab, all := s.subscribe()
	if len(all) != 1 {
		t.Fatalf("a new tab gets %d messages, want 1", len(all))
	}
	again := wl.DeepCopy()
	again.ResourceVersion, again.Labels = "7", map[string]string{"x": "y"}
	must(t, workloads.Update(again))
	s.flush()
	if n, _ := (records{}).drain(t, tab); n != 0 {
		t.Errorf("%d messages about what the page does not show", n)
	}
}

// After a broken watch the whole list comes again: what is not in it is gone.
func TestListedAgain(t *testing.T) {
	s := NewState()
	workloads := sinkOf(t, s, "workloads")
	must(t, workloads.Replace([]any{workload("a", "main"), workload("b", "main")}, "1"))
	tab, all := s.subscribe()
	got := records{}
	for _, message := range all {
		got.take(t, message.data)
	}
	must(t, workloads.Replace([]any{workload("b", "main"), workload("c", "main")}, "2"))
	s.flush()
	got.drain(t, tab)
	if len(got[kindJobs]) != 2 || got[kindJobs]["team/a"] != nil || got[kindJobs]["team/c"] == nil {
		t.Errorf("got %v", got[kindJobs])
	}
}

// A tab that reads nothing is cut off; what waits for it has a bound.
// A card that is put into another node is shown there alone, and a node without cards is not shown.
func TestCardMoves(t *testing.T) {
	s := NewState()
	cards := sinkOf(t, s, "gpus")
	tab, _ := s.subscribe()
	got := records{}
	for _, node := range []string{"n0", "n1"} {
		must(t, cards.Update(card("c", node, 0)))
		s.flush()
		got.drain(t, tab)
		if len(got[kindNodes]) != 1 || got[kindNodes][node] == nil {
			t.Errorf("with the card in %s there are %v", node, got[kindNodes])
		}
	}
	must(t, cards.Delete(card("c", "n1", 0)))
	s.flush()
	got.drain(t, tab)
	if len(got[kindNodes]) != 0 {
		t.Errorf("without a card there are %v", got[kindNodes])
	}
}

func TestSlowTabIsCutOff(t *testing.T) {
	s := NewState()
	tab, _ := s.subscribe()
	workloads := sinkOf(t, s, "workloads")
	for i := range backlog * 2 {
		must(t, workloads.Add(workload(fmt.Sprintf("w%d", i), "main")))
		s.flush()
	}
	n, open := (records{}).drain(t, tab)
	if open || n > backlog {
		t.Errorf("%d messages wait, open %t", n, open)
	}
	if len(s.subscribers) != 0 {
		t.Error("it is still a subscriber")
	}
	s.unsubscribe(tab)
}

func TestFinishedJobsAreForgotten(t *testing.T) {
	s, now := NewState(), time.Now()
	workloads := sinkOf(t, s, "workloads")
	for i := range shownFinished + 50 {
		ended := metav1.NewTime(now.Add(-time.Duration(i) * time.Second))
		must(t, workloads.Add(workload(fmt.Sprintf("w%d", i), "main", metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, LastTransitionTime: ended})))
	}
	must(t, workloads.Add(workload("old", "main", metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-2 * shownFor))})))
	must(t, workloads.Add(workload("runs", "main")))
	s.sample(now)
	if len(s.jobs) != shownFinished+1 {
		t.Errorf("%d jobs are retained", len(s.jobs))
	}
	if _, there := s.jobs["team/runs"]; !there {
		t.Error("a job that has not finished is gone")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h, now := newHistory(), time.Unix(1_700_000_000, 0)
	queues := map[string]queueRecord{}
	for i := range sampledQueues + 10 {
		queues[fmt.Sprintf("q%d", i)] = queueRecord{Quotas: []quotaRecord{{Flavor: "h100", Resource: "nvidia.com/gpu", Used: 2, Nominal: 4}, {Resource: "elasticgpu.io/gpu-core", Used: 50, Nominal: 100}, {Resource: "cpu", Used: 9}}}
	}
	for i := range samples + 20 {
		h.sample(now.Add(time.Duration(i)*sampleEvery), queues, nil, &priceList{prices: map[string]float64{"h100": 2}})
	}
	if len(h.queues) != sampledQueues || len(h.times) != samples {
		t.Errorf("%d queues, %d samples", len(h.queues), len(h.times))
	}
	for name, s := range h.queues {
		if len(s.Used) != samples || s.Used[samples-1] != 2.5 || s.Nominal[samples-1] != 5 || s.Cost[samples-1] != 4 {
			t.Fatalf("%s: %d samples, last %v of %v", name, len(s.Used), s.Used[samples-1], s.Nominal[samples-1])
		}
	}
	// A queue that was deleted goes once its last sample is six hours old.
	for i := range samples {
		h.sample(now.Add(time.Duration(samples+20+i)*sampleEvery), map[string]queueRecord{}, nil, &priceList{})
	}
	if len(h.queues) != 0 {
		t.Errorf("%d deleted queues are retained", len(h.queues))
	}
}

func TestHistoryOfCards(t *testing.T) {
	s, now := NewState(), time.Unix(1_700_000_000, 0)
	s.sample(now)
	gpus := sinkOf(t, s, "gpus")
	busy := card("n0-0", "n0", 0, "team/a", "team/b")
	busy.Status.Load = &egpu.GPULoad{Core: 70}
	must(t, gpus.Add(busy))
	s.sample(now.Add(sampleEvery))
	must(t, gpus.Delete(busy))
	s.sample(now.Add(2 * sampleEvery))
	if got, want := string(s.pastOfCard("n0-0")), `{"times":[1700000000,1700000030,1700000060],"load":[null,70,null],"given":[0,80,0]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range sampledCards + 10 {
		must(t, gpus.Add(card(fmt.Sprintf("c%d", i), "n1", i)))
	}
	for i := range samples {
		s.sample(now.Add(time.Duration(3+i) * sampleEvery))
	}
	if len(s.history.cards) > sampledCards || s.history.cards["n0-0"] != nil {
		t.Errorf("%d cards are retained", len(s.history.cards))
	}
}

func TestStanding(t *testing.T) {
	yes := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}
	}
	reserved, admitted := yes(kueue.WorkloadQuotaReserved, "QuotaReserved"), yes(kueue.WorkloadAdmitted, "Admitted")
	for want, conditions := range map[string][]metav1.Condition{
		stateWaiting:  {{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: "no quota"}},
		stateReserved: {reserved},
		stateRunning:  {reserved, admitted},
		stateEvicting: {reserved, admitted, yes(kueue.WorkloadEvicted, "Preempted")},
		stateFinished: {reserved, admitted, yes(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded)},
		stateFailed:   {reserved, admitted, yes(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed)},
	} {
		if got := jobOf(workload("a", "main", conditions...)).State; got != want {
			t.Errorf("%v: %s, want %s", conditions, got, want)
		}
	}
	inactive := workload("a", "main")
	inactive.Spec.Active = new(bool)
	if got := jobOf(inactive); got.State != stateHeld || got.Reason != "Deactivated" {
		t.Errorf("inactive: %+v", got)
	}
}

// What the nodes cost that were bought for a job is on its page while it has them, and what it has paid before at any time. A price that is none
// is not.
func TestPriceOfBoughtNodes(t *testing.T) {
	with := func(price string, conditions ...metav1.Condition) float64 {
		wl := workload("a", "main", append(conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved"})...)
		wl.Status.Admission = &kueue.Admission{}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "machines", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{
			{Name: "main", NodeSelector: map[string]string{cloud.PurchaseLabel: "uid-1"}, Annotations: map[string]string{cloud.PriceAnnotation: price}},
		}}}
		return jobOf(wl).PricePerHour
	}
	admitted := metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted"}
	for price, want := range map[string]float64{"40.50": 40.5, "": 0, "-1": 0, "NaN": 0, "1e300": 0, "much": 0} {
		if got := with(price, admitted); got != want {
			t.Errorf("%q: %v, want %v", price, got, want)
		}
	}
	if got := with("40.50"); got != 0 {
		t.Errorf("it has not started: %v", got)
	}
	waits := workload("a", "main", metav1.Condition{Type: "elasticai.io/EarlierRunsCost", Status: metav1.ConditionTrue, Message: "12.500000 US dollars"})
	if got := jobOf(waits); got.Paid != 12.5 || got.PricePerHour != 0 {
		t.Errorf("it waits after a run: %+v", got)
	}
}
