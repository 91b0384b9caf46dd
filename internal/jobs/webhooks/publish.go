package webhooks

import (
	"context"
	"fmt"
	"slices"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Scope is which objects of the kinds the API server is to send us.
type Scope struct {
	// Namespaces, if set, limits them to namespaces with such labels.
	Namespaces *metav1.LabelSelector
	// AllPods are sent, not only those that name a queue.
	AllPods bool
}

// Publish makes the API server send us what we are to see and nothing else: the installed webhook
// configuration knows neither our configuration nor the kinds that were declared since.
func Publish(ctx context.Context, reader client.Reader, c client.Client, ready []*kinds.Kind, scope Scope) error {
	model := &admissionregv1.MutatingWebhookConfiguration{}
	err := reader.Get(ctx, types.NamespacedName{Name: installedWebhooks}, model)
	switch {
	case apierrors.IsNotFound(err): // Kueue's webhook configurations are served as well
		model = nil
	case err != nil:
		return err
	default:
		was := model.DeepCopy()
		scope.apply(model)
		if !equality.Semantic.DeepEqual(was.Webhooks, model.Webhooks) {
			// The webhooks are a list: a patch of it holds only while nobody else has changed the object.
			if err := c.Patch(ctx, model, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
				return fmt.Errorf("the webhook configuration %s: %w", installedWebhooks, err)
			}
		}
	}
	return publishDeclared(ctx, reader, c, ready, model)
}

// apply the scope. The namespaces that the installation leaves out by name, first in the selector, stay
// so: the control plane must not depend on us. Without a selector of ours, what is there is somebody's
// choice.
func (s Scope) apply(configuration *admissionregv1.MutatingWebhookConfiguration) {
	for i := range configuration.Webhooks {
		hook := &configuration.Webhooks[i]
		if s.Namespaces != nil {
			selector := s.Namespaces.DeepCopy()
			if was := hook.NamespaceSelector; was != nil && len(was.MatchExpressions) > 0 && leavesOut(was.MatchExpressions[0]) {
				selector.MatchExpressions = slices.Insert(selector.MatchExpressions, 0, was.MatchExpressions[0])
			}
			hook.NamespaceSelector = selector
		}
		if hook.Name == podsWebhook {
			hook.MatchConditions = podConditions(s.AllPods)
		}
	}
}

func leavesOut(r metav1.LabelSelectorRequirement) bool {
	return r.Key == corev1.LabelMetadataName && r.Operator == metav1.LabelSelectorOpNotIn
}

func publishDeclared(ctx context.Context, reader client.Reader, c client.Client, ready []*kinds.Kind, model *admissionregv1.MutatingWebhookConfiguration) error {
	current := &admissionregv1.MutatingWebhookConfiguration{}
	err := reader.Get(ctx, types.NamespacedName{Name: declaredWebhooks}, current)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	rules := declaredRules(ready)
	switch {
	case len(rules) == 0 && missing:
		return nil
	case len(rules) == 0:
		return client.IgnoreNotFound(c.Delete(ctx, current))
	}
	if model == nil {
		return fmt.Errorf("there is no webhook configuration %s, whose service address is used for declared kinds: install deploy/queue/jobs.yaml", installedWebhooks)
	}
	wanted := current.DeepCopy()
	wanted.Name, wanted.Labels = declaredWebhooks, model.Labels
	wanted.Webhooks = slices.DeleteFunc(slices.Clone(model.Webhooks), func(hook admissionregv1.MutatingWebhook) bool { return rules[hook.Name] == nil })
	for i := range wanted.Webhooks {
		wanted.Webhooks[i].Rules = rules[wanted.Webhooks[i].Name]
	}
	if missing {
		wanted.ObjectMeta = metav1.ObjectMeta{Name: declaredWebhooks, Labels: model.Labels}
		return c.Create(ctx, wanted)
	}
	if equality.Semantic.DeepEqual(wanted.Webhooks, current.Webhooks) {
		return nil
	}
	return c.Update(ctx, wanted)
}

// declaredRules are the rules for kinds beside the built-in ones, by webhook.
func declaredRules(ready []*kinds.Kind) map[string][]admissionregv1.RuleWithOperations {
	rules := map[string][]admissionregv1.RuleWithOperations{}
	for _, kind := range ready {
		if !slices.Contains(kinds.Table(), kind) {
			rules[webhookOf(kind)] = append(rules[webhookOf(kind)], ruleFor(kind))
		}
	}
	return rules
}
