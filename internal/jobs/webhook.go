package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// WebhookPath is where the API server sends jobs of every kind, and pods.
const WebhookPath = "/mutate-job"

// holder holds jobs back as they are created, before their operators see them.
type holder struct {
	*guard
	elsewhere, noSliceLayers bool
}

// Handle answers one admission request.
func (h *holder) Handle(ctx context.Context, request admission.Request) admission.Response {
	kind := h.kinds.byGVK(schema.GroupVersionKind(request.Kind))
	if kind == nil || request.SubResource != "" {
		return admission.Allowed("")
	}
	if request.Operation != admissionv1.Create {
		if answer := h.guard.Handle(ctx, request); kind.suspends() || !answer.Allowed {
			return answer
		}
	}
	var changed client.Object
	var err error
	if kind.isPod() {
		changed, err = h.pod(ctx, request)
	} else {
		changed, err = h.object(ctx, kind, request)
	}
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("queueing the %s: %w", kind.GVK.Kind, err))
	}
	if changed == nil {
		return admission.Allowed("")
	}
	data, err := json.Marshal(changed)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, data)
}

func (k *Kind) isPod() bool { return k.GVK.Group == "" && k.GVK.Kind == "Pod" }

// object suspends a job, or marks the pods it will make; nil means there is
// nothing to do.
func (h *holder) object(ctx context.Context, kind *Kind, request admission.Request) (client.Object, error) {
	job, err := decode(kind, request.Namespace, request.Object.Raw)
	if err != nil {
		return nil, err
	}
	obj := job.Unstructured
	creating := request.Operation == admissionv1.Create
	if queueName(obj) == "" && creating {
		if err := h.giveDefaultQueue(ctx, obj); err != nil {
			return nil, err
		}
	}
	managed, err := h.scope.manages(ctx, kind, obj)
	if err != nil || !managed {
		return nil, err
	}
	if name := string(queueName(obj)); name != "" {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("%s: %q: %s", QueueNameLabel, name, strings.Join(problems, "; "))
		}
	}
	if creating {
		if err := h.checkLayers(ctx, object{obj, kind}, request.Object.Raw); err != nil {
			return nil, err
		}
	}
	if kind.suspends() {
		if err := h.handOver(ctx, job); err != nil {
			return nil, err
		}
		return obj, job.suspend(true)
	}
	return obj, markPods(kind, obj)
}

// checkLayers refuses slices of slices that can never be. Of a job that cannot
// be read yet its controller tells.
func (h *holder) checkLayers(ctx context.Context, j object, raw []byte) error {
	if !bytes.Contains(raw, []byte(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)) {
		return nil
	}
	sets, err := j.podSets(ctx, h.scope.cached)
	if err != nil {
		return nil
	}
	return layerProblems(sets, h.noSliceLayers).ToAggregate()
}

// handOver leaves a job to whoever copies it to another cluster, if its queue
// sends it there and nobody else was chosen to run it.
func (h *holder) handOver(ctx context.Context, j object) error {
	by := j.managedBy()
	if !h.elsewhere || j.kind.managedBy == nil || by != "" && by != j.kind.Spec.ManagedByDefault {
		return nil
	}
	leaves, err := h.scope.leadsElsewhere(ctx, j.GetNamespace(), queueName(j))
	if err != nil || !leaves {
		return err
	}
	return j.kind.managedBy.set(j.Object, kueue.MultiKueueControllerName)
}

func (h *holder) giveDefaultQueue(ctx context.Context, obj *unstructured.Unstructured) error {
	queue, err := h.scope.defaultQueue(ctx, obj.GetNamespace())
	if err != nil || queue == "" {
		return err
	}
	independent, err := h.scope.independent(ctx, obj, obj.GetNamespace())
	if err != nil || !independent {
		return err
	}
	setLabel(obj, QueueNameLabel, queue)
	return nil
}

