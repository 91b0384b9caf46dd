package multicluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func quotaOf(name, resourceName string, amounts ...string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{corev1.ResourceName(resourceName)}}
	for _, amount := range amounts {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference("f" + amount), Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceName(resourceName), NominalQuota: resource.MustParse(amount), BorrowingLimit: ptr.To(resource.MustParse("1"))},
		}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	return cq
}

func leads(name, to string) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(to)}}
}

// The quota of a queue is that of the queues its LocalQueues lead to in clusters that answer, and its condition says so, or
// why not.
func TestQuotaFollowsOtherClusters(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	there := map[string]client.Reader{
		// Two LocalQueues lead to one queue, which counts once; a queue that none of ours leads to does not count.
		"a": fake.NewClientBuilder().WithScheme(scheme).WithObjects(leads("one", "x"), leads("two", "x"), leads("strange", "y"), quotaOf("x", "cpu", "10", "2"), quotaOf("y", "cpu", "50")).Build(),
		"b": fake.NewClientBuilder().WithScheme(scheme).WithObjects(leads("two", "z"), quotaOf("z", "cpu", "-7", "5")).Build(),
		"c": fake.NewClientBuilder().WithScheme(scheme).WithObjects(leads("one", "gone")).Build(),
		"g": fake.NewClientBuilder().WithScheme(scheme).WithObjects(leads("one", "x"), quotaOf("x", "nvidia.com/gpu", "8")).Build(),
	}
	for name, test := range map[string]struct {
		clusters []string
		mode     *kueue.MultiKueueConfigQuotaManagementMode
		queue    *kueue.ClusterQueue
		noCheck  bool
		reason   string
		quota    string
	}{
		"sums up":               {clusters: []string{"a", "b", "c", "lost"}, mode: ptr.To(kueue.QuotaManagementAutomated), queue: quotaOf("cq", "cpu", "1"), reason: "QuotaAutomated", quota: "17"},
		"none answers":          {clusters: []string{"lost"}, mode: ptr.To(kueue.QuotaManagementAutomated), queue: quotaOf("cq", "cpu", "1"), reason: "QuotaAutomated", quota: "0"},
		"by hand":               {clusters: []string{"a"}, queue: quotaOf("cq", "cpu", "1"), reason: "NotRequested", quota: "1"},
		"two flavors":           {clusters: []string{"a"}, mode: ptr.To(kueue.QuotaManagementAutomated), queue: quotaOf("cq", "cpu", "1", "3"), reason: "UnsupportedConfiguration", quota: "1"},
		"another resource":      {clusters: []string{"g"}, mode: ptr.To(kueue.QuotaManagementAutomated), queue: quotaOf("cq", "cpu", "1"), reason: "UnsupportedConfiguration", quota: "1"},
		"no such configuration": {queue: quotaOf("cq", "cpu", "1"), reason: "UnsupportedConfiguration", quota: "1"},
		"not sent anywhere":     {queue: quotaOf("cq", "cpu", "1"), noCheck: true, quota: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			cq := test.queue
			apimeta.SetStatusCondition(&cq.Status.Conditions, *quotaCondition(metav1.ConditionTrue, "Before", ""))
			objects := []client.Object{cq, leads("one", "cq"), leads("two", "cq"), leads("strange", "other")}
			if !test.noCheck {
				cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "multi"}}}
			}
			objects = append(objects, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multi"}, Spec: kueue.AdmissionCheckSpec{
				ControllerName: kueue.MultiKueueControllerName, Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "config"},
			}})
			if test.clusters != nil {
				objects = append(objects, &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Spec: kueue.MultiKueueConfigSpec{Clusters: test.clusters, QuotaManagement: test.mode}})
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&kueue.ClusterQueue{}).Build()
			q := &quotas{client: c, at: func(cluster string) client.Reader { return there[cluster] }}
			for _, request := range []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(cq)}, {}} { // the second changes nothing
				if _, err := q.Reconcile(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
			is := &kueue.ClusterQueue{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cq), is); err != nil {
				t.Fatal(err)
			}
			quota := is.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota
			condition := apimeta.FindStatusCondition(is.Status.Conditions, kueue.MultiKueueManagerQuotaAutomation)
			if quota.String() != test.quota || (condition == nil) != test.noCheck || condition != nil && condition.Reason != test.reason {
				t.Errorf("the quota is %s, the condition %+v", quota.String(), condition)
			}
		})
	}
}
