package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/elastic-ai/elastic/sandbox/internal/nodespec"
)

// OnNode calls a handler for every node that there is, and as nodes change.
func (k *Kubelets) OnNode(handler cache.ResourceEventHandler) error {
	_, err := k.nodeInformer.AddEventHandler(handler)
	return err
}

// Join adds a node that is not of the fleet, after change has made it what it is to be. One that is there already stays.
func (k *Kubelets) Join(ctx context.Context, n nodespec.Node, change func(*corev1.Node)) error {
	list, err := k.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, node := range list {
		k.joined.use(hostIP(node)) // never given back: there are more than a sandbox sees machines
	}
	ip, err := k.joined.take()
	if err != nil {
		return err
	}
	node := newNode(n, ip, int32(k.port()))
	delete(node.Labels, fleetLabel)
	change(node)
	return createNode(ctx, k.client, node)
}

// Leave takes a node away; what ran there is gone.
func (k *Kubelets) Leave(ctx context.Context, name string) error {
	return deleteNode(ctx, k.client, name)
}