// markPods writes onto an object's pod templates what makes its pods wait.
func markPods(kind *Kind, obj *unstructured.Unstructured) error {
	marks := map[string]string{QueueNameLabel: string(queueName(obj))}
	if class := obj.GetLabels()[PriorityClassLabel]; class != "" {
		marks[PriorityClassLabel] = class
	}
	for _, p := range kind.labels {
		for key, value := range marks {
			if err := p.setKey(obj.Object, key, value); err != nil {
				return err
			}
		}
	}
	notes := map[string]string{ParentAnnotation: kind.Name}
	if name := PrebuiltName(obj); name != "" && kind.group != nil {
		notes[PrebuiltLabel] = name
	}
	for _, p := range kind.annotations {
		for key, value := range notes {
			if err := p.setKey(obj.Object, key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// setKey writes a key, which may hold dots, of the map at a path.
func (p path) setKey(root map[string]any, key, value string) error {
	return append(p[:len(p):len(p)], segment{name: key}).set(root, value)
}

// pod gates a pod whose job, itself or the object it belongs to, waits in a
// queue.
func (h *holder) pod(ctx context.Context, request admission.Request) (client.Object, error) {
	if request.Operation != admissionv1.Create {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		return nil, err
	}
	if queueName(pod) == "" {
		return nil, nil
	}
	parent := h.kinds.byName(pod.Annotations[ParentAnnotation])
	if parent == nil {
		independent, err := h.scope.independent(ctx, pod, request.Namespace)
		if err != nil || !independent {
			return nil, err
		}
	}
	if err := layerProblems([]kueue.PodSet{podSetOf(pod, kueue.DefaultPodSetName, math.MaxInt32)}, h.noSliceLayers).ToAggregate(); err != nil {
		return nil, err
	}
	if !gated(pod) && pod.Labels[ManagedLabel] == "" {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: AdmissionGate})
	}
	if !hasGate(pod, kueue.TopologySchedulingGate) && pod.Labels[ManagedLabel] == "" && topologyRequest(&pod.ObjectMeta, "", false, "", 0) != nil {
		// Gates can be taken off later, not put on.
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
	}
	setLabel(pod, ManagedLabel, "true")
	if err := h.group(parent, pod); err != nil {
		return nil, err
	}
	if len(pod.OwnerReferences) == 0 {
		// Nobody replaces it, so its end must not go unseen.
		controllerutil.AddFinalizer(pod, ManagedLabel)
	}
	return pod, nil
}

// group tells a pod which group it is in, or checks what the user said of it.
func (h *holder) group(parent *Kind, pod *corev1.Pod) error {
	if parent == nil || parent.group == nil {
		return checkGroup(pod)
	}
	vars, err := podVars(pod)
	if err != nil {
		return err
	}
	name, found, err := parent.group.object.value(vars)
	if err != nil || !found {
		return err // the operator has yet to say; we are asked again when it has
	}
	key, found, err := parent.group.key.value(vars)
	if err != nil || !found && !parent.group.key.absent() {
		return err
	}
	text := fmt.Sprint(name.Value())
	if found {
		text += "-" + fmt.Sprint(key.Value())
	}
	set, err := parent.group.podSet.text(vars)
	if err != nil {
		return err
	}
	if set == "" {
		set = parent.podSets[0].Name
	}
	if name := PrebuiltName(pod); name != "" {
		setAnnotation(pod, GroupNameLabel, name) // which may be too long for a label
	} else {
		setLabel(pod, GroupNameLabel, shortName(strings.ToLower(parent.GVK.Kind)+"-"+text, parent.GVK.Kind, parent.GVK.Group, text))
	}
	setAnnotation(pod, RoleAnnotation, set)
	setAnnotation(pod, GroupServing, "true")
	return nil
}

func checkGroup(pod *corev1.Pod) error {
	group, total := groupOf(pod), pod.Annotations[GroupTotal]
	switch {
	case group == "" && total == "":
		return nil
	case group == "":
		return fmt.Errorf("annotation %s needs the label %s", GroupTotal, GroupNameLabel)
	case pod.Annotations[GroupServing] == "true":
		return nil
	}
	if n, err := strconv.Atoi(total); err != nil || n < 1 {
		return fmt.Errorf("annotation %s: %q is not a number of pods", GroupTotal, total)
	}
	if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
		return fmt.Errorf("%s: %q: %s", GroupNameLabel, group, strings.Join(problems, "; "))
	}
	setAnnotation(pod, RoleAnnotation, roleHash(&pod.Spec))
	return nil
}

func setLabel(obj client.Object, key, value string) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	obj.SetLabels(labels)
}

func setAnnotation(obj client.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}
