package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// withDevices is a queue of two devices of the class gpu.example.com, beside
// its CPUs.
func withDevices(t *testing.T) *harness {
	t.Helper()
	p := newHarness(t)
	counter, err := devices.New([]kueueconfig.DeviceClassMapping{{Name: "example.com/gpu", DeviceClassNames: []corev1.ResourceName{"gpu.example.com"}}}, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	p.options.Devices = counter
	p.oneQueue()
	cq := queueObject("cq", "", "")
	group := &cq.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, "example.com/gpu")
	group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: "example.com/gpu", NominalQuota: resource.MustParse("2")})
	p.see(cq)
	return p
}

// claiming is a workload with a pod that has two devices by the template.
func (p *harness) claiming(name, template string) *kueue.Workload {
	wl := p.workload(name, "main", "batch", 1, "1")
	wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "cards", ResourceClaimTemplateName: &template}}
	return wl
}

func twoCards(name string) *resourceapi.ResourceClaimTemplate {
	t := &resourceapi.ResourceClaimTemplate{}
	t.Namespace, t.Name = "ns", name
	t.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu.example.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 2,
	}}}
	return t
}

func (p *harness) condition(name, kind string) *metav1.Condition {
	return apimeta.FindStatusCondition(p.written[name].Status.Conditions, kind)
}

func (p *harness) reserved(name string) string {
	condition := p.condition(name, kueue.WorkloadQuotaReserved)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

// A workload waits for its template, is counted when that comes, and the next
// waits for quota.
func TestDeviceClaimsCount(t *testing.T) {
	p := withDevices(t)
	p.see(p.claiming("a", "cards"))
	if got := p.reserved("a"); got != "False Misconfigured" {
		t.Fatalf("without its template its condition is %s", got)
	}
	if requeued := p.condition("a", kueue.WorkloadRequeued); requeued == nil || requeued.Status != metav1.ConditionFalse || requeued.Reason != kueue.WorkloadInadmissible {
		t.Errorf("as in Kueue it is not requeued: %v", requeued)
	}
	p.see(twoCards("cards"))
	if got := p.reserved("a"); got != "True QuotaReserved" {
		t.Fatalf("with its template its condition is %s", got)
	}
	if requeued := p.condition("a", kueue.WorkloadRequeued); requeued != nil {
		t.Errorf("nothing is wrong with it any more: %v", requeued)
	}
	usage := p.written["a"].Status.Admission.PodSetAssignments[0].ResourceUsage["example.com/gpu"]
	if usage.Value() != 2 {
		t.Errorf("it uses %s", usage.String())
	}
	p.see(p.claiming("b", "cards"))
	if got := p.reserved("b"); got != "False WaitingForQuota" {
		t.Errorf("the condition of the second is %s", got)
	}
	explained := p.devicesOf(p.written["b"])
	if len(explained) != 1 || explained[0].Resource != "example.com/gpu" || explained[0].Amount != "2" || explained[0].From != "ResourceClaimTemplate cards, DeviceClass gpu.example.com" {
		t.Errorf("explained as %+v", explained)
	}

	// A workload with quota reserved stays admitted although its template is deleted.
	gone := message{object: twoCards("cards"), deleted: true}
	p.turn([]message{gone})
	p.see()
	if got := p.reserved("a"); got != "True QuotaReserved" {
		t.Errorf("the condition of the admitted workload is %s", got)
	}
	if got := p.reserved("b"); got != "False Misconfigured" {
		t.Errorf("the condition of the pending workload is %s", got)
	}
}

// While all pods of a claim have left its cards its quota is free, and when one returns it counts again.
func TestIdleClaimIsNotCharged(t *testing.T) {
	p := withDevices(t)
	claim := &egpu.ElasticGPUClaim{}
	claim.Namespace, claim.Name = "ns", "notebook"
	claim.Spec.Resources.Requests = corev1.ResourceList{"elasticgpu.io/gpu-core": resource.MustParse("60")}
	cq := queueObject("cq", "", "")
	group := &cq.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, egpu.ResourceCore)
	group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: egpu.ResourceCore, NominalQuota: resource.MustParse("100")})
	p.see(cq, claim)
	notebook := p.workload("notebook", "main", "batch", 1, "1")
	notebook.Spec.PodSets[0].Template.Annotations = map[string]string{egpu.ClaimPrefix + "main": "notebook"}
	p.see(notebook)
	if got := p.reserved("notebook"); got != "True QuotaReserved" {
		t.Fatalf("its condition is %s", got)
	}
	asks := func(name string) *kueue.Workload {
		wl := p.workload(name, "main", "batch", 1, "1")
		wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[egpu.ResourceCore] = resource.MustParse("50")
		return wl
	}
	says := func(reason string) {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID, pod.Spec.NodeName = "ns", "notebook-0", "uid", "n"
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
		pod.Annotations = map[string]string{egpu.ClaimPrefix + "main": "notebook"}
		pod.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: reason}}
		p.podChanged(pod, false)
		p.see()
	}
	says(egpu.ReasonReturning)
	p.see(asks("a"))
	if got := p.reserved("a"); got != "False WaitingForQuota" {
		t.Fatalf("beside the notebook: %s", got)
	}
	says(egpu.ReasonIdle)
	if got := p.reserved("a"); got != "True QuotaReserved" {
		t.Fatalf("while the notebook is idle: %s", got)
	}
	says(egpu.ReasonReturning)
	if got := p.reserved("notebook"); got != "True QuotaReserved" {
		t.Errorf("the notebook, back: %s", got)
	}
	p.see(asks("b"))
	if got := p.reserved("b"); got != "False WaitingForQuota" {
		t.Errorf("beside both: %s", got)
	}
}

