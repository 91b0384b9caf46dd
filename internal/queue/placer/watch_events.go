package placer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Saw takes in an object that changed or went, and reports whether pods that did
// not fit before may fit now, or may have to be nominated elsewhere.
func (p *Placer) Saw(obj any, gone bool) (mayHelp bool) {
	defer func() { p.freed = p.freed || mayHelp }()
	switch o := obj.(type) {
	case *corev1.Node:
		p.nodes.SetNode(o, gone)
		return p.describe(o.Name)
	case *egpu.GPU:
		return p.sawGPU(o, gone)
	case *corev1.Pod:
		return p.sawPod(o, gone)
	case *kueue.Topology:
		return p.sawTopology(o, gone)
	}
	return false
}

func (p *Placer) sawGPU(gpu *egpu.GPU, gone bool) (mayHelp bool) {
	left, on := p.nodes.SetGPU(gpu, gone)
	if left != "" {
		mayHelp = p.describe(left)
	}
	if on != "" && p.describe(on) {
		mayHelp = true
	}
	return mayHelp
}

// describeNode leaves measured load out: an admission outlives it.
func describeNode(node *corev1.Node, gpus map[string]*egpu.GPU) placement.Node {
	n := inventory.Node(node, gpus)
	for i := range n.Cards {
		n.Cards[i].Load = placement.Load{}
	}
	return n
}

// describe a node to the engine, and report whether it changed: there may be more free capacity now, and what was nominated
// to one that is gone needs another.
func (p *Placer) describe(name string) bool {
	entry, now, changed := p.nodes.Describe(name)
	if !changed {
		return false
	}
	entry.Applied = now
	if now == nil {
		p.apply(placement.NodeGone{Name: name})
	} else {
		p.apply(placement.NodeChanged{Node: *now})
	}
	if now == nil || !now.Takes(nil) {
		p.nodeLost(name)
	}
	return true
}

// sawPod takes in pods that are on nodes.
func (p *Placer) sawPod(pod *corev1.Pod, gone bool) bool {
	key := pod.Namespace + "/" + pod.Name
	ended := gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	// One that was swapped out is pending as if it had not started; when it is called back it takes what
	// its workload was given.
	known, isKnown := p.pods[key]
	if ended || egpu.IsSwappedOut(pod) {
		delete(p.pods, key)
		delete(p.leaving, key)
		if isKnown {
			p.apply(placement.PodGone{Key: key})
			delete(p.asked[known.pod.Gang], key)
			p.podLeft(known)
			if pod.Status.Phase != corev1.PodSucceeded && known.pod.Gang != "" {
				p.outdated[known.pod.Gang] = true // another one will come for it
			}
		}
		return isKnown
	}
	if _, leaves := p.leaving[key]; isKnown && pod.DeletionTimestamp != nil && !leaves {
		p.podLeft(known)
		p.leave(key, known, pod)
	}
	if isKnown || pod.Spec.NodeName == "" || p.options.IgnoreAnnotated && workloadOf(pod) == "" && hasTopologyAnnotation(pod) {
		return false
	}
	asks, err := request.Pod(pod, nil)
	if err != nil {
		asks.Containers = nil // it runs in spite of what it asks: its cards are not ours to know
	}
	asks.Gang, asks.PodSet = workloadOf(pod), pod.Labels[kueuelabels.PodSet]
	asks.Resources = inventory.PodResources(pod)
	grants, said := request.Grants(pod, asks.Containers)
	left := p.bind(asks, controllerOf(pod), pod.Spec.NodeName, grants, said)
	if pod.DeletionTimestamp != nil {
		p.leave(key, p.pods[key], pod)
	}
	return left
}

// hasTopologyAnnotation says that a pod asks for a topology, as those of workloads do that have one.
func hasTopologyAnnotation(pod *corev1.Pod) bool {
	return slices.ContainsFunc([]string{
		kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation,
		kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
	}, func(name string) bool { _, found := pod.Annotations[name]; return found })
}

func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return pod.UID // one of its own is its job
}

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

// apply ignores errors: one object that makes no sense must not stop the queue.
func (p *Placer) apply(event placement.Event) { _ = p.engine.Apply(event) }
