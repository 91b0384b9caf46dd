// Karpenter's core with a cloud for tests: machines are lines of a ledger, and nodes that the sandbox plays.
package main

import (
	"context"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	ctx, op := operator.NewOperator()
	cloud := &market{CloudProvider: kwok.NewCloudProvider(ctx, op.GetClient(), nil), client: op.GetClient(), folder: os.Getenv("KARPENTER_CLOUD")}
	if err := op.Add(manager.RunnableFunc(func(ctx context.Context) error { return cloud.endUnclaimed(ctx) })); err != nil {
		panic(err)
	}
	provider := overlay.Decorate(cloud, op.GetClient(), op.InstanceTypeStore)
	op.WithControllers(ctx, controllers.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, cloud,
		state.NewCluster(op.Clock, op.GetClient(), provider), op.InstanceTypeStore)...).Start(ctx)
}
