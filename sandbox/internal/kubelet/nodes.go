package kubelet

import (
	"context"
	"embed"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/config/resources"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/informer"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

const (
	// A lease lasts as long as a kubelet's would be waited for; renewing it every
	// 25 s is 80 writes a second for 2,000 nodes.
	leaseSeconds  = 100
	renewInterval = leaseSeconds / 4 * time.Second

	// The same in every run, so that a restart takes its own leases over at once.
	leaseHolder = "elastic-sandbox"
)

//go:embed stages/*.yaml
var stageFiles embed.FS

// nodes renews the readiness and leases of simulated nodes.
type nodes struct {
	stages *controllers.NodeController
	leases *controllers.NodeLeaseController
	events chan informer.Event[*corev1.Node]
}

func newNodes(client kubernetes.Interface, nodeLister corelisters.NodeLister, leaseLister coordinationlisters.LeaseLister, port int) (*nodes, error) {
	stages, err := loadStages()
	if err != nil {
		return nil, err
	}
	n := &nodes{events: make(chan informer.Event[*corev1.Node], 1024)}
	n.leases, err = controllers.NewNodeLeaseController(controllers.NodeLeaseControllerConfig{
		TypedClient:          client,
		HolderIdentity:       leaseHolder,
		LeaseDurationSeconds: leaseSeconds,
		LeaseParallelism:     8,
		RenewInterval:        renewInterval,
		RenewIntervalJitter:  0.04,
		GetLease: func(name string) (*coordinationv1.Lease, bool) {
			lease, err := leaseLister.Leases(corev1.NamespaceNodeLease).Get(name)
			return lease, err == nil
		},
		MutateLeaseFunc: func(lease *coordinationv1.Lease) error {
			// The lease goes with its node.
			if node, err := nodeLister.Get(lease.Name); err == nil {
				lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	n.stages, err = controllers.NewNodeController(controllers.NodeControllerConfig{
		TypedClient:          client,
		NodeIP:               "127.0.0.1",
		NodePort:             port,
		Lifecycle:            resources.NewStaticGetter(stages),
		PlayStageParallelism: 8,
		OnNodeManagedFunc:    n.leases.TryHold,
		OnNodeUnmanagedFunc:  n.leases.ReleaseHold,
	})
	return n, err
}

func loadStages() (lifecycle.Lifecycle, error) {
	entries, err := stageFiles.ReadDir("stages")
	if err != nil {
		return nil, err
	}
	var stages []*internalversion.Stage
	for _, entry := range entries {
		data, err := stageFiles.ReadFile("stages/" + entry.Name())
		if err != nil {
			return nil, err
		}
		stage, err := kwokconfig.UnmarshalWithType[*internalversion.Stage](data)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", entry.Name(), err)
		}
		stages = append(stages, stage)
	}
	return lifecycle.NewLifecycle(stages)
}

// watch feeds simulated nodes to KWOK. added is called for each that appears.
func (n *nodes) watch(ctx context.Context, nodeInformer cache.SharedIndexInformer, added func(name string)) error {
	send := func(kind informer.EventType, node *corev1.Node) {
		select {
		case n.events <- informer.Event[*corev1.Node]{Type: kind, Object: node}:
		case <-ctx.Done():
		}
	}
	_, err := nodeInformer.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			return obj.(*corev1.Node).Annotations[FakeAnnotation] == fakeValue
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				node := obj.(*corev1.Node)
				send(informer.Added, node)
				added(node.Name)
			},
			UpdateFunc: func(_, obj any) { send(informer.Modified, obj.(*corev1.Node)) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				send(informer.Deleted, obj.(*corev1.Node))
			},
		},
	})
	return err
}

// start begins the work; it ends with the context.
func (n *nodes) start(ctx context.Context) error {
	if err := n.leases.Start(ctx); err != nil {
		return err
	}
	return n.stages.Start(ctx, n.events)
}
