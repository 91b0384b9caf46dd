package managed

import (
	"context"
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// An object is left to its owner only if it really has that owner: a name alone, or the UID of
// another object of that name, does not take it out of its queue.
func TestForgedOwnerIsNoOwner(t *testing.T) {
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	parent := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "parent", UID: "real", Labels: map[string]string{kinds.QueueNameLabel: "main"}}}
	f := &Filter{Direct: fake.NewClientBuilder().WithObjects(parent).Build(), Kinds: inUse, Namespaces: labels.Everything(), WithoutQueueName: true}
	for uid, independent := range map[string]bool{"real": false, "forged": true, "": true} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: "parent", UID: types.UID(uid), Controller: ptr.To(true),
		}}}}
		got, err := f.IsIndependent(t.Context(), pod, "ns")
		if err != nil || got != independent {
			t.Errorf("owner with UID %q: independent %t, want %t (%v)", uid, got, independent, err)
		}
	}
}

// Users write owner references: jobs that own each other do not have their owners looked for without end.
func TestJobsThatOwnEachOther(t *testing.T) {
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	job := func(name, owner string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{kinds.QueueNameLabel: "main"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: owner, UID: types.UID(owner), Controller: ptr.To(true)}},
		}}
	}
	a, b := job("a", "b"), job("b", "a")
	reads := 0
	direct := interceptor.NewClient(fake.NewClientBuilder().WithObjects(a, b).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if reads++; reads > 100 {
				return errors.New("it reads on and on")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	f := &Filter{Direct: direct, Kinds: inUse, Namespaces: labels.Everything()}
	if above, err := f.Ancestor(t.Context(), a); err != nil || above == nil {
		t.Errorf("its ancestor is %v, after %d reads: %v", above, reads, err)
	}
}

// A job may be created together with its namespace, before the cache has that.
func TestNamespaceThatWasJustMade(t *testing.T) {
	selector := labels.SelectorFromSet(labels.Set{"team": "a"})
	made := func(name string, of map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}}
	}
	direct := fake.NewClientBuilder().WithObjects(made("ours", map[string]string{"team": "a"}), made("others", nil)).Build()
	f := &Filter{Cached: fake.NewClientBuilder().Build(), Direct: direct, Kinds: &kinds.InUse{}, Namespaces: selector}
	for namespace, want := range map[string]bool{"ours": true, "others": false} {
		if got, err := f.selects(t.Context(), namespace); err != nil || got != want {
			t.Errorf("%s: %t, %v", namespace, got, err)
		}
	}
	if _, err := f.selects(t.Context(), "none"); err == nil {
		t.Error("a namespace that is not there is selected or not")
	}
}
