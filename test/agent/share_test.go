package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// From the request to the limits in the container, with nothing played.
func TestContainerIsHeldToItsShare(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "share", nil, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	cluster.Make(t, p)
	probed(t, p).holds(t, 30, 1000)
}

// Two cards, three pods that take most of one: the third waits until one goes.
func TestPodWaitsForAnother(t *testing.T) {
	ns := cluster.Namespace(t)
	var all []*corev1.Pod
	for i := range 3 {
		p := pod(ns, fmt.Sprint("p", i), stay, egpu.ResourceCore, 70, egpu.ResourceMemory, 2000)
		cluster.Make(t, p)
		all = append(all, p)
		if i < 2 {
			probed(t, p).holds(t, 70, 2000)
		}
	}
	sandbox.Eventually(t, "the third is refused", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(all[2]), all[2]); err != nil {
			return err
		}
		for _, c := range all[2].Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", all[2].Status.Conditions)
	})
	if err := cluster.Delete(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	probed(t, all[2]).holds(t, 70, 2000)
}

// Which device belongs to which pod is not known by order or number: each gets its own share.
func TestTenPodsAtOnce(t *testing.T) {
	ns := cluster.Namespace(t)
	all := make([]*corev1.Pod, 10)
	for i := range all {
		all[i] = pod(ns, fmt.Sprint("p", i), stay, egpu.ResourceCore, 11+i%2, egpu.ResourceMemory, 1000+100*i)
	}
	cluster.Make(t, objects(all)...)
	for i, p := range all {
		probed(t, p).holds(t, float64(11+i%2), 1000+100*i)
	}
}

func objects(pods []*corev1.Pod) []client.Object {
	list := make([]client.Object, len(pods))
	for i := range pods {
		list[i] = pods[i]
	}
	return list
}

func TestWholeCard(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "whole", nil, egpu.ResourceWhole, 1)
	cluster.Make(t, p)
	if s := probed(t, p); s.Backend != "whole" || s.Cards != 1 || s.TotalMB != cardMB || s.Stats != nil {
		t.Fatalf("%+v: want a card with nothing in between", s)
	}
}

// The same by a claim, whose class says how the share is held.
func TestClaim(t *testing.T) {
	ns := cluster.Namespace(t)
	class := &egpu.ElasticGPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, Provisioner: egpu.ProvisionerShare, Parameters: map[string]string{"swap": "on"},
		ReclaimPolicy: egpu.ReclaimDelete, EGPUBindingMode: egpu.BindWaitForFirstConsumer,
	}
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}}
	claim.Spec.ElasticGPUClassName = &class.Name
	claim.Spec.Resources.Requests = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30"), egpu.ResourceMemory: resource.MustParse("1000")}
	p := pod(ns, "user", stay)
	p.Annotations = map[string]string{egpu.ClaimPrefix + "main": "mine"}
	cluster.Make(t, class, claim, p)
	probed(t, p).holds(t, 30, 1000)
	grants, err := (&slots.Slots{Dir: nodeDir("cdi")}).Grants()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(grants, func(g slots.Grant) bool { return g.UID == p.UID })
	if i < 0 || grants[i].Parameters["swap"] != "on" {
		t.Fatalf("grants %+v: want the class's parameters in that of the pod", grants)
	}
	limits, err := os.ReadFile(nodeDir("elastic-gpu", "gpushare", "shares", grants[i].ID, "etc", "limits"))
	if err != nil || !strings.Contains(string(limits), "swap on") {
		t.Fatalf("limits %q: %v", limits, err)
	}
}

func TestNodeTellsOfItsCards(t *testing.T) {
	for i := range 2 {
		sandbox.Eventually(t, "the GPU objects", func(ctx context.Context) error {
			gpu := &egpu.GPU{}
			if err := cluster.Get(ctx, client.ObjectKey{Name: fmt.Sprintf("%s-%d", local.NodeName, i)}, gpu); err != nil {
				return err
			}
			if gpu.Spec.Model != "A100-40G" || gpu.Spec.Memory != cardMB || gpu.Status.State != egpu.GPUReady || gpu.Status.Load == nil || gpu.Status.Load.Core != 25 {
				return fmt.Errorf("%+v %+v", gpu.Spec, gpu.Status)
			}
			return nil
		})
	}
}
