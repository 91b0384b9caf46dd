package kubelet

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// Resources asks the kubelet who holds which device.
type Resources struct {
	client   podresources.PodResourcesListerClient
	resource string
}

// NewResources for a resource, over the kubelet's socket for such questions.
func NewResources(socket, resource string) (*Resources, func() error, error) {
	// The list names every device of every pod on the node: 16 MiB are thousands of pods.
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, nil, err
	}
	return &Resources{podresources.NewPodResourcesListerClient(connection), resource}, connection.Close, nil
}

// Holders of devices, by device.
func (r *Resources) Holders(ctx context.Context) (map[string]slots.Holder, error) {
	list, err := r.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet who holds which device: %w", err)
	}
	holders := map[string]slots.Holder{}
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				if device.GetResourceName() != r.resource {
					continue
				}
				for _, id := range device.GetDeviceIds() {
					holders[id] = slots.Holder{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: container.GetName()}
				}
			}
		}
	}
	return holders, nil
}