// A job that was swapped out asks for its claim again: what its pods have left is free for others, and not for itself.
func TestSwappedOutClaimIsAskedForAgain(t *testing.T) {
	p := withDevices(t)
	claim := &egpu.ElasticGPUClaim{}
	claim.Namespace, claim.Name = "ns", "card"
	claim.Spec.Resources.Requests = corev1.ResourceList{"elasticgpu.io/gpu-core": resource.MustParse("60")}
	cq := queueObject("cq", "", "")
	group := &cq.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, egpu.ResourceCore)
	group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: egpu.ResourceCore, NominalQuota: resource.MustParse("100")})
	p.see(cq, claim)
	first := p.workload("first", "main", "batch", 1, "1")
	first.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[egpu.ResourceCore] = resource.MustParse("50")
	swapped := p.workload("swapped", "main", "batch", 1, "1")
	swapped.Spec.PodSets[0].Template.Annotations = map[string]string{egpu.ClaimPrefix + "main": "card"}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.Spec.NodeName = "ns", "swapped-0", "uid", "n"
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Annotations = map[string]string{egpu.ClaimPrefix + "main": "card", egpu.SwapAnnotation: egpu.SwapOut}
	pod.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: egpu.ReasonMovedOut}}
	p.podChanged(pod, false)
	p.see(first)
	if got := p.reserved("first"); got != "True QuotaReserved" {
		t.Fatalf("on what is free: %s", got)
	}
	p.see(swapped)
	if got := p.reserved("swapped"); got != "False WaitingForQuota" {
		t.Errorf("beside it: %s", got)
	}
	p.turn([]message{{object: p.written["first"], deleted: true}})
	p.see()
	if got := p.reserved("swapped"); got != "True QuotaReserved" {
		t.Fatalf("after it: %s", got)
	}
	// Its pods are to come back, and have not been told so yet.
	second := p.workload("second", "main", "batch", 1, "1")
	second.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[egpu.ResourceCore] = resource.MustParse("50")
	p.see(second)
	if got := p.reserved("second"); got != "False WaitingForQuota" {
		t.Errorf("beside one that comes back: %s", got)
	}
}

// An object that a workload uses is created while the status that it is missing is being written: it
// is seen without another event.
func TestWhatComesDuringAWriteIsSeen(t *testing.T) {
	for name, test := range map[string]struct {
		waits func(p *harness) *kueue.Workload
		comes message
	}{
		"a template": {func(p *harness) *kueue.Workload { return p.claiming("a", "cards") }, message{object: twoCards("cards")}},
		"an ElasticGPUClaim": {func(p *harness) *kueue.Workload {
			wl := p.workload("a", "main", "batch", 1, "1")
			wl.Spec.PodSets[0].Template.Annotations = map[string]string{egpu.ClaimPrefix + "main": "cards"}
			return wl
		}, message{object: func() *egpu.ElasticGPUClaim {
			c := &egpu.ElasticGPUClaim{}
			c.Namespace, c.Name = "ns", "cards"
			return c
		}()}},
	} {
		t.Run(name, func(t *testing.T) {
			p := withDevices(t)
			wl := test.waits(p)
			wl.ResourceVersion, p.written["a"] = "1", wl
			p.turn([]message{{object: wl}})
			if len(p.workloadWrites.waiting) != 1 {
				t.Fatal("nothing is being written")
			}
			p.turn([]message{test.comes})
			p.see() // the write ends
			if !workload.HasReservation(p.written["a"]) {
				t.Errorf("its condition is %s", p.reserved("a"))
			}
		})
	}
}

