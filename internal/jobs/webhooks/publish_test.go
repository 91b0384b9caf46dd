package webhooks

import (
	"slices"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// The API server sends what the configuration says: no more, so that as little as possible waits for us
// while we are down, and no less, or it would not be held back.
func TestInstalledWebhooksFollowTheConfiguration(t *testing.T) {
	installed := Configuration(kinds.Table())
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(&installed).Build()
	read := func() map[string]admissionregv1.MutatingWebhook {
		t.Helper()
		now := &admissionregv1.MutatingWebhookConfiguration{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: installedWebhooks}, now); err != nil {
			t.Fatal(err)
		}
		out := map[string]admissionregv1.MutatingWebhook{}
		for _, hook := range now.Webhooks {
			out[hook.Name] = hook
		}
		return out
	}
	publish := func(scope Scope) {
		t.Helper()
		for range 2 { // a second time changes nothing
			if err := Publish(t.Context(), c, c, kinds.Table(), scope); err != nil {
				t.Fatal(err)
			}
		}
	}
	sees := func(hook admissionregv1.MutatingWebhook, namespace string, set labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		all := labels.Set{"kubernetes.io/metadata.name": namespace}
		return selector.Matches(labels.Merge(all, set))
	}

	publish(Scope{})
	for name, hook := range read() {
		if !sees(hook, "team", nil) || sees(hook, "kube-system", nil) || len(hook.MatchConditions) == 0 {
			t.Errorf("%s without settings: %+v", name, hook)
		}
	}
	takes := labels.Set{"queues": "yes"}
	publish(Scope{Namespaces: &metav1.LabelSelector{MatchLabels: takes}, AllPods: true})
	for name, hook := range read() {
		if !sees(hook, "team", takes) || sees(hook, "team", nil) || sees(hook, "kube-system", takes) {
			t.Errorf("%s where namespaces are selected: %+v", name, hook.NamespaceSelector)
		}
		if (len(hook.MatchConditions) == 0) != (name == podsWebhook) {
			t.Errorf("%s where all pods need a queue: %+v", name, hook.MatchConditions)
		}
	}
	publish(Scope{Namespaces: &metav1.LabelSelector{}})
	for name, hook := range read() {
		if !sees(hook, "team", nil) || sees(hook, "kube-system", nil) || len(hook.MatchConditions) == 0 {
			t.Errorf("%s with every namespace again: %+v", name, hook)
		}
	}
}

// A declared kind is sent under the same rules as a built-in one.
func TestDeclaredKindsAreSentLikeBuiltInOnes(t *testing.T) {
	installed := Configuration(kinds.Table())
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(&installed).Build()
	spec := kinds.Table()[slices.IndexFunc(kinds.Table(), func(k *kinds.Kind) bool { return k.Suspends() })].Spec
	spec.Group, spec.Kind, spec.Resource = "example.com", "Training", "trainings"
	kind, err := kinds.Compile("example.com/training", spec)
	if err != nil {
		t.Fatal(err)
	}
	scope := Scope{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"queues": "yes"}}}
	if err := Publish(t.Context(), c, c, append(slices.Clone(kinds.Table()), kind), scope); err != nil {
		t.Fatal(err)
	}
	declared := &admissionregv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: declaredWebhooks}, declared); err != nil {
		t.Fatal(err)
	}
	if len(declared.Webhooks) != 1 || declared.Webhooks[0].Rules[0].Resources[0] != "trainings" || declared.Webhooks[0].NamespaceSelector.MatchLabels["queues"] != "yes" {
		t.Fatalf("declared: %+v", declared.Webhooks)
	}
}
