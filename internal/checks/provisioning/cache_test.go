package provisioning

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A cache that is behind shows requests that are gone, and none that are new.
// Neither makes another request, or takes the templates from one that is there.
func TestCacheThatIsBehind(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kueue.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	wl := trainer([3]int32{1, 1, 4}, [3]kueue.ResourceFlavorReference{"spot", "spot", "spot"})
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "check", State: kueue.CheckStatePending}}
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Spec: kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: "first"}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "check"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.ProvisioningRequestControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: "kueue.x-k8s.io", Kind: "ProvisioningRequestConfig", Name: "config"},
	}}
	spot := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}}
	created := 0
	var seen *ProvisioningRequestList // by the cache; nil: all there is
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(wl).WithIndex(&ProvisioningRequest{}, ownerIndex, ownerUID).WithObjects(wl, config, check, spot).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if requests, ok := list.(*ProvisioningRequestList); ok && seen != nil {
				requests.Items = seen.Items
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if request, ok := obj.(*ProvisioningRequest); ok {
				created++
				request.UID = types.UID(request.Spec.ProvisioningClassName)
			}
			return c.Create(ctx, obj, opts...)
		},
		// As the API server does it; the fake knows no UIDs.
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			if now := (&ProvisioningRequest{}); options.Preconditions != nil {
				if err := c.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil {
					return err
				}
				if now.UID != *options.Preconditions.UID {
					return apierrors.NewConflict(GroupVersion.WithResource("provisioningrequests").GroupResource(), obj.GetName(), errors.New("another UID"))
				}
			}
			return c.Delete(ctx, obj)
		},
	}).Build()
	w := &workloads{
		client: c, recorder: events.NewFakeRecorder(100), now: func() time.Time { return time.Unix(1, 0) }, cleanUp: true,
		available: func() bool { return true }, made: map[types.NamespacedName]map[string]time.Time{},
	}
	look := func(what string, requests int) {
		t.Helper()
		if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(wl)}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if created != requests {
			t.Fatalf("%s: %d requests were made, want %d", what, created, requests)
		}
		list, templates := &ProvisioningRequestList{}, &corev1.PodTemplateList{}
		cached := seen
		seen = nil
		if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: there are %d requests, %v", what, len(list.Items), err)
		}
		if err := c.List(t.Context(), templates); err != nil || len(templates.Items) != 3 {
			t.Fatalf("%s: there are %d templates, %v", what, len(templates.Items), err)
		}
		seen = cached
	}
	seen = &ProvisioningRequestList{}
	look("a new workload", 1)
	look("its request is not seen", 1)
	seen = nil
	look("it is", 1)

	old := &ProvisioningRequestList{}
	if err := c.List(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	config.Spec.ProvisioningClassName = "second"
	if err := c.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	look("another class", 2)
	seen = old
	look("the first request is still seen", 2)
}
