package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// shared is a queue of no cards in a cohort that has eight, with admission fair
// sharing, as seen by a fresh engine.
func shared(t *testing.T, lq *kueue.LocalQueue) (*admission.Engine, *Publisher, *[]client.Object) {
	t.Helper()
	options := admission.Options{Policy: admission.PolicyDRF, UsageHalfLife: time.Hour, UsageSampling: time.Minute}
	engine := admission.New(options)
	var written []client.Object
	objects := engineview.NewObjects()
	s := New(objects, func(o client.Object) { written = append(written, o) }, workload.Quantity, options, true)
	group := func(cards string) []kueue.ResourceGroup {
		return []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"},
			Flavors:          []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse(cards)}}}},
		}}
	}
	cohort := named(&kueue.Cohort{Spec: kueue.CohortSpec{ResourceGroups: group("8"), ParentName: "root"}}, "team")
	cq := named(&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{
		CohortName: "team", ResourceGroups: group("0"), NamespaceSelector: &metav1.LabelSelector{},
		AdmissionScope: &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing},
	}}, "cq")
	for _, obj := range []client.Object{named(&corev1.Namespace{}, "ns"), named(&kueue.ResourceFlavor{}, "h100"), cohort, lq} {
		objects.Set(obj, false)
		s.ObjectChanged(obj)
		engine.Apply(engineview.ChangedEvent(obj))
	}
	objects.Set(cq, false)
	s.ObjectChanged(cq)
	engine.Apply(admission.QueueChanged{Queue: objects.Queue(cq)})
	return engine, s, &written
}

func TestSharesAreShown(t *testing.T) {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}}
	engine, s, written := shared(t, lq)
	fresh := lq.DeepCopy()
	s.setUsage(fresh, engine, when)
	if share := fresh.Status.FairSharing; share == nil || len(share.AdmissionFairSharingStatus.ConsumedResources) != 1 || !share.AdmissionFairSharingStatus.LastUpdate.Time.Equal(when) {
		t.Errorf("before anything was used it shows %+v", share)
	}
	engine.Apply(admission.WorkloadChanged{Workload: admission.Workload{
		Key: admission.Key{Namespace: "ns", Name: "wl"}, LocalQueue: "main",
		PodSets: []admission.PodSet{{Name: "main", Count: 4, Requests: admission.Requests{"nvidia.com/gpu": 1}}},
	}})
	if plan := engine.Decide(when); len(plan.Admit) != 1 {
		t.Fatalf("the workload must borrow: %+v", plan)
	}
	engine.Decide(when.Add(time.Hour))
	s.Publish(engine, when.Add(time.Hour))
	var consumed resource.Quantity
	for _, obj := range *written {
		switch o := obj.(type) {
		case *kueue.ClusterQueue:
			if share := o.Status.FairSharing; share == nil || share.WeightedShare != 500 {
				t.Errorf("half of what can be borrowed is a share of 500 of 1000, not %+v", share)
			}
		case *kueue.Cohort:
			if o.Status.FairSharing == nil {
				t.Error("a cohort shows its share")
			}
		case *kueue.LocalQueue:
			consumed = o.Status.FairSharing.AdmissionFairSharingStatus.ConsumedResources["nvidia.com/gpu"]
			lq.Status = o.Status
		}
	}
	if len(*written) != 3 {
		t.Errorf("wrote %d statuses, want one each of queue, cohort and LocalQueue", len(*written))
	}
	// Four cards held for one half-life, on top of what was charged at once.
	if got := consumed.AsApproximateFloat64(); got < 2 || got > 2.1 {
		t.Errorf("consumed %s cards, want a little more than 2", consumed.String())
	}

	// A new leader goes on from there.
	restarted, _, _ := shared(t, lq)
	status, _ := restarted.LocalStatus(admission.Key{Namespace: "ns", Name: "main"})
	if got, want := status.Consumed["nvidia.com/gpu"], consumed.AsApproximateFloat64(); got != want {
		t.Errorf("after a restart %v is consumed, want %v", got, want)
	}
	s.Written(ptr.To(*lq), nil)
	if again := s.Publish(engine, when.Add(time.Hour+statusInterval)); !again.Equal(when.Add(time.Hour + time.Minute)) {
		t.Errorf("usage is noted again at %s, want a minute after the last time", again)
	}
}

func named[T client.Object](obj T, name string) T {
	obj.SetName(name)
	return obj
}
