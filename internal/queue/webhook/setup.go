package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Options are the feature gates that the rules depend on.
type Options struct {
	PartialAdmission    bool // otherwise a Workload's minimum counts are removed
	StrictFlavors       bool // checks for flavors that a queue does not have are errors, also if they were there before
	ConcurrentAdmission bool
}

func (o Options) clusterQueue(cq, old *kueue.ClusterQueue) field.ErrorList {
	errs := ClusterQueue(cq, old)
	if o.StrictFlavors {
		errs = append(errs, strictFlavors(cq, old)...)
	}
	if o.ConcurrentAdmission {
		errs = append(errs, concurrentAdmission(cq)...)
	}
	return errs
}

// Setup serves the rules at Kueue's paths; deploy/queue/webhooks.yaml names those that are needed.
func Setup(mgr ctrl.Manager, options Options) error {
	for _, setup := range []func(ctrl.Manager) error{
		serve(&kueue.ClusterQueue{}, rules[*kueue.ClusterQueue]{check: options.clusterQueue}, inUse[*kueue.ClusterQueue]{}),
		serve(&kueue.ResourceFlavor{}, rules[*kueue.ResourceFlavor]{check: func(rf, _ *kueue.ResourceFlavor) field.ErrorList { return ResourceFlavor(rf) }}, inUse[*kueue.ResourceFlavor]{}),
		serve(&kueue.Cohort{}, rules[*kueue.Cohort]{check: func(c, _ *kueue.Cohort) field.ErrorList { return Cohort(c) }}, nil),
		serve(&kueue.Workload{}, rules[*kueue.Workload]{check: Workload, warn: warnings}, minCounts{options.PartialAdmission}),
	} {
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// serve registers the rules of one kind, and its defaults if it has some.
func serve[T interface {
	runtime.Object
	client.Object
}](kind T, r rules[T], defaults admission.Defaulter[T]) func(ctrl.Manager) error {
	return func(mgr ctrl.Manager) error {
		builder := ctrl.NewWebhookManagedBy(mgr, kind).WithValidator(r)
		if defaults != nil {
			builder = builder.WithDefaulter(defaults)
		}
		if err := builder.Complete(); err != nil {
			return fmt.Errorf("webhook of %T: %w", kind, err)
		}
		return nil
	}
}

// minCounts defaults the minimum counts of a workload.
type minCounts struct{ partial bool }

// Default removes minimum counts if partial admission is off.
func (c minCounts) Default(_ context.Context, wl *kueue.Workload) error {
	for i := range wl.Spec.PodSets {
		if !c.partial {
			wl.Spec.PodSets[i].MinCount = nil
		}
	}
	return nil
}

// inUse gives new objects the finalizer that protects them while they are in use, before anyone can
// delete them.
type inUse[T client.Object] struct{}

// Default adds the finalizer.
func (inUse[T]) Default(_ context.Context, obj T) error {
	controllerutil.AddFinalizer(obj, kueue.ResourceInUseFinalizerName)
	return nil
}

// rules of one kind; old is nil for a new object.
type rules[T client.Object] struct {
	check func(obj, old T) field.ErrorList
	warn  func(T) admission.Warnings
}

// ValidateCreate checks a new object.
func (r rules[T]) ValidateCreate(_ context.Context, obj T) (admission.Warnings, error) {
	var none T
	return r.warnings(obj), r.check(obj, none).ToAggregate()
}

// ValidateUpdate checks a changed object. One that is being deleted may lose its finalizers
// whatever else is wrong with it.
func (r rules[T]) ValidateUpdate(_ context.Context, old, obj T) (admission.Warnings, error) {
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) < len(old.GetFinalizers()) {
		return nil, nil
	}
	return r.warnings(obj), r.check(obj, old).ToAggregate()
}

// ValidateDelete allows everything.
func (r rules[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

func (r rules[T]) warnings(obj T) admission.Warnings {
	if r.warn == nil {
		return nil
	}
	return r.warn(obj)
}
