package migration

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// letNodesBeAskedFor brings cluster-autoscaler's CRD in.
func letNodesBeAskedFor(t *testing.T, c client.Client) {
	t.Helper()
	objects, err := crds.ProvisioningRequests()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range objects {
		if err := c.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	sandbox.Eventually(t, "requests for nodes are served", func(ctx context.Context) error {
		return c.List(ctx, &provisioning.ProvisioningRequestList{})
	})
}

// asks makes a job in a queue whose jobs wait for nodes, and returns the request
// that is made for it.
func asks(t *testing.T, c client.Client, name string) *provisioning.ProvisioningRequest {
	t.Helper()
	queue := sandbox.ClusterQueue("grown", "h100", "0")
	queue.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{corev1.ResourceCPU}
	queue.Spec.ResourceGroups[0].Flavors[0].Resources = []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("2")}}
	queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "nodes"}}}
	j := job(name, 0)
	j.Labels["kueue.x-k8s.io/queue-name"] = "grown"
	j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	for _, object := range []client.Object{
		&kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: kueue.ProvisioningRequestConfigSpec{ProvisioningClassName: "check-capacity.autoscaling.x-k8s.io"}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: kueue.AdmissionCheckSpec{
			ControllerName: kueue.ProvisioningRequestControllerName,
			Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: "nodes"},
		}},
		queue, sandbox.LocalQueue(ns, "grown", "grown"), j,
	} {
		create(t, c, object)
	}
	request := &provisioning.ProvisioningRequest{}
	sandbox.Eventually(t, "nodes are asked for", func(ctx context.Context) error {
		wl, err := workloadOf(ctx, c, name)
		if err != nil {
			return err
		}
		return c.Get(ctx, client.ObjectKey{Namespace: ns, Name: wl.Name + "-nodes-1"}, request)
	})
	return request
}

// provision says that the nodes of a request are there: the job starts on them,
// whoever asked for them.
func provision(t *testing.T, c client.Client, name string, asked *provisioning.ProvisioningRequest) {
	t.Helper()
	sandbox.Eventually(t, "the request can be answered", func(ctx context.Context) error {
		request := &provisioning.ProvisioningRequest{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(asked), request); err != nil {
			return err
		}
		if request.UID != asked.UID {
			t.Errorf("request %s is another one", request.Name)
		}
		apimeta.SetStatusCondition(&request.Status.Conditions, metav1.Condition{Type: provisioning.Provisioned, Status: metav1.ConditionTrue, Reason: "Provisioned"})
		return c.Status().Update(ctx, request)
	})
	runs(t, c, name)
	pods, err := podsOf(t.Context(), c, name)
	if err != nil || pods[0].Annotations[provisioning.ConsumeAnnotation] != asked.Name {
		t.Errorf("its pod uses %q, %v", pods[0].Annotations[provisioning.ConsumeAnnotation], err)
	}
	wl, err := workloadOf(t.Context(), c, name)
	if err != nil {
		t.Fatal(err)
	}
	list := &provisioning.ProvisioningRequestList{}
	if err := c.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, request := range list.Items {
		if metav1.IsControlledBy(&request, wl) && request.UID != asked.UID {
			t.Errorf("%s has a second request, %s", name, request.Name)
		}
	}
}
