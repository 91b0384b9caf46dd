package kinds

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// WorkloadBuilder makes the workload that describes a job.
type WorkloadBuilder struct {
	Client client.Reader
	// CopyLabels are the keys of the job's labels that the workload gets too.
	CopyLabels []string
	// CopyAnnotations are the same of annotations.
	CopyAnnotations []string
	// NoSliceLayers refuses jobs that ask for slices of slices in a topology.
	NoSliceLayers bool
	// NoGates ignores who must agree before a job's workload is considered.
	NoGates bool
}

// Build makes the workload of a job; the caller creates it.
func (b WorkloadBuilder) Build(ctx context.Context, j Job, name string) (*kueue.Workload, error) {
	sets, err := b.PodSets(ctx, j)
	if err != nil {
		return nil, err
	}
	obj := j.Meta()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: name},
		Spec:       kueue.WorkloadSpec{QueueName: QueueName(obj), PodSets: sets},
	}
	j.SetOwner(wl)
	workload.AddFinalizer(wl)
	if err := b.copyMetadata(j, wl); err != nil {
		return nil, err
	}
	for key, value := range obj.GetAnnotations() {
		if strings.HasPrefix(key, ProvReqPrefix) || key == ElasticAnnotation && IsElastic(j) {
			SetAnnotation(wl, key, value)
		}
	}
	if IsElastic(j) {
		SetAnnotation(wl, kueue.WorkloadSliceNameAnnotation, wl.Name)
	}
	b.SetGates(j, wl)
	SetPreemptionWishes(j, wl, true)
	SetStart(j, wl)
	if err := SetMaxExecTime(j, wl); err != nil {
		return nil, err
	}
	return wl, b.SetPriority(ctx, j, wl)
}

// SetMaxExecTime gives the workload the time that the job may run at most.
func SetMaxExecTime(j Job, wl *kueue.Workload) error {
	text := j.Meta().GetLabels()[MaxExecTimeLabel]
	if text == "" {
		if !IsPrebuilt(j.Meta()) { // whose workload says so itself
			wl.Spec.MaximumExecutionTimeSeconds = nil
		}
		return nil
	}
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return &UnretryableError{fmt.Errorf("label %s: %q is not a number of seconds", MaxExecTimeLabel, text)}
	}
	wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(seconds))
	return nil
}

// SetGates gives the workload the gates that are left on the job, and reports whether that changes it.
func (b WorkloadBuilder) SetGates(j Job, wl *kueue.Workload) bool {
	gates := j.Meta().GetAnnotations()[workload.GatedByAnnotation]
	switch had := wl.Annotations[workload.GatedByAnnotation]; {
	case b.NoGates || gates == had:
		return false
	case gates == "":
		delete(wl.Annotations, workload.GatedByAnnotation)
	default:
		SetAnnotation(wl, workload.GatedByAnnotation, gates)
	}
	return true
}

// PodSets reads the job's pod sets and validates their topology requests.
func (b WorkloadBuilder) PodSets(ctx context.Context, j Job) ([]kueue.PodSet, error) {
	sets, err := j.PodSets(ctx, b.Client)
	if err != nil {
		return nil, err
	}
	if errs := ValidateSliceLayers(sets, b.NoSliceLayers); len(errs) > 0 {
		return nil, &UnretryableError{errs.ToAggregate()}
	}
	return sets, nil
}

// copyMetadata copies labels and annotations from the job. Pods of a group must not contradict each other.
func (b WorkloadBuilder) copyMetadata(j Job, wl *kueue.Workload) error {
	for _, part := range []struct {
		what string
		keys []string
		of   func(client.Object) map[string]string
		set  func(client.Object, string, string)
	}{
		{"label", b.CopyLabels, client.Object.GetLabels, SetLabel},
		{"annotation", b.CopyAnnotations, client.Object.GetAnnotations, SetAnnotation},
	} {
		for _, key := range part.keys {
			copied := map[string]bool{}
			for _, member := range j.Members() {
				value, has := part.of(member)[key]
				if !has {
					continue
				}
				if copied[value] = true; len(copied) > 1 {
					return &UnretryableError{fmt.Errorf("constructing workload: pods have different %s values", part.what)}
				}
				part.set(wl, key, value)
			}
		}
	}
	return nil
}

