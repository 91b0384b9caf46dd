package agent

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
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
