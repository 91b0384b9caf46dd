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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
)

// defaultPod gates a pod if it, or the object it belongs to, names a queue, or if every pod needs one.
func (d *defaulter) defaultPod(ctx context.Context, kind *kinds.Kind, request admission.Request) (client.Object, error) {
	if request.Operation != admissionv1.Create {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if kinds.QueueName(pod) == "" && !d.filter.Pods {
		return nil, nil
	}
	parent := d.kinds.ByName(pod.Annotations[kinds.ParentAnnotation])
	if parent == nil {
		if waits, err := d.isJob(ctx, pod, request.Namespace); err != nil || !waits {
			return nil, err
		}
		// The pod must not vanish before its end has been read. Those of a parent are replaced.
		controllerutil.AddFinalizer(pod, kinds.ManagedLabel)
	}
	if err := refuse(d.validatePod(kind, parent, pod)); err != nil {
		return nil, err
	}
	d.addGates(pod)
	kinds.SetLabel(pod, kinds.ManagedLabel, "true")
	pod.Namespace = request.Namespace // which the request may leave out
	return pod, d.setGroup(ctx, parent, pod)
}

// isJob: the pod is a job of its own, or one of a group that users wrote. It gets the defaults of jobs.
func (d *defaulter) isJob(ctx context.Context, pod *corev1.Pod, namespace string) (bool, error) {
	independent, err := d.filter.IsIndependent(ctx, pod, namespace)
	if err != nil || !independent {
		return false, err
	}
	pod.Namespace = namespace // which the request may leave out
	if err := d.setDefaults(ctx, pod); err != nil {
		return false, err
	}
	return kinds.QueueName(pod) != "" || d.filter.WithoutQueueName, nil
}

// validatePod finds what makes a new pod invalid. The messages are Kueue's.
func (d *defaulter) validatePod(kind, parent *kinds.Kind, pod *corev1.Pod) field.ErrorList {
	errs := d.validateMeta(kind, pod)
	if value, given := pod.Labels[kinds.ManagedLabel]; given && value != "true" {
		errs = append(errs, field.Forbidden(labelsPath.Key(kinds.ManagedLabel), "managed label value can only be 'true'"))
	}
	if parent == nil || !parent.GroupsPods() {
		errs = append(errs, validateGroup(pod)...)
	}
	if d.topology {
		errs = append(errs, kinds.ValidateTopologyRequests([]kueue.PodSet{kinds.PodSetOf(pod, kueue.DefaultPodSetName, math.MaxInt32)}, d.noSliceLayers)...)
	}
	return errs
}

// addGates adds the gates a pod may need later: gates can be removed from a pod, never added. Nothing
// that its author wrote on the pod keeps them away. Whether its flavor has a topology is known when it is
// admitted; the label numbers the pods of a group there.
func (d *defaulter) addGates(pod *corev1.Pod) {
	if !podgroups.IsGated(pod) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kinds.AdmissionGate})
	}
	if !d.topology {
		return
	}
	if label, given := pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation]; given {
		kinds.SetLabel(pod, kueue.PodGroupPodIndexLabel, pod.Labels[label])
	}
	if !podgroups.HasGate(pod, kueue.TopologySchedulingGate) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate})
	}
}

// setGroup writes onto a pod which group it is in, and which role it has there.
func (d *defaulter) setGroup(ctx context.Context, parent *kinds.Kind, pod *corev1.Pod) error {
	if parent == nil || !parent.GroupsPods() {
		// Who makes the workload names its roles. Otherwise pods of one role are alike: the first stands for all.
		given := kinds.PrebuiltName(pod) != "" && pod.Annotations[kinds.RoleAnnotation] != ""
		if podgroups.GroupName(pod) != "" && !given {
			kinds.SetAnnotation(pod, kinds.RoleAnnotation, podgroups.RoleHash(&pod.Spec))
		}
		return nil
	}
	group, found, err := parent.PodGroup(pod)
	if err != nil || !found {
		return err // the API server calls the webhook again when the operator has labelled the pod
	}
	if name := kinds.PrebuiltName(pod); name != "" {
		kinds.SetPodGroupName(pod, name)
	} else {
		if parent.IsBeyondLeast(pod) { // it waits for idle quota by itself
			of, err := parent.GroupNameOfPod(ctx, d.filter.Cached, d.filter.Direct, group, pod)
			kinds.SetAnnotation(pod, v1alpha1.ExtraOfAnnotation, of)
			return err
		}
		name, err := parent.GroupNameOfPod(ctx, d.filter.Cached, d.filter.Direct, group, pod)
		if err != nil {
			return err
		}
		kinds.SetPodGroupName(pod, name)
	}
	kinds.SetAnnotation(pod, kinds.RoleAnnotation, group.PodSet)
	kinds.SetAnnotation(pod, kinds.GroupServing, "true")
	return nil
}

// validateGroup checks the group that a pod's user wrote.
func validateGroup(pod *corev1.Pod) field.ErrorList {
	group := podgroups.GroupName(pod)
	total, counted := pod.Annotations[kinds.GroupTotal]
	namePath := labelsPath.Key(kinds.GroupNameLabel)
	detail := fmt.Sprintf("both the '%s' annotation and the '%s' label should be set", kinds.GroupTotal, kinds.GroupNameLabel)
	if group == "" {
		if counted {
			return field.ErrorList{field.Required(namePath, detail)}
		}
		return nil
	}
	var errs field.ErrorList
	if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
		errs = append(errs, field.Invalid(namePath, group, strings.Join(problems, ",")))
	}
	if name := kinds.PrebuiltName(pod); name != "" && name != group {
		path := labelsPath.Key(kinds.PrebuiltLabel)
		if pod.Annotations[kinds.PrebuiltLabel] != "" {
			path = annotationsPath.Key(kinds.PrebuiltLabel)
		}
		errs = append(errs, field.Invalid(path, name, "prebuilt workload and pod group should be equal"))
	}
	if pod.Annotations[kinds.GroupServing] == "true" {
		return errs
	}
	path := annotationsPath.Key(kinds.GroupTotal)
	if !counted {
		return append(errs, field.Required(path, detail))
	}
	if n, err := strconv.ParseInt(total, 10, 32); err != nil || n < 1 {
		errs = append(errs, field.Invalid(path, total, "should be a number of pods, at least 1"))
	}
	return errs
}
