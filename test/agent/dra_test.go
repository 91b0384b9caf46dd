package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/agent/dra"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// byClaims has ResourceClaims give out both cards of the node, for one test.
func byClaims(t *testing.T) {
	t.Helper()
	allocationPath(t, "all", egpu.GPUByClaim, 2)
	t.Cleanup(func() { allocationPath(t, "none", egpu.GPUReady, 0) })
	driverKnown(t)
}

// driverKnown waits until the kubelet has the driver registered. A claim that it cannot have prepared it tries again a
// minute later.
func driverKnown(t *testing.T) {
	t.Helper()
	sandbox.Eventually(t, "the kubelet knows the driver", func(ctx context.Context) error {
		text, err := pods.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", local.NodeName, "proxy", "metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "plugin_manager_total_plugins{") && strings.Contains(line, dra.Driver) && strings.Contains(line, "actual_state_of_world") {
				return nil
			}
		}
		return errors.New("it has not registered it")
	})
}

// allocationPath sets the path of the node's cards, and waits until both schedulers know.
func allocationPath(t *testing.T, cards, state string, devices int) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: local.NodeName}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, egpu.DRACardsAnnotation, cards)
	ctx := context.WithoutCancel(t.Context()) // also after the test
	if err := cluster.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "cards are given out by "+state, func(ctx context.Context) error {
		for i := range 2 {
			gpu := &egpu.GPU{}
			if err := cluster.Get(ctx, client.ObjectKey{Name: fmt.Sprintf("%s-%d", local.NodeName, i)}, gpu); err != nil {
				return err
			}
			if gpu.Status.State != state {
				return fmt.Errorf("card %d is %s: %s", i, gpu.Status.State, gpu.Status.Message)
			}
		}
		return nil
	})
	offered(t, local.NodeName, devices)
}

// offered waits until a node offers so many devices to ResourceClaims.
func offered(t *testing.T, node string, devices int) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d devices of %s", devices, node), func(ctx context.Context) error {
		list, found := &resourceapi.ResourceSliceList{}, 0
		if err := cluster.List(ctx, list); err != nil {
			return err
		}
		for _, slice := range list.Items {
			if slice.Spec.Driver == dra.Driver && slice.Spec.Pool.Name == node {
				found += len(slice.Spec.Devices)
			}
		}
		if found != devices {
			return fmt.Errorf("%d are offered", found)
		}
		return nil
	})
}

// claiming is a pod with a claim of its own to a part of a card.
func claiming(namespace, name string, args []string, percent, memoryMB int) (*resourceapi.ResourceClaim, *corev1.Pod) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "card", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: dra.Driver,
		Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			"core": resource.MustParse(fmt.Sprint(percent)), "memory": resource.MustParse(fmt.Sprintf("%dMi", memoryMB)),
		}},
	}}}
	p := pod(namespace, name, args)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimName: &claim.Name}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}}
	return claim, p
}

// granted is what the agent has made for a pod; none is no error.
func granted(p *corev1.Pod) (*slots.Grant, error) {
	grants, err := (&slots.Slots{Dir: nodeDir("cdi")}).Grants()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(grants, func(g slots.Grant) bool { return g.UID == p.UID })
	if i < 0 {
		return nil, nil
	}
	return &grants[i], nil
}

func refused(t *testing.T, p *corev1.Pod) {
	t.Helper()
	sandbox.Eventually(t, p.Name+" is refused", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", p.Status.Conditions)
	})
}

// The example: from a claim's template to the limits in the container. What it had is taken away after it, and while
// claims give the cards out the GPU scheduler gives none.
func TestResourceClaim(t *testing.T) {
	byClaims(t)
	ns := cluster.Namespace(t)
	sample, err := deploy.Sample("resource-claim")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range sample {
		object.SetNamespace(ns)
		if object.GetKind() != "Pod" {
			cluster.Make(t, object)
		}
	}
	p := pod(ns, "cuda-by-claim", stay)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimTemplateName: &[]string{"third-of-a-card"}[0]}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}}
	cluster.Make(t, p)
	probed(t, p).holds(t, 30, 1000)

	sandbox.Eventually(t, "the pod says that its device is well", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses[0].AllocatedResourcesStatus {
			for _, r := range s.Resources {
				if s.Name == "claim:card" && r.Health == corev1.ResourceHealthStatusHealthy {
					return nil
				}
			}
		}
		return fmt.Errorf("its resources: %v", p.Status.ContainerStatuses[0].AllocatedResourcesStatus)
	})

	other := pod(ns, "by-share", nil, egpu.ResourceCore, 10, egpu.ResourceMemory, 1000)
	cluster.Make(t, other)
	refused(t, other)

	grant, err := granted(p)
	if err != nil || grant == nil || grant.Claim == nil || grant.Backend != "gpushare" || grant.Container != "main" {
		t.Fatalf("grant %+v: %v", grant, err)
	}
	if err := cluster.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "its share is taken away", func(context.Context) error {
		left, err := granted(p)
		if err == nil && left != nil {
			err = fmt.Errorf("slot %s is there", left.ID)
		}
		if _, stat := os.Stat(nodeDir("elastic-gpu", "gpushare", "shares", grant.ID)); !errors.Is(stat, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("the share's folder: %w", stat))
		}
		return err
	})
}

