package queue

import (
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
)

func (s *Shell) handle(m message) {
	wl, isWorkload := m.object.(*kueue.Workload)
	switch {
	case m.question != nil:
		m.question()
	case m.written != nil:
		s.writeFinished(m.written)
	case m.statusWritten != nil:
		s.statusWritten(m.statusWritten)
	case m.created != nil:
		s.createdVariant(m.created)
	case m.createAgain != nil:
		s.retryVariant(m.createAgain)
	case m.found != nil:
		s.options.Devices.SearchDone(m.found)
	case isWorkload && m.deleted:
		s.workloadDeleted(wl)
	case isWorkload:
		s.workloadChanged(wl)
	case isPlacerObject(m.object):
		s.placerObjectChanged(m.object, m.deleted)
	case m.object != nil && devices.IsDeviceObject(m.object):
		s.options.Devices.ObjectChanged(m.object, m.deleted)
	default:
		s.queueObjectChanged(m.object, m.deleted)
	}
}

// statusWritten handles the result of a write that is not a workload's.
func (s *Shell) statusWritten(r *statusResult) {
	switch o := r.queue.(type) {
	case *queuepolicy.QueuePolicy:
		s.policyWritten(o, r.err)
	case *queuepolicy.BudgetAccount:
		s.accountWritten(o, r.err)
	default:
		s.statuses.Written(r.queue, r.err)
	}
}

// placerObjectChanged handles an object that the placer knows: where pods can run.
func (s *Shell) placerObjectChanged(obj client.Object, deleted bool) {
	if pod, ok := obj.(*corev1.Pod); ok {
		s.podChanged(pod, deleted)
	}
	if s.options.Placer.Saw(obj, deleted) {
		s.engine.Apply(admission.CapacityChanged{})
		for _, waiting := range s.secondPass {
			s.scheduleStep(waiting.tracked)
		}
	}
}

// queueObjectChanged handles a queue, or an object that queues refer to.
func (s *Shell) queueObjectChanged(obj client.Object, deleted bool) {
	if claim, ok := obj.(*egpu.ElasticGPUClaim); ok {
		s.gpuClaimChanged(claim, deleted)
		return
	}
	if class, ok := obj.(*egpu.ElasticGPUClass); ok {
		s.gpuClassChanged(class, deleted)
		return
	}
	if account, ok := obj.(*queuepolicy.BudgetAccount); ok {
		s.accountChanged(account, deleted)
		return
	}
	if concerns := s.podResources.Set(obj, deleted); concerns != nil {
		s.podsChanged = append(s.podsChanged, concerns)
		return
	}
	s.allStepsDue = s.allStepsDue || s.objects.ChangesLifecycle(obj, deleted)
	s.familiesChanged = s.familiesChanged || deleted || s.objects.ChangesSpec(obj)
	s.flavorsChanged = s.flavorsChanged || deleted || s.objects.ChangesSpec(obj)
	s.policies.changed = s.policies.changed || s.objects.ChangesPolicies(obj, deleted)
	was := s.objects.Known(obj)
	s.objects.Set(obj, deleted)
	s.options.Metrics.ObjectChanged(s.objects, was, obj)
	s.statuses.ObjectChanged(obj)
	s.finalizers.objectChanged(obj, deleted)
	switch o := obj.(type) {
	case *queuepolicy.QueuePolicy: // see applyPolicies
	case *kueue.ClusterQueue:
		if deleted {
			s.engine.Apply(admission.QueueGone{Name: o.Name})
			return
		}
		s.applyQueue(o)
	case *kueue.AdmissionCheck, *kueue.Topology:
		if _, topology := obj.(*kueue.Topology); topology && s.options.Placer != nil {
			s.placerObjectChanged(obj, deleted)
		}
		s.applyQueues()
	case *kueue.ResourceFlavor:
		s.applyObject(obj, deleted)
		s.applyQueues()
	case *cloud.CloudOffer:
		s.applyObject(obj, deleted)
		s.pricesChanged()
	default:
		s.applyObject(obj, deleted)
	}
}

func (s *Shell) applyObject(obj client.Object, deleted bool) {
	if deleted {
		s.engine.Apply(engineview.DeletedEvent(obj))
	} else {
		s.engine.Apply(s.event(obj))
	}
}

// applyQueues applies all ClusterQueues again: some may now be active, or no longer. Those that did
// not change cost the engine nothing.
func (s *Shell) applyQueues() {
	for _, cq := range s.objects.ClusterQueues {
		s.applyQueue(cq)
	}
}

func (s *Shell) applyQueue(cq *kueue.ClusterQueue) {
	s.engine.Apply(admission.QueueChanged{Queue: s.objects.Queue(cq)})
}

// event is the engine's event for an object that was created or changed, as far as the feature
// gates allow.
func (s *Shell) event(obj client.Object) admission.Event {
	event := s.objects.WithPolicy(engineview.ChangedEvent(obj))
	if flavor, ok := event.(admission.FlavorChanged); ok && !s.gates.topology {
		flavor.Flavor.Topology = ""
		return flavor
	}
	return event
}

// isPlacerObject says that the object is the placer's: it says where pods can run, not which may.
func isPlacerObject(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.Node, *corev1.Pod, *egpu.GPU:
		return true
	}
	return false
}