// Costly selectors are evaluated in the background: other workloads are admitted meanwhile.
func TestCostlySelectorsAreEvaluatedBesideTheLoop(t *testing.T) {
	p := withDevices(t)
	p.options.Devices.SearchInBackground(p.searchInBackground)
	class, slice := &resourceapi.DeviceClass{}, &resourceapi.ResourceSlice{}
	class.Name, slice.Name = "gpu.example.com", "node"
	slice.Spec.Driver, slice.Spec.Pool = "driver.example.com", resourceapi.ResourcePool{Name: "node", ResourceSliceCount: 1}
	for i := range 2 {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint("card-", i)})
	}
	template := twoCards("cards")
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 28), ",") + "]"
	template.Spec.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: strings.ReplaceAll("LIST.all(a, LIST.all(b, LIST.all(c, a + b + c > 0)))", "LIST", list),
	}}}
	p.see(class, slice, template)

	p.see(p.claiming("a", "cards"), p.workload("b", "main", "batch", 1, "1"))
	condition := apimeta.FindStatusCondition(p.written["a"].Status.Conditions, kueue.WorkloadQuotaReserved)
	if condition == nil || condition.Reason != kueue.WorkloadQuotaReservedReasonPendingEvaluation || !strings.Contains(condition.Message, "still being counted") {
		t.Errorf("its condition is %+v", condition)
	}
	if got := p.reserved("b"); got != "True QuotaReserved" {
		t.Errorf("the condition of the other workload is %s", got)
	}
	var searching sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer searching.Wait()
	defer cancel()
	searching.Go(func() { p.deviceSearches.run(ctx, 1, p.search) })
	p.see(p.claiming("c", "cards"), p.workload("d", "main", "batch", 1, "1"))
	messages, err := p.inbox.Take(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	p.turn(messages)
	p.see()
	if got := p.reserved("a") + ", " + p.reserved("c"); got != "True QuotaReserved, False WaitingForQuota" {
		t.Errorf("when their devices are counted their conditions are %s", got)
	}
}

// What sources count is written in bytes' units: in the message, in what is
// missing, and in what was given.
func TestCapacityIsWrittenInBytes(t *testing.T) {
	gates, err := features.New(map[string]bool{"KueueDRAIntegrationConsumableCapacity": true})
	if err != nil {
		t.Fatal(err)
	}
	counter, err := devices.New([]kueueconfig.DeviceClassMapping{{
		Name: "gpu.memory", DeviceClassNames: []corev1.ResourceName{"gpu.example.com"},
		Sources: []kueueconfig.DeviceClassSourceConfig{{Capacity: &kueueconfig.DeviceClassCapacitySource{
			Name: "memory", Driver: "example.com", DeviceSelector: resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: "true"}},
		}}},
	}}, gates)
	if err != nil {
		t.Fatal(err)
	}
	options := Options{Devices: counter}
	if got := options.engine().Format("gpu.memory", 3<<30) + " " + options.engine().Format("cpu", 1500) + " " + options.engine().Format("gpu", 1024); got != "3Gi 1500m 1024" {
		t.Errorf("messages say %s", got)
	}
	given := &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{ResourceUsage: corev1.ResourceList{
		"gpu.memory": *resource.NewQuantity(3<<30, resource.DecimalSI), "cpu": resource.MustParse("1500m"),
	}}}}
	options.formatUsage(given)
	usage := given.PodSetAssignments[0].ResourceUsage
	if memory, cpu := usage["gpu.memory"], usage["cpu"]; memory.String() != "3Gi" || cpu.String() != "1500m" {
		t.Errorf("given is %s and %s", memory.String(), cpu.String())
	}
	if (&Options{}).engine().Format != nil {
		t.Error("without sources amounts are written as ever")
	}
}

// Kueue's words where the gate is off; and where nothing is to be refused, the
// claims do not count.
func TestDeviceClaimsWithoutTheGate(t *testing.T) {
	for _, reject := range []bool{true, false} {
		p := newHarness(t)
		p.gates.rejectDevices = reject
		p.oneQueue()
		p.see(p.claiming("a", "cards"))
		condition := apimeta.FindStatusCondition(p.written["a"].Status.Conditions, kueue.WorkloadQuotaReserved)
		if refused := strings.Contains(condition.Message, "the KueueDRAIntegration feature gate is not enabled"); refused != reject || workload.HasReservation(p.written["a"]) == reject {
			t.Errorf("with reject %t its message is %s", reject, condition.Message)
		}
	}
}
