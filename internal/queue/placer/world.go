package placer

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// machine is a node with its cards, and what the engine was told of it.
type machine struct {
	node *corev1.Node
	gpus map[string]*egpu.GPU
	told *placement.Node
}

// Saw takes in an object that changed or went, and reports whether pods that
// found no place before may find one now.
func (p *Placer) Saw(obj any, gone bool) (mayHelp bool) {
	switch o := obj.(type) {
	case *corev1.Node:
		m := p.machine(o.Name)
		if m.node = o; gone {
			m.node = nil
		}
		return p.describe(o.Name, m)
	case *egpu.GPU:
		return p.sawGPU(o, gone)
	case *corev1.Pod:
		return p.sawPod(o, gone)
	case *kueue.Topology:
		return p.sawTopology(o, gone)
	}
	return false
}

func (p *Placer) machine(name string) *machine {
	m := p.machines[name]
	if m == nil {
		m = &machine{gpus: map[string]*egpu.GPU{}}
		p.machines[name] = m
	}
	return m
}

func (p *Placer) sawGPU(gpu *egpu.GPU, gone bool) bool {
	changed := false
	if was, known := p.gpus[gpu.Name]; known && (gone || was != gpu.Spec.NodeName) {
		delete(p.gpus, gpu.Name)
		delete(p.machine(was).gpus, gpu.Name)
		changed = p.describe(was, p.machine(was))
	}
	if gone || gpu.Spec.NodeName == "" {
		return changed
	}
	m := p.machine(gpu.Spec.NodeName)
	m.gpus[gpu.Name] = gpu
	p.gpus[gpu.Name] = gpu.Spec.NodeName
	return p.describe(gpu.Spec.NodeName, m) || changed
}

// describe tells the engine what a node is now, if that is news: kubelets
// write much that is not.
func (p *Placer) describe(name string, m *machine) bool {
	if m.node == nil {
		if m.told != nil {
			m.told = nil
			p.apply(placement.NodeGone{Name: name})
			p.shake(name)
		}
		if len(m.gpus) == 0 {
			delete(p.machines, name)
		}
		return false
	}
	now := inventory.Node(m.node, m.gpus)
	for i := range now.Cards {
		now.Cards[i].Load = placement.Load{} // admission does not go by the minute
	}
	if m.told != nil && reflect.DeepEqual(*m.told, now) {
		return false
	}
	m.told = &now
	p.apply(placement.NodeChanged{Node: now})
	if !now.Takes(nil) {
		p.shake(name)
	}
	return true
}

// sawPod keeps the books of pods that are on nodes.
func (p *Placer) sawPod(pod *corev1.Pod, gone bool) bool {
	key := pod.Namespace + "/" + pod.Name
	ended := gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	// One that was swapped out waits in line as if it had not started; when it is told to come back it takes the room
	// that its workload was given.
	known, isKnown := p.pods[key]
	if ended || egpu.IsSwappedOut(pod) {
		delete(p.pods, key)
		if isKnown {
			p.apply(placement.PodGone{Key: key})
			p.left(known)
		}
		return isKnown
	}
	if isKnown && pod.DeletionTimestamp != nil && !known.leaving {
		known.leaving = true
		p.pods[key] = known
		p.left(known)
	}
	if isKnown || pod.Spec.NodeName == "" {
		return false
	}
	asks, err := request.Pod(pod, nil)
	if err != nil {
		asks.Containers = nil // it runs in spite of what it asks: its cards are not ours to know
	}
	asks.Gang, asks.PodSet = workloadOf(pod), pod.Labels[podSetLabel]
	asks.Resources = inventory.PodResources(pod)
	grants, said := request.Grants(pod, asks.Containers)
	p.bind(asks, controllerOf(pod), pod.Spec.NodeName, grants, said)
	if b := p.pods[key]; pod.DeletionTimestamp != nil {
		b.leaving = true
		p.pods[key] = b
	}
	return false
}

func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return pod.UID // one of its own is its job
}

const podSetLabel = "kueue.x-k8s.io/podset"

func (p *Placer) sawTopology(topology *kueue.Topology, gone bool) bool {
	if gone {
		delete(p.topologies, topology.Name)
		return false
	}
	var levels []string
	for _, level := range topology.Spec.Levels {
		levels = append(levels, level.NodeLabel)
	}
	p.topologies[topology.Name] = levels
	return true
}

// apply leaves out what makes no sense: what the cluster says of a node or a
// pod is not the queue's to refuse, and one bad object must not stop the rest.
func (p *Placer) apply(event placement.Event) { _ = p.engine.Apply(event) }
