package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/dra"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// simulated is the name of the cluster's simulated node.
func simulated(t *testing.T) string {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := cluster.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if n.Annotations[discovery.SimulatedAnnotation] != "" {
			return n.Name
		}
	}
	t.Fatal("there is no simulated node")
	return ""
}

// A card that can be divided, on a node that only seems to run pods: kube-scheduler allocates partitions of it,
// not two that overlap, and no part of the card as a whole beside them.
func TestPartitionsOfACard(t *testing.T) {
	node := simulated(t)
	plugin := &dra.Plugin{
		Node: node, KubeletDir: t.TempDir(), Kube: pods, API: cluster, Slots: &slots.Slots{Dir: t.TempDir(), Log: logr.Discard()}, Log: logr.Discard(),
		Partitions: func(string) ([]mig.Partition, bool) {
			return []mig.Partition{
				{Profile: "1g.20gb", Start: 0, Size: 4, Slices: 1, MemoryMB: 20000},
				{Profile: "1g.20gb", Start: 4, Size: 4, Slices: 1, MemoryMB: 20000},
				{Profile: "2g.40gb", Start: 0, Size: 8, Slices: 2, MemoryMB: 40000},
			}, false
		},
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- plugin.Start(ctx) }()
	t.Cleanup(func() {
		if err := plugin.Offer(ctx, nil); err != nil { // what was offered is taken back
			t.Error(err)
		}
		offered(t, node, 0)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := plugin.Offer(t.Context(), []dra.Card{{Card: conformance.Card(0)}}); err != nil {
		t.Fatal(err)
	}
	offered(t, node, 4)
	ns := cluster.Namespace(t)
	create := func(name, class string) *corev1.Pod {
		claim, p := claiming(ns, name, nil, 30, 1000)
		claim.Spec.Devices.Requests[0].Exactly.DeviceClassName = class
		if class != dra.Driver {
			claim.Spec.Devices.Requests[0].Exactly.Capacity = nil
		}
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		cluster.Make(t, claim, p)
		return p
	}
	placed := func(p *corev1.Pod) {
		t.Helper()
		sandbox.Eventually(t, p.Name+" is placed", func(ctx context.Context) error {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if p.Spec.NodeName == "" {
				return fmt.Errorf("conditions %v", p.Status.Conditions)
			}
			return nil
		})
	}
	shares := []*corev1.Pod{create("share-0", dra.Driver), create("share-1", dra.Driver)}
	placed(shares[0])
	placed(shares[1])
	part := create("part-0", "mig.elasticgpu.io")
	refused(t, part)
	for _, p := range shares {
		if err := cluster.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	placed(part)
	placed(create("part-1", "mig.elasticgpu.io"))
	refused(t, create("part-2", "mig.elasticgpu.io"))
	refused(t, create("share-2", dra.Driver))
}
