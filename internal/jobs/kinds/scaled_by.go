package kinds

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scale gives the pod sets of a running elastic job the numbers of the object that its operator made for it. While
// there is none, and while the job is suspended, they are the job's own.
func (j Object) scale(ctx context.Context, c client.Reader, sets []kueue.PodSet) error {
	if j.kind.Spec.ScaledBy == nil || c == nil || !IsElastic(j) || j.IsSuspended() {
		return nil
	}
	by, found, err := j.scaledBy(ctx, c)
	if err != nil || !found {
		return err
	}
	counts, err := by.Counts()
	if err != nil {
		return &UnretryableError{err}
	}
	for i := range sets {
		if count, found := counts[sets[i].Name]; found {
			sets[i].Count = count
		}
	}
	return nil
}

// scaledBy is the object that the job's operator made for it, and that says how many pods it has; found: there is one.
func (j Object) scaledBy(ctx context.Context, c client.Reader) (by Object, found bool, err error) {
	name, err := j.kind.scaledBy.text(j.vars())
	if err != nil || name == "" {
		return by, false, err
	}
	spec := j.kind.Spec.ScaledBy
	gvk := schema.GroupVersionKind{Group: spec.Group, Version: spec.Version, Kind: spec.Kind}
	at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.GVK == gvk })
	if at < 0 {
		return by, false, &UnretryableError{fmt.Errorf("scaledBy: no kind of job is built in for %s", gvk)}
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	err = c.Get(ctx, client.ObjectKey{Namespace: j.GetNamespace(), Name: name}, obj)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(obj, j) {
		return by, false, nil
	}
	return Table()[at].Object(obj), err == nil, err
}

// Sized is the object that says how many pods the running job has: itself, or one that its operator made for it; found: it is
// there already.
func (j Object) Sized(ctx context.Context, c client.Reader) (sized Object, found bool, err error) {
	if j.kind.Spec.ScaledBy == nil {
		return j, true, nil
	}
	return j.scaledBy(ctx, c)
}
