package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
)

// defaultPod gates a pod if it, or the object it belongs to, names a queue, or if every pod needs one.
func (d *defaulter) defaultPod(ctx context.Context, request admission.Request) (client.Object, error) {
	if request.Operation != admissionv1.Create {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		return nil, err
	}
	if kinds.QueueName(pod) == "" && !d.filter.PodsWithoutQueueName {
		return nil, nil
	}
	parent := d.kinds.ByName(pod.Annotations[kinds.ParentAnnotation])
	if parent == nil {
		independent, err := d.filter.IsIndependent(ctx, pod, request.Namespace)
		if err != nil || !independent {
			return nil, err
		}
	}
	if err := kinds.ValidateSliceLayers([]kueue.PodSet{kinds.PodSetOf(pod, kueue.DefaultPodSetName, math.MaxInt32)}, d.noSliceLayers).ToAggregate(); err != nil {
		return nil, err
	}
	addGates(pod)
	kinds.SetLabel(pod, kinds.ManagedLabel, "true")
	if err := setGroup(parent, pod); err != nil {
		return nil, err
	}
	if len(pod.OwnerReferences) == 0 {
		// No controller replaces the pod, so it must not vanish before its end has been read.
		controllerutil.AddFinalizer(pod, kinds.ManagedLabel)
	}
	return pod, nil
}

// addGates adds the gates a pod may need later: gates can be removed from a pod, never added. Nothing
// that its author wrote on the pod keeps them away.
func addGates(pod *corev1.Pod) {
	if !podgroups.IsGated(pod) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kinds.AdmissionGate})
	}
	if !podgroups.HasGate(pod, kueue.TopologySchedulingGate) && kinds.TopologyRequest(&pod.ObjectMeta, "", false, "", 0) != nil {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
	}
}

// setGroup writes onto a pod which group it is in, or validates the group its user wrote.
func setGroup(parent *kinds.Kind, pod *corev1.Pod) error {
	if parent == nil || !parent.GroupsPods() {
		return validateGroup(pod)
	}
	group, found, err := parent.PodGroup(pod)
	if err != nil || !found {
		return err // the API server calls the webhook again when the operator has labelled the pod
	}
	if name := kinds.PrebuiltName(pod); name != "" {
		kinds.SetAnnotation(pod, kinds.GroupNameLabel, name) // it may be too long for a label
	} else {
		prefix := strings.ToLower(parent.GVK.Kind) + "-" + group.Name
		kinds.SetLabel(pod, kinds.GroupNameLabel, kinds.ShortName(prefix, parent.GVK.Kind, parent.GVK.Group, group.Name))
	}
	kinds.SetAnnotation(pod, kinds.RoleAnnotation, group.PodSet)
	kinds.SetAnnotation(pod, kinds.GroupServing, "true")
	return nil
}

func validateGroup(pod *corev1.Pod) error {
	group, total := podgroups.GroupName(pod), pod.Annotations[kinds.GroupTotal]
	switch {
	case group == "" && total == "":
		return nil
	case group == "":
		return fmt.Errorf("annotation %s needs the label %s", kinds.GroupTotal, kinds.GroupNameLabel)
	case pod.Annotations[kinds.GroupServing] == "true":
		return nil
	}
	if n, err := strconv.Atoi(total); err != nil || n < 1 {
		return fmt.Errorf("annotation %s: %q is not a number of pods", kinds.GroupTotal, total)
	}
	if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
		return fmt.Errorf("%s: %q: %s", kinds.GroupNameLabel, group, strings.Join(problems, "; "))
	}
	kinds.SetAnnotation(pod, kinds.RoleAnnotation, podgroups.RoleHash(&pod.Spec))
	return nil
}