// SetPriority gives the workload its priority: that of the WorkloadPriorityClass the job names,
// else of its pods' PriorityClass, else of the cluster's default.
func (b WorkloadBuilder) SetPriority(ctx context.Context, j Job, wl *kueue.Workload) error {
	name := j.Meta().GetLabels()[PriorityClassLabel]
	if workload.IsExtra(wl) || wl.Spec.Priority != nil && !followsClass(wl, name) { // extras have the lowest there is
		return nil
	}
	if name != "" {
		class := &kueue.WorkloadPriorityClass{}
		if err := b.Client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
			return fmt.Errorf("WorkloadPriorityClass %s of the job: %w", name, err)
		}
		wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
		wl.Spec.Priority = ptr.To(class.Value)
		return nil
	}
	name, err := podPriorityClass(j, wl.Spec.PodSets)
	if err != nil {
		return err
	}
	class := &schedulingv1.PriorityClass{}
	if name == "" {
		if class, err = b.defaultPriorityClass(ctx); err != nil {
			return err
		}
	} else if err := b.Client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
		return fmt.Errorf("PriorityClass %s of the job's pods: %w", name, err)
	}
	if class != nil {
		wl.Spec.PriorityClassRef, wl.Spec.Priority = kueue.NewPodPriorityClassRef(class.Name), ptr.To(class.Value)
		return nil
	}
	wl.Spec.PriorityClassRef, wl.Spec.Priority = nil, ptr.To(int32(0))
	return nil
}

// followsClass: the job names another WorkloadPriorityClass than its workload has. A priority of the pods
// stays, and the API server adds no class to a workload with quota.
func followsClass(wl *kueue.Workload, name string) bool {
	ref := wl.Spec.PriorityClassRef
	if ref == nil {
		return name != "" && !workload.HasReservation(wl)
	}
	return ref.Kind == kueue.WorkloadPriorityClassKind && ref.Name != name
}

// defaultPriorityClass is what the API server gives pods that name none: the default with the lowest
// value; nil for none.
func (b WorkloadBuilder) defaultPriorityClass(ctx context.Context) (*schedulingv1.PriorityClass, error) {
	list := &schedulingv1.PriorityClassList{}
	if err := b.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("the default PriorityClass: %w", err)
	}
	var chosen *schedulingv1.PriorityClass
	for i := range list.Items {
		if class := &list.Items[i]; class.GlobalDefault && (chosen == nil || class.Value < chosen.Value) {
			chosen = class
		}
	}
	return chosen, nil
}

func podPriorityClass(j Job, sets []kueue.PodSet) (string, error) {
	if name, err := j.PriorityClass(); name != "" || err != nil {
		return name, err
	}
	for _, set := range sets {
		if name := set.Template.Spec.PriorityClassName; name != "" {
			return name, nil
		}
	}
	return "", nil
}

// PreviewWorkload is the workload a job would get that does not exist yet.
func (k *Kind) PreviewWorkload(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) (*kueue.Workload, error) {
	j := k.Object(obj)
	sets, err := j.PodSets(ctx, c)
	if err != nil {
		return nil, err
	}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{
		QueueName: cmp.Or(QueueName(obj), DefaultQueue), PodSets: sets,
	}}
	wl.Namespace, wl.Name = obj.GetNamespace(), obj.GetName()
	SetStart(j, wl)
	if n, err := strconv.ParseInt(obj.GetLabels()[MaxExecTimeLabel], 10, 32); err == nil && n > 0 {
		wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(n))
	}
	if class := obj.GetLabels()[PriorityClassLabel]; class != "" {
		wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(class)
		return wl, nil
	}
	class, err := podPriorityClass(j, sets)
	if err == nil && class != "" {
		wl.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(class)
	}
	return wl, err
}

// BuildWorkload makes the workload of a job that runs outside of any queue, for a caller that
// creates it instead of the controller.
func (k *Kind) BuildWorkload(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) (*kueue.Workload, error) {
	var j Job = k.Object(obj)
	if k.IsPod() {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, pod); err != nil {
			return nil, err
		}
		j = singlePod{pod, k}
	}
	return WorkloadBuilder{Client: c}.Build(ctx, j, j.WorkloadName())
}

// singlePod is a pod that is a job of its own.
type singlePod struct {
	*corev1.Pod
	kind *Kind
}

func (p singlePod) Meta() client.Object            { return p.Pod }
func (p singlePod) Members() []client.Object       { return []client.Object{p.Pod} }
func (p singlePod) Row() *Kind                     { return p.kind }
func (p singlePod) PriorityClass() (string, error) { return "", nil }
func (p singlePod) HandedOver() bool               { return false }

func (p singlePod) WorkloadName() string {
	return cmp.Or(PrebuiltName(p.Pod), WorkloadName(p.kind.GVK, p.Name, p.UID))
}

func (p singlePod) SetOwner(wl *kueue.Workload) { OwnWorkload(wl, p.Pod, p.kind.GVK) }

func (p singlePod) PodSets(context.Context, client.Reader) ([]kueue.PodSet, error) {
	return []kueue.PodSet{PodSetOf(p.Pod, kueue.DefaultPodSetName, 1)}, nil
}
