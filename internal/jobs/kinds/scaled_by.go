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
	by := j.kind.Spec.ScaledBy
	if by == nil || c == nil || !IsElastic(j) || j.IsSuspended() {
		return nil
	}
	name, err := j.kind.scaledBy.text(j.vars())
	if err != nil || name == "" {
		return err
	}
	gvk := schema.GroupVersionKind{Group: by.Group, Version: by.Version, Kind: by.Kind}
	at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.GVK == gvk })
	if at < 0 {
		return &UnretryableError{fmt.Errorf("scaledBy: no kind of job is built in for %s", gvk)}
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	err = c.Get(ctx, client.ObjectKey{Namespace: j.GetNamespace(), Name: name}, obj)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(obj, j) {
		return nil
	}
	if err != nil {
		return err
	}
	counts, err := Table()[at].Object(obj).Counts()
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
