package kubelet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// Resources asks the kubelet which container has which device.
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

// How long a kubelet that is asked too much is asked again, and the pause between two questions.
const (
	retryFor = 10 * time.Second
	pause    = 50 * time.Millisecond
)

// Containers by the device that they have.
func (r *Resources) Containers(ctx context.Context) (map[string]slots.ContainerRef, error) {
	list, err := r.client.List(ctx, &podresources.ListPodResourcesRequest{})
	// The kubelet answers so many questions a second, from all clients. Ours is worth asking again.
	for deadline := time.Now().Add(retryFor); status.Code(err) == codes.ResourceExhausted && ctx.Err() == nil && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		list, err = r.client.List(ctx, &podresources.ListPodResourcesRequest{})
	}
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet which container has which device: %w", err)
	}
	containers := map[string]slots.ContainerRef{}
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				if device.GetResourceName() != r.resource {
					continue
				}
				for _, id := range device.GetDeviceIds() {
					containers[id] = slots.ContainerRef{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: container.GetName()}
				}
			}
			for _, id := range claimed(container) {
				containers[id] = slots.ContainerRef{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: container.GetName()}
			}
		}
	}
	return containers, nil
}

// claimed are the slots that a container has by ResourceClaims.
func claimed(container *podresources.ContainerResources) []string {
	var ids []string
	for _, dynamic := range container.GetDynamicResources() {
		for _, part := range dynamic.GetClaimResources() {
			for _, device := range part.GetCdiDevices() {
				if id, ours := strings.CutPrefix(device.GetName(), slots.Device("")); ours {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}
