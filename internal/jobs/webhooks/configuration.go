package webhooks

import (
	"fmt"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// The webhook configuration of the built-in kinds is installed with the program. The program
// itself writes the one of declared kinds, with the same service address.
const (
	installedWebhooks = "elastic-queue-jobs"
	declaredWebhooks  = "elastic-queue-jobs-declared"
	jobsWebhook       = "jobs.elasticai.io"
	podsWebhook       = "pods.elasticai.io"
)

// namespace and service account of the program.
const program = "elastic-queue"

// webhookOf names the webhook that sees a kind. Objects whose pods are gated, and pods, are sent
// only if they name a queue, so that no other pod in the cluster waits for us; all of them where
// pods without a queue are managed too (see Scope).
func webhookOf(kind *kinds.Kind) string {
	if kind.Suspends() {
		return jobsWebhook
	}
	return podsWebhook
}

// Configuration is the webhook configuration of the kinds of a table.
func Configuration(table []*kinds.Kind) admissionregv1.MutatingWebhookConfiguration {
	byName := map[string]*admissionregv1.MutatingWebhook{}
	for _, name := range []string{jobsWebhook, podsWebhook} {
		byName[name] = &admissionregv1.MutatingWebhook{
			Name: name, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(10)),
			SideEffects: ptr.To(admissionregv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregv1.Fail),
			ClientConfig: admissionregv1.WebhookClientConfig{Service: &admissionregv1.ServiceReference{
				Namespace: program, Name: "elastic-queue-webhook-service", Path: ptr.To(Path),
			}},
			// The control plane must not depend on us.
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", program},
			}}},
		}
	}
	byName[jobsWebhook].MatchConditions = []admissionregv1.MatchCondition{{Name: "is-new-or-moves", Expression: changesValidated()}}
	pods := byName[podsWebhook]
	pods.MatchConditions = podConditions(false)
	// Operators label their pods in webhooks of their own, which may run later.
	pods.ReinvocationPolicy = ptr.To(admissionregv1.IfNeededReinvocationPolicy)
	for _, kind := range table {
		hook := byName[webhookOf(kind)]
		hook.Rules = append(hook.Rules, ruleFor(kind))
	}
	return admissionregv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: installedWebhooks, Labels: map[string]string{certs.Label: "elastic-queue-webhooks"}},
		Webhooks:   []admissionregv1.MutatingWebhook{*byName[jobsWebhook], *pods},
	}
}

// podConditions are when a pod, or an object whose pods are gated, is sent.
func podConditions(all bool) []admissionregv1.MatchCondition {
	if all {
		return nil
	}
	names := func(root string) string {
		in := func(field string) string {
			return fmt.Sprintf("has(%[1]s) && '%[2]s' in %[1]s", root+".metadata."+field, kinds.QueueNameLabel)
		}
		return in("labels") + " || " + in("annotations")
	}
	// One that gives its queue name up is sent too, so that it can be refused.
	return []admissionregv1.MatchCondition{{Name: "names-a-queue", Expression: names("object") + " || oldObject != null && (" + names("oldObject") + ")"}}
}

// ruleFor selects the requests a webhook sees of a kind: creations, and updates of all but pods.
func ruleFor(kind *kinds.Kind) admissionregv1.RuleWithOperations {
	operations := []admissionregv1.OperationType{admissionregv1.Create}
	if !kind.IsPod() {
		operations = append(operations, admissionregv1.Update)
	}
	return admissionregv1.RuleWithOperations{Operations: operations, Rule: admissionregv1.Rule{
		APIGroups: []string{kind.GVK.Group}, APIVersions: []string{kind.GVK.Version}, Resources: []string{kind.Spec.Resource},
		Scope: ptr.To(admissionregv1.NamespacedScope),
	}}
}
