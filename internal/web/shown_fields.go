package web

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// A new session reads everything there is while someone waits. Of kinds with many objects it reads what records show and
// steps over the rest: a node's images, a job's pod templates, managed fields.

// readAll reads the whole object, of a kind with few.
func readAll[T any, P interface {
	*T
	runtime.Object
}](data []byte) (runtime.Object, error) {
	object := P(new(T))
	return object, json.UnmarshalCaseSensitivePreserveInts(data, object)
}

// part reads a field of an object by its name, or skips it.
type part func(r *jsonReader, name []byte)

// readShown reads an object's metadata, and parts of its spec and status.
func readShown(data []byte, meta *metav1.ObjectMeta, spec, status part) error {
	r := &jsonReader{data: data}
	r.object(func(name []byte) {
		switch string(name) {
		case "metadata":
			r.object(func(name []byte) { readMeta(r, name, meta) })
		case "spec":
			r.object(func(name []byte) { spec(r, name) })
		case "status":
			r.object(func(name []byte) { status(r, name) })
		default:
			r.skip()
		}
	})
	return r.done()
}

func skipped(r *jsonReader, _ []byte) { r.skip() }

// shownNames of labels and annotations are those that records are made of, and the one of a bookmark that ends a list.
var shownNames = []string{modelLabel, kueuelabels.ClusterQueue, kueue.WorkloadAnnotation, metav1.InitialEventsAnnotationKey}

func readMeta(r *jsonReader, name []byte, m *metav1.ObjectMeta) {
	switch string(name) {
	case "name":
		m.Name = r.string()
	case "namespace":
		m.Namespace = r.string()
	case "resourceVersion":
		m.ResourceVersion = r.string()
	case "creationTimestamp":
		m.CreationTimestamp = r.time()
	case "labels":
		m.Labels = readNames(r, shownNames)
	case "annotations":
		m.Annotations = readNames(r, shownNames)
	case "ownerReferences":
		r.array(func() { m.OwnerReferences = append(m.OwnerReferences, readOwner(r)) })
	default:
		r.skip()
	}
}

// readNames reads the values of some names, which are written here once.
func readNames(r *jsonReader, names []string) (found map[string]string) {
	r.object(func(name []byte) {
		at := slices.IndexFunc(names, func(of string) bool { return string(name) == of })
		if at < 0 {
			r.skip()
			return
		}
		if found == nil {
			found = map[string]string{}
		}
		found[names[at]] = r.string()
	})
	return found
}

// cardResources are the resources that count as such.
var cardResources = []corev1.ResourceName{"nvidia.com/gpu", egpu.ResourceCore, egpu.ResourceMemory}

// readCards reads what of resources are cards.
func readCards(r *jsonReader) (found corev1.ResourceList) {
	r.object(func(name []byte) {
		at := slices.IndexFunc(cardResources, func(of corev1.ResourceName) bool { return string(name) == string(of) })
		if at < 0 {
			r.skip()
			return
		}
		if found == nil {
			found = corev1.ResourceList{}
		}
		found[cardResources[at]] = r.quantity()
	})
	return found
}

func readOwner(r *jsonReader) (o metav1.OwnerReference) {
	r.object(func(name []byte) {
		switch string(name) {
		case "kind":
			o.Kind = r.string()
		case "name":
			o.Name = r.string()
		case "controller":
			o.Controller = ptr.To(r.bool())
		default:
			r.skip()
		}
	})
	return o
}

func readPodMetadata(data []byte) (runtime.Object, error) {
	pod := podMetadata()
	return pod, readShown(data, &pod.ObjectMeta, skipped, skipped)
}

func readNode(data []byte) (runtime.Object, error) {
	n := &corev1.Node{}
	return n, readShown(data, &n.ObjectMeta, func(r *jsonReader, name []byte) {
		if string(name) == "unschedulable" {
			n.Spec.Unschedulable = r.bool()
		} else {
			r.skip()
		}
	}, func(r *jsonReader, name []byte) {
		if string(name) == "conditions" {
			r.array(func() { n.Status.Conditions = append(n.Status.Conditions, readNodeCondition(r)) })
		} else {
			r.skip()
		}
	})
}

func readNodeCondition(r *jsonReader) (c corev1.NodeCondition) {
	r.object(func(name []byte) {
		switch string(name) {
		case "type":
			c.Type = corev1.NodeConditionType(r.string())
		case "status":
			c.Status = corev1.ConditionStatus(r.string())
		default:
			r.skip()
		}
	})
	return c
}

func readGPU(data []byte) (runtime.Object, error) {
	g := &egpu.GPU{}
	return g, readShown(data, &g.ObjectMeta, func(r *jsonReader, name []byte) {
		switch string(name) {
		case "index":
			g.Spec.Index = int(r.integer(64))
		case "model":
			g.Spec.Model = r.string()
		case "memory":
			g.Spec.Memory = r.integer(64)
		case "nodeName":
			g.Spec.NodeName = r.string()
		default:
			r.skip()
		}
	}, func(r *jsonReader, name []byte) { readGPUStatus(r, name, &g.Status) })
}

