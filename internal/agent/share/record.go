package share

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// NoRecord says that the node's GPU objects do not name a pod, or not all of its cards yet.
type NoRecord struct{ Why string }

func (e *NoRecord) Error() string { return e.Why }

// recorded are the indexes of the cards that the scheduler gave a container: those of the GPU objects whose status
// names the pod by its UID, and the container. They are compared with what the container asks for.
func recorded(pod *corev1.Pod, container string, asked placement.CardRequest, gpus []egpu.GPU) ([]int, error) {
	key := pod.Namespace + "/" + pod.Name
	var cards []int
	for i := range gpus {
		r := gpus[i].Status.Allocated[key]
		if r == nil || r.UID != pod.UID {
			continue
		}
		if r.Guessed {
			return nil, errors.New("another scheduler put it on this node, and no cards were chosen for it: " +
				"remove nodeName and schedulerName from the pod, so that elastic-gpu-scheduler binds it")
		}
		at := slices.IndexFunc(r.Containers, func(c egpu.ContainerResource) bool { return c.Container == container })
		if at < 0 {
			continue
		}
		if err := covers(&r.Containers[at], asked); err != nil {
			return nil, fmt.Errorf("GPU %s: %w", gpus[i].Name, err)
		}
		cards = append(cards, gpus[i].Spec.Index)
	}
	switch {
	case len(cards) > asked.Count:
		return nil, fmt.Errorf("it was given %d cards and asks for %d", len(cards), asked.Count)
	case len(cards) < asked.Count:
		return nil, &NoRecord{fmt.Sprintf("it asks for %d cards, and the status of this node's GPU objects gives it %d (kubectl get gpus -o yaml, "+
			"status.allocated): was it bound by elastic-gpu-scheduler, and does that run?", asked.Count, len(cards))}
	}
	slices.Sort(cards)
	return cards, nil
}

// covers says that a container asks for no more of a card than was recorded for it.
func covers(has *egpu.ContainerResource, asked placement.CardRequest) error {
	core := has.Resource.Name(egpu.ResourceCore, resource.DecimalSI).Value()
	memory := has.Resource.Name(egpu.ResourceMemory, resource.DecimalSI).Value()
	want := (asked.Core + 9) / 10
	if asked.Exclusive {
		want = 100
	}
	if want > core || asked.Memory > memory && !asked.Exclusive {
		return fmt.Errorf("it asks for %d percent and %d MiB of a card, and was given %d percent and %d MiB", want, asked.Memory, core, memory)
	}
	return nil
}

// recordedOn a card are the pods, by UID, and the ElasticGPUs, by name.
func recordedOn(gpus []egpu.GPU, index int) map[string]bool {
	out := map[string]bool{}
	for i := range gpus {
		if gpus[i].Spec.Index != index {
			continue
		}
		for _, r := range gpus[i].Status.Allocated {
			if r != nil && r.Namespace == egpu.DeviceNamespace {
				out[r.Pod] = true
			} else if r != nil && r.UID != "" {
				out[string(r.UID)] = true
			}
		}
	}
	return out
}

// cardsOf an ElasticGPU on this node, which its maker wrote into it.
func cardsOf(device *egpu.ElasticGPU, node string, gpus []egpu.GPU) ([]int, error) {
	if on := request.NodeOf(device); on != "" && on != node {
		return nil, fmt.Errorf("ElasticGPU %s is on node %s", device.Name, on)
	}
	cards, err := request.ParseCards(device.Annotations[egpu.CardsAnnotation])
	if err != nil {
		return nil, fmt.Errorf("ElasticGPU %s, annotation %s: %w", device.Name, egpu.CardsAnnotation, err)
	}
	if len(cards) > 0 {
		return cards, nil
	}
	for _, name := range request.GPUNames(device) {
		at := slices.IndexFunc(gpus, func(g egpu.GPU) bool { return g.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("ElasticGPU %s has GPU %s, which is not on this node", device.Name, name)
		}
		cards = append(cards, gpus[at].Spec.Index)
	}
	if len(cards) == 0 && device.Spec.RemoteGPU == nil {
		return nil, fmt.Errorf("ElasticGPU %s does not say which cards it has", device.Name)
	}
	return cards, nil
}
