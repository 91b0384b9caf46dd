package provisioning

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
)

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

const prices = `cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour,vcpus,memory_gib
gcp,us-central1,us-central1-a,a3-highgpu-8g,H100,8,,52,208,1872
gcp,us-central1,us-central1-b,a3-highgpu-8g,H100,8,,54,208,1872
`

// learning is a workload of one pod of eight cards and four of one with quota of flavor spot, whose nodes come by requests of a class.
type learning struct {
	*workloads
	wl   *kueue.Workload
	r    *pendingCheck
	made client.Client
}

func newLearning(t *testing.T, table string) *learning {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := cloudv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	offer := &cloudv1.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "spot", UID: "u"}, Spec: cloudv1.CloudOfferSpec{
		Prices: cloudv1.PriceTable{Inline: table}, Via: &cloudv1.Via{ProvisioningClass: "dws"},
	}}
	other := offer.DeepCopy()
	other.Name, other.Spec.Via = "karpenter", &cloudv1.Via{NodeClass: &cloudv1.NodeClass{}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(offer).WithObjects(offer, other).Build()
	wl := trainer([3]int32{0, 1, 4}, [3]kueue.ResourceFlavorReference{"spot", "spot", "spot"})
	for i := range wl.Spec.PodSets {
		wl.Spec.PodSets[i].Template.Spec.NodeSelector = nil
	}
	wl.Spec.PodSets[1].Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("100"),
	}}}}
	request := &ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}, Spec: RequestSpec{ProvisioningClassName: "dws"}}
	return &learning{
		workloads: &workloads{client: c, tables: cloudoffers.NewTables(c, ""), learns: true, now: func() time.Time { return noon.Add(10 * time.Minute) }},
		wl:        wl, r: &pendingCheck{last: request, groups: []group{{sets: []kueue.PodSetReference{"head"}}, {sets: []kueue.PodSetReference{"workers"}}}}, made: c,
	}
}

func (l *learning) says(condition string, after time.Duration) {
	l.r.last.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(after))}}
}

// places are those that the CloudOffer remembers after a look at the request.
func (l *learning) places(t *testing.T) []cloudv1.PlaceStatus {
	t.Helper()
	if again, err := l.learn(t.Context(), l.wl, []*pendingCheck{l.r}); again || err != nil {
		t.Fatal(again, err)
	}
	offer, other := &cloudv1.CloudOffer{}, &cloudv1.CloudOffer{}
	for name, into := range map[string]*cloudv1.CloudOffer{"spot": offer, "karpenter": other} {
		if err := l.made.Get(t.Context(), client.ObjectKey{Name: name}, into); err != nil {
			t.Fatal(err)
		}
	}
	if len(other.Status.Places) > 0 {
		t.Errorf("a CloudOffer of another kind of nodes remembers %+v", other.Status.Places)
	}
	return offer.Status.Places
}

// A request that fails closes the flavor's places for all jobs, once; one that brings nodes opens them, and says how long they took. A
// restart learns nothing twice: it is known from the CloudOffer.
func TestRequestsTeach(t *testing.T) {
	l := newLearning(t, prices)
	if got := l.places(t); len(got) > 0 {
		t.Fatalf("nothing was said yet: %+v", got)
	}
	l.says(Accepted, time.Minute)
	if got := l.places(t); len(got) > 0 {
		t.Fatalf("accepted is no answer: %+v", got)
	}
	l.says(Failed, 5*time.Minute)
	for range 2 { // a twelve-card request is two nodes of eight
		got := l.places(t)
		if len(got) != 2 || got[0].Obtainable || got[0].Failures != 1 || got[0].ClosedFor != 2 || got[0].ClosedUntil == nil || got[1].Failures != 1 {
			t.Fatalf("failed: %+v", got)
		}
	}
	l.says(Provisioned, 9*time.Minute) // before the failure was learned, at minute ten
	if got := l.places(t); got[0].Obtainable {
		t.Errorf("what was seen since counts more: %+v", got[0])
	}
	l.now = func() time.Time { return noon.Add(20 * time.Minute) }
	l.says(Provisioned, 18*time.Minute)
	for range 2 {
		if got := l.places(t); !got[0].Obtainable || got[0].ClosedUntil != nil || got[0].Failures != 0 || got[0].StartUp == nil || got[0].StartUp.Duration != 18*time.Minute {
			t.Fatalf("provisioned: %+v", got[0])
		}
	}
}