// countCore has claims to parts of cards count in percent, as the reference says.
func countCore(cfg *v1alpha1.QueueConfiguration) {
	cfg.FeatureGates = map[string]bool{"KueueDRAIntegrationConsumableCapacity": true}
	cfg.Resources.DeviceClassMappings = []kueueconfig.DeviceClassMapping{{
		Name: egpu.ResourceCore, DeviceClassNames: []corev1.ResourceName{dra.Driver},
		Sources: []kueueconfig.DeviceClassSourceConfig{{Capacity: &kueueconfig.DeviceClassCapacitySource{
			Name: "core", Driver: dra.Driver, DeviceSelector: resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: "true"}},
		}}},
	}}
}

// The example of a queue: its job waits for quota of cards, and its pods hold what their claims ask for.
func TestQueuedResourceClaim(t *testing.T) {
	byClaims(t)
	ns := cluster.Namespace(t)
	sample, err := deploy.Sample("resource-claim-queued")
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{}
	for _, object := range sample {
		if mapping, err := cluster.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind()); err != nil {
			t.Fatal(err)
		} else if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace {
			object.SetNamespace(ns)
		}
		if object.GetKind() != "Job" {
			cluster.Make(t, object)
		} else if err := apiruntime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job); err != nil {
			t.Fatal(err)
		}
	}
	container := &job.Spec.Template.Spec.Containers[0]
	container.Name, container.Image, container.ImagePullPolicy, container.Command, container.Args = "main", image, corev1.PullNever, nil, stay
	cluster.Make(t, job)
	sandbox.Eventually(t, "its quota", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: "claimed-cards"}, cq); err != nil {
			return err
		}
		for _, flavor := range cq.Status.FlavorsUsage {
			for _, used := range flavor.Resources {
				if used.Name == egpu.ResourceCore && used.Total.Value() == 60 {
					return nil
				}
			}
		}
		return fmt.Errorf("used is %v", cq.Status.FlavorsUsage)
	})
	list := &corev1.PodList{}
	sandbox.Eventually(t, "its pods", func(ctx context.Context) error {
		if err := cluster.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
			return err
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		return nil
	})
	for i := range list.Items {
		probed(t, &list.Items[i]).holds(t, 30, 1000)
	}
}

// Two cards, three claims to most of one: the third waits until one goes.
func TestResourceClaimWaitsForAnother(t *testing.T) {
	byClaims(t)
	ns := cluster.Namespace(t)
	var all []*corev1.Pod
	for i := range 3 {
		claim, p := claiming(ns, fmt.Sprint("p", i), stay, 70, 2000)
		cluster.Make(t, claim, p)
		all = append(all, p)
		if i < 2 {
			probed(t, p).holds(t, 70, 2000)
		}
	}
	refused(t, all[2])
	if err := cluster.Delete(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	probed(t, all[2]).holds(t, 70, 2000)
}

// A claim is prepared, and before its container starts the agent is killed.
func TestAgentDiesBetweenPrepareAndStart(t *testing.T) {
	byClaims(t)
	ns := cluster.Namespace(t)
	claim, p := claiming(ns, "late", nil, 30, 1000)
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late"}}
	p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: late.Name}}}}
	cluster.Make(t, claim, p)
	// The kubelet knows it: a call that breaks off it makes again a minute later.
	sandbox.Eventually(t, "the claim is prepared", func(ctx context.Context) error {
		_, err := slotOf(ctx, p)
		return err
	})
	kill(t, "the agent", agentPID)
	cluster.Make(t, late)
	probed(t, p).holds(t, 30, 1000)
}

// A card that the GPU scheduler has given to a pod is not offered to claims before that has ended.
func TestCardHasOneAllocationPathAtATime(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "share", stay, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	cluster.Make(t, p)
	probed(t, p).holds(t, 30, 1000)
	allocationPath(t, "all", egpu.GPUByClaim, 1)
	t.Cleanup(func() { allocationPath(t, "none", egpu.GPUReady, 0) })
	if err := cluster.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	allocationPath(t, "all", egpu.GPUByClaim, 2)
}

// The kubelet is killed while a container runs that has its share by a claim: it stays with that, and with what it
// has counted.
func TestKubeletRestartsUnderAClaim(t *testing.T) {
	byClaims(t)
	ns := cluster.Namespace(t)
	claim, p := claiming(ns, "runs", []string{"stay", "200"}, 30, 1000)
	cluster.Make(t, claim, p)
	probed(t, p).holds(t, 30, 1000)
	grant, err := granted(p)
	if err != nil || grant == nil {
		t.Fatal(grant, err)
	}
	kill(t, "the kubelet", kubeletPID)
	driverKnown(t)
	next, q := claiming(ns, "next", nil, 20, 1100)
	cluster.Make(t, next, q)
	probed(t, q).holds(t, 20, 1100)
	eventuallyMetric(t, "elastic_gpu_container_memory_used_bytes", p, func(v float64) bool { return v >= 200<<20 })
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase != corev1.PodRunning {
		t.Fatalf("the pod is %s: %v", p.Status.Phase, err)
	}
	if again, err := granted(p); err != nil || again == nil || again.ID != grant.ID {
		t.Fatalf("it has %+v, and had %+v: %v", again, grant, err)
	}
}

// A pod goes while the agent does not see it; what it had by a claim is taken away nevertheless.
func TestClaimGoesWhileTheAgentIsDown(t *testing.T) {
	byClaims(t)
	ns := cluster.Namespace(t)
	claim, p := claiming(ns, "gone", stay, 10, 1000)
	cluster.Make(t, claim, p)
	probed(t, p)
	deleteUnseen(t, p)
	sandbox.Eventually(t, "its share is taken away", func(context.Context) error {
		left, err := granted(p)
		if err == nil && left != nil {
			err = fmt.Errorf("slot %s is there", left.ID)
		}
		return err
	})
}
