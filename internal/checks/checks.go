package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// HasController selects the AdmissionChecks of a controller.
func HasController(controller string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(obj client.Object) bool {
		check, ok := obj.(*kueue.AdmissionCheck)
		return ok && check.Spec.ControllerName == controller
	})
}

// IsAssigned says whether a pod set has a flavor, for any of its resources.
func IsAssigned(assigned *kueue.PodSetAssignment, flavor string) bool {
	for _, name := range assigned.Flavors {
		if string(name) == flavor {
			return true
		}
	}
	return false
}

// Check is an AdmissionCheck and its state in a workload's status.
type Check struct {
	Object *kueue.AdmissionCheck
	State  kueue.AdmissionCheckState
}

// ForController are those of a workload's checks that belong to a controller.
func ForController(ctx context.Context, c client.Reader, wl *kueue.Workload, controller string) ([]Check, error) {
	var mine []Check
	for _, state := range wl.Status.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		err := c.Get(ctx, types.NamespacedName{Name: string(state.Name)}, check)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && check.Spec.ControllerName == controller {
			mine = append(mine, Check{check, state})
		}
	}
	return mine, nil
}

// RunTimes says how long a workload is taken to run that does not say so itself, as far as that was learned; 0: nobody knows. It is asked
// again after an error.
type RunTimes func(ctx context.Context, key types.NamespacedName) (time.Duration, error)

// LearnedRunTime is how long a workload is taken to run that waits for its check; 0: it says so itself, or nobody knows.
func (r RunTimes) LearnedRunTime(ctx context.Context, wl *kueue.Workload) (time.Duration, error) {
	if _, declared := workload.RunTime(wl); declared || r == nil {
		return 0, nil
	}
	return r(ctx, client.ObjectKeyFromObject(wl))
}

// IsWaiting says that a workload has quota reserved and waits for some check.
func IsWaiting(wl *kueue.Workload) bool {
	if !workload.HasReservation(wl) || workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) {
		return false
	}
	for _, check := range wl.Status.AdmissionChecks {
		if check.State == kueue.CheckStatePending {
			return true
		}
	}
	return false
}

// WriteStates writes states of checks, all at once, into the status of the workload they were found
// for: if that has changed meanwhile it is a conflict.
func WriteStates(ctx context.Context, c client.Client, wl *kueue.Workload, states ...kueue.AdmissionCheckState) error {
	return WriteStatus(ctx, c, wl, map[string]any{"admissionChecks": MergeStates(wl, states...)})
}

// MergeStates are the states of a workload's checks with some of them replaced.
func MergeStates(wl *kueue.Workload, states ...kueue.AdmissionCheckState) []kueue.AdmissionCheckState {
	merged := append([]kueue.AdmissionCheckState(nil), wl.Status.AdmissionChecks...)
	for i := range merged {
		for _, state := range states {
			if merged[i].Name == state.Name {
				merged[i] = state
			}
		}
	}
	return merged
}

// WriteStatus writes fields of a workload's status, if it has not changed since it was read.
func WriteStatus(ctx context.Context, c client.Client, wl *kueue.Workload, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": wl.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, wl, client.RawPatch(types.MergePatchType, patch))
}

// ApplyStatus writes what the queue owns of a workload's status, as the field manager that Kueue writes it as: what that one
// leaves out is gone then. The workload becomes what is stored. If it has changed since it was read it is a conflict.
func ApplyStatus(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	patch, err := workload.AdmissionPatch(wl)
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, wl, client.RawPatch(types.ApplyYAMLPatchType, patch), client.FieldOwner(workload.AdmissionManager), client.ForceOwnership)
}

// Active is the condition of a check that works.
func Active() metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: "Active", Message: "The admission check is active"}
}

// Inactive is the condition of a check that does not.
func Inactive(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// WriteActive writes the Active condition of a check, if it changed.
func WriteActive(ctx context.Context, c client.Client, check *kueue.AdmissionCheck, active metav1.Condition) error {
	before := check.DeepCopy()
	active.Type, active.ObservedGeneration = kueue.AdmissionCheckActive, check.Generation
	if !apimeta.SetStatusCondition(&check.Status.Conditions, active) {
		return nil
	}
	return client.IgnoreNotFound(c.Status().Patch(ctx, check, client.MergeFrom(before)))
}

var (
	errBadReference = errors.New("bad parameters reference")
	errNoReference  = errors.New("missing parameters reference")
)

// IsBadParameters says that an error of Parameters can only be fixed by the author of the check.
func IsBadParameters(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, errBadReference) || errors.Is(err, errNoReference)
}

// Parameters reads the object that a check's parameters name. The errors are Kueue's, as they go
// into the check's condition.
func Parameters(ctx context.Context, c client.Client, check *kueue.AdmissionCheck, into client.Object) error {
	gvk, err := apiutil.GVKForObject(into, c.Scheme())
	if err != nil {
		return err
	}
	ref := check.Spec.Parameters
	switch {
	case ref == nil:
		return errNoReference
	case ref.Name == "":
		return fmt.Errorf("empty name: %w", errBadReference)
	case ref.APIGroup != gvk.Group:
		return fmt.Errorf("wrong group %q, expecting %q: %w", ref.APIGroup, gvk.Group, errBadReference)
	case ref.Kind != gvk.Kind:
		return fmt.Errorf("wrong kind %q, expecting %q: %w", ref.Kind, gvk.Kind, errBadReference)
	}
	return c.Get(ctx, types.NamespacedName{Name: ref.Name}, into)
}
