package gpuscheduler

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// connect says of all nodes what their agents would, and returns one without cards.
func connect(t *testing.T) (without string) {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := cluster.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		before := n.DeepCopy()
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, egpu.RemoteAgentAnnotation, "{}")
		if err := cluster.Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		if cards := n.Status.Allocatable[egpu.ResourceWhole]; cards.IsZero() {
			without = n.Name
		}
	}
	if without == "" {
		t.Fatal("all nodes have cards")
	}
	return without
}

// A pod on a node without cards has a share of one elsewhere: a server runs beside it while the claim is there, and nothing is
// left after.
func claimOfACardOfAnotherNode(t *testing.T) {
	ns := cluster.Namespace(t)
	node := connect(t)
	far := class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindWaitForFirstConsumer)
	far.Parameters = map[string]string{"sharing": egpu.SharingRemote, "distance": "any"}
	c, p := claim(ns, "far", 40), user(ns, "far", "far")
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	cluster.Make(t, far, c, p)
	running(t, p)
	waitClaim(t, c, egpu.ClaimBound, "")
	d := device(t, c)
	if p.Spec.NodeName != node || d.Spec.RemoteGPU == nil || d.Spec.RemoteGPU.NodeName == node || p.Annotations[container] != "" {
		t.Fatalf("the pod is on %s with %v, its card %+v", p.Spec.NodeName, p.Annotations, d.Spec.RemoteGPU)
	}
	gpu := d.Spec.RemoteGPU.GPUName
	waitGPU(t, gpu, func(g *egpu.GPU) bool {
		return g.Spec.NodeName == d.Spec.RemoteGPU.NodeName && g.Status.Allocated[egpu.DeviceNamespace+"/"+d.Name] != nil
	})
	server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: "remote-" + d.Name}}
	running(t, server)
	if server.Spec.NodeName != d.Spec.RemoteGPU.NodeName {
		t.Errorf("the server is on %s, the card on %s", server.Spec.NodeName, d.Spec.RemoteGPU.NodeName)
	}
	sandbox.Eventually(t, "the ElasticGPU says that its server is ready", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.Phase != egpu.GPUBound || d.Status.Reason != "Served" {
			return fmt.Errorf("status %+v", d.Status)
		}
		return nil
	})
	// Its server ends: the pod is told, and another one is made.
	remove(t, server)
	sandbox.Eventually(t, "the pod is told that its server is lost", func(ctx context.Context) error { return hasEvent(ctx, p, "RemoteCardLost") })
	sandbox.Eventually(t, "the pod is told of the next", func(ctx context.Context) error { return hasEvent(ctx, p, "RemoteCardServed") })
	waitClaim(t, c, egpu.ClaimBound, "")
	remove(t, p, c)
	waitGone(t, d)
	waitGone(t, server)
	waitGPU(t, gpu, func(g *egpu.GPU) bool { return len(g.Status.Allocated) == 0 })
}

// hasEvent says whether a pod has an event.
func hasEvent(ctx context.Context, pod *corev1.Pod, reason string) error {
	list := &corev1.EventList{}
	if err := cluster.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == reason && e.InvolvedObject.UID == pod.UID {
			return nil
		}
	}
	return fmt.Errorf("%d events, and none is %s", len(list.Items), reason)
}

// The card is chosen at once, and pods go to where it can be reached.
func cardOfAnotherNodeIsChosenFirst(t *testing.T) {
	ns := cluster.Namespace(t)
	node := connect(t)
	far := class(ns, egpu.ProvisionerShare, egpu.ReclaimDelete, egpu.BindImmediate)
	far.Parameters = map[string]string{"sharing": egpu.SharingRemote, "distance": corev1.LabelHostname}
	c := claim(ns, "first", 40)
	cluster.Make(t, far, c)
	waitClaim(t, c, egpu.ClaimBound, "")
	d := device(t, c)
	away := user(ns, "away", "first")
	away.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	cluster.Make(t, away)
	unschedulable(t, away)
	remove(t, away)
	there := user(ns, "there", "first")
	cluster.Make(t, there)
	running(t, there)
	if there.Spec.NodeName != d.Spec.RemoteGPU.NodeName {
		t.Errorf("the pod is on %s, and its card may be used from %s alone", there.Spec.NodeName, d.Spec.RemoteGPU.NodeName)
	}
	remove(t, there, c)
	waitGone(t, d)
}
