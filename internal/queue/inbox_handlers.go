package queue

import (
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
)

func (s *Shell) handle(m message) {
	wl, isWorkload := m.object.(*kueue.Workload)
	switch {
	case m.ask != nil:
		m.ask()
	case m.result != nil:
		s.wrote(m.result)
	case m.status != nil:
		s.statuses.Written(m.status.queue, m.status.err)
	case m.found != nil:
		s.options.Devices.Found(m.found)
	case isWorkload && m.gone:
		s.lost(wl)
	case isWorkload:
		s.saw(wl)
	case isWorld(m.object):
		s.sawWorld(m.object, m.gone)
	case m.object != nil && devices.Is(m.object):
		s.options.Devices.Saw(m.object, m.gone)
	default:
		s.sawQueue(m.object, m.gone)
	}
}

// sawWorld takes in what the placer is to know: where pods can be.
func (s *Shell) sawWorld(obj client.Object, gone bool) {
	if s.options.Placer.Saw(obj, gone) {
		s.engine.Apply(admission.CapacityChanged{})
		for _, l := range s.late {
			s.look(l.tracked)
		}
	}
}

// sawQueue takes in a queue, or what queues refer to.
func (s *Shell) sawQueue(obj client.Object, gone bool) {
	if claim, ok := obj.(*egpu.ElasticGPUClaim); ok {
		s.sawClaim(claim, gone)
		return
	}
	s.lookAll = s.lookAll || s.objects.ChangesLifecycle(obj, gone)
	s.flavorsChanged = s.flavorsChanged || gone || s.objects.ChangesSpec(obj)
	s.objects.Set(obj, gone)
	s.statuses.ObjectChanged(obj)
	s.keeper.saw(obj, gone)
	switch o := obj.(type) {
	case *kueue.ClusterQueue:
		if gone {
			s.engine.Apply(admission.QueueGone{Name: o.Name})
			return
		}
		s.tellQueue(o)
	case *kueue.AdmissionCheck, *kueue.Topology:
		if _, topology := obj.(*kueue.Topology); topology && s.options.Placer != nil {
			s.sawWorld(obj, gone)
		}
		s.tellQueues()
	case *kueue.ResourceFlavor:
		s.apply(obj, gone)
		s.tellQueues()
	default:
		s.apply(obj, gone)
	}
}

func (s *Shell) apply(obj client.Object, gone bool) {
	if gone {
		s.engine.Apply(engineview.DeletedEvent(obj))
	} else {
		s.engine.Apply(s.event(obj))
	}
}

// tellQueues tells the engine of all queues again: some may now be able to
// admit, or no longer. What it knows already costs it nothing.
func (s *Shell) tellQueues() {
	for _, cq := range s.objects.ClusterQueues {
		s.tellQueue(cq)
	}
}

func (s *Shell) tellQueue(cq *kueue.ClusterQueue) {
	s.engine.Apply(admission.QueueChanged{Queue: s.objects.Queue(cq)})
}

// event is the engine's for an object that is there, as the gates let it be
// seen.
func (s *Shell) event(obj client.Object) admission.Event {
	event := engineview.ChangedEvent(obj)
	if flavor, ok := event.(admission.FlavorChanged); ok && !s.gates.topology {
		flavor.Flavor.Topology = ""
		return flavor
	}
	return event
}

// isWorld says the object is the placer's to know: where pods can be, not who
// may run them.
func isWorld(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.Node, *corev1.Pod, *egpu.GPU:
		return true
	}
	return false
}