func readGPUStatus(r *jsonReader, name []byte, s *egpu.GPUStatus) {
	switch string(name) {
	case "state":
		s.State = r.string()
	case "message":
		s.Message = r.string()
	case "allocated":
		r.object(func(pod []byte) {
			if s.Allocated == nil {
				s.Allocated = map[string]*egpu.PodResource{}
			}
			s.Allocated[r.unquote(pod)] = readAllocated(r)
		})
	case "load":
		if !r.absent() {
			s.Load = readLoad(r)
		}
	case "processes":
		r.into(&s.Processes)
	default:
		r.skip()
	}
}

// readAllocated reads what a pod has of a card.
func readAllocated(r *jsonReader) *egpu.PodResource {
	if r.absent() {
		return nil
	}
	p := &egpu.PodResource{}
	r.within("containers", func() {
		r.array(func() {
			var c egpu.ContainerResource
			r.within("resource", func() { c.Resource = readCards(r) })
			p.Containers = append(p.Containers, c)
		})
	})
	return p
}

func readLoad(r *jsonReader) *egpu.GPULoad {
	l := &egpu.GPULoad{}
	r.object(func(name []byte) {
		switch string(name) {
		case "core":
			l.Core = int(r.integer(64))
		case "power":
			l.Power = int(r.integer(64))
		default:
			r.skip()
		}
	})
	return l
}

func readWorkload(data []byte) (runtime.Object, error) {
	wl := &kueue.Workload{}
	return wl, readShown(data, &wl.ObjectMeta, func(r *jsonReader, name []byte) { readWorkloadSpec(r, name, &wl.Spec) },
		func(r *jsonReader, name []byte) { readWorkloadStatus(r, name, &wl.Status) })
}

func readWorkloadSpec(r *jsonReader, name []byte, s *kueue.WorkloadSpec) {
	switch string(name) {
	case "podSets":
		r.array(func() { s.PodSets = append(s.PodSets, readPodSet(r)) })
	case "queueName":
		s.QueueName = kueue.LocalQueueName(r.string())
	case "priorityClassRef":
		r.into(&s.PriorityClassRef)
	case "priority":
		r.into(&s.Priority)
	case "active":
		r.into(&s.Active)
	case "maximumExecutionTimeSeconds":
		r.into(&s.MaximumExecutionTimeSeconds)
	default:
		r.skip()
	}
}

// readPodSet reads how many pods there are, and which cards the containers of one ask for.
func readPodSet(r *jsonReader) (set kueue.PodSet) {
	r.object(func(name []byte) {
		switch string(name) {
		case "count":
			set.Count = int32(r.integer(32))
		case "template":
			r.within("spec", func() {
				r.within("containers", func() {
					r.array(func() {
						var c corev1.Container
						r.within("resources", func() { c.Resources = readResources(r) })
						set.Template.Spec.Containers = append(set.Template.Spec.Containers, c)
					})
				})
			})
		default:
			r.skip()
		}
	})
	return set
}

func readResources(r *jsonReader) (of corev1.ResourceRequirements) {
	r.object(func(name []byte) {
		switch string(name) {
		case "limits":
			of.Limits = readCards(r)
		case "requests":
			of.Requests = readCards(r)
		default:
			r.skip()
		}
	})
	return of
}

func readWorkloadStatus(r *jsonReader, name []byte, s *kueue.WorkloadStatus) {
	switch string(name) {
	case "conditions":
		r.array(func() { s.Conditions = append(s.Conditions, readCondition(r)) })
	case "admission":
		if !r.absent() {
			s.Admission = &kueue.Admission{}
			r.within("clusterQueue", func() { s.Admission.ClusterQueue = kueue.ClusterQueueReference(r.string()) })
		}
	case "schedulingStats":
		r.into(&s.SchedulingStats)
	case "admissionChecks":
		r.array(func() { readPurchases(r, s) })
	default:
		r.skip()
	}
}

var (
	purchaseNames = []string{cloud.PurchaseLabel}
	priceNames    = []string{cloud.PriceAnnotation, cloud.BoughtAtAnnotation}
)

// readPurchases reads what a check says of nodes that it bought. Nothing else of checks is shown.
func readPurchases(r *jsonReader, s *kueue.WorkloadStatus) {
	var updates []kueue.PodSetUpdate
	r.within("podSetUpdates", func() {
		r.array(func() {
			var u kueue.PodSetUpdate
			r.object(func(name []byte) {
				switch string(name) {
				case "nodeSelector":
					u.NodeSelector = readNames(r, purchaseNames)
				case "annotations":
					u.Annotations = readNames(r, priceNames)
				default:
					r.skip()
				}
			})
			if u.NodeSelector != nil && u.Annotations != nil {
				updates = append(updates, u)
			}
		})
	})
	if updates != nil {
		s.AdmissionChecks = append(s.AdmissionChecks, kueue.AdmissionCheckState{PodSetUpdates: updates})
	}
}

func readCondition(r *jsonReader) (c metav1.Condition) {
	r.object(func(name []byte) {
		switch string(name) {
		case "type":
			c.Type = r.string()
		case "status":
			c.Status = metav1.ConditionStatus(r.string())
		case "reason":
			c.Reason = r.string()
		case "message":
			c.Message = r.string()
		case "lastTransitionTime":
			c.LastTransitionTime = r.time()
		default:
			r.skip()
		}
	})
	return c
}