// Nodes that are taken away are a loss, once, and close the places for a while: the next job is sent elsewhere. That they were there before stays known.
func TestRevokedCapacityTeachesALoss(t *testing.T) {
	l := newLearning(t, prices)
	l.says(Provisioned, 5*time.Minute)
	l.places(t)
	l.now = func() time.Time { return noon.Add(5 * time.Hour) }
	l.r.last.Status.Conditions = append(l.r.last.Status.Conditions, metav1.Condition{
		Type: CapacityRevoked, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(5 * time.Hour).Add(-time.Minute)),
	})
	for range 2 {
		got := l.places(t)
		if got[0].Obtainable || got[0].ClosedUntil == nil || got[0].Failures != 1 || got[0].History.Losses != "1" || got[0].History.UpHours == "" || got[0].StartUp == nil {
			t.Fatalf("revoked: %+v", got[0])
		}
	}
}

// A request that can only fail closes nothing: otherwise a tenant could close a flavor for all with a pod that no node may have.
func TestRequestsThatTeachNothing(t *testing.T) {
	for name, test := range map[string]struct {
		edit  func(l *learning)
		table string
	}{
		"a selector of its own": {edit: func(l *learning) { l.head().NodeSelector = map[string]string{"none": "has"} }},
		"an affinity":           {edit: func(l *learning) { l.head().Affinity = &corev1.Affinity{} }},
		"a volume": {edit: func(l *learning) {
			l.head().Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
		}},
		"a port of the node": {edit: func(l *learning) { l.head().Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }},
		"a port of the node, of a sidecar": {edit: func(l *learning) {
			l.head().InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
		}},
		"parameters by which it can only fail": {edit: func(l *learning) {
			l.wl.Annotations = map[string]string{"provreq.kueue.x-k8s.io/ValidUntilSeconds": "1"}
		}},
		"another resource": {edit: func(l *learning) {
			l.head().Containers[0].Resources.Requests["example.com/x"] = resource.MustParse("1")
		}},
		"more cards than any node has": {edit: func(l *learning) {
			l.head().Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("9")
		}},
		"more CPUs than any node has": {edit: func(l *learning) { l.head().Containers[0].Resources.Requests["cpu"] = resource.MustParse("200") }},
		"a table that has no CPUs":    {table: "cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour\ngcp,us-central1,,a3-highgpu-8g,H100,8,,52\n"},
		"a table that cannot be read": {table: "?"},
		"another class":               {edit: func(l *learning) { l.r.last.Spec.ProvisioningClassName = "other" }},
		"a flavor without a CloudOffer": {edit: func(l *learning) {
			l.wl.Status.Admission.PodSetAssignments[1].Flavors = nil
			l.wl.Status.Admission.PodSetAssignments[2].Flavors = nil
		}},
		"a cluster that has no CloudOffer": {edit: func(l *learning) { l.learns = false }},
	} {
		t.Run(name, func(t *testing.T) {
			table := test.table
			if table == "" {
				table = prices
			}
			l := newLearning(t, table)
			if test.edit != nil {
				test.edit(l)
			}
			l.says(Failed, 5*time.Minute)
			if got := l.places(t); len(got) > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func (l *learning) head() *corev1.PodSpec { return &l.wl.Spec.PodSets[1].Template.Spec }

// Pods of real jobs name the scheduler that the API server fills in: their stock-outs count as well.
func TestRequestOfTheDefaultSchedulerTeaches(t *testing.T) {
	l := newLearning(t, prices)
	for i := range l.wl.Spec.PodSets {
		l.wl.Spec.PodSets[i].Template.Spec.SchedulerName = corev1.DefaultSchedulerName
	}
	l.says(Failed, 5*time.Minute)
	if len(l.places(t)) == 0 {
		t.Error("nothing was learned")
	}
	l = newLearning(t, prices)
	l.head().SchedulerName = "another"
	l.says(Failed, 5*time.Minute)
	if got := l.places(t); len(got) > 0 {
		t.Errorf("another scheduler may have refused the nodes: %+v", got)
	}
}
