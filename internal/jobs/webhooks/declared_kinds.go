package webhooks

import (
	"context"
	"fmt"
	"slices"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// PublishDeclared makes the API server send us jobs of those kinds that are not built in: the
// installed webhook configuration has rules only for the table.
func PublishDeclared(ctx context.Context, reader client.Reader, c client.Client, ready []*kinds.Kind) error {
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
	model := &admissionregv1.MutatingWebhookConfiguration{}
	if err := reader.Get(ctx, types.NamespacedName{Name: installedWebhooks}, model); err != nil {
		return fmt.Errorf("the webhook configuration of the built-in kinds, whose service address is used: %w", err)
	}
	wanted := current.DeepCopy()
	wanted.Name, wanted.Labels = declaredWebhooks, model.Labels
	wanted.Webhooks = slices.DeleteFunc(model.Webhooks, func(hook admissionregv1.MutatingWebhook) bool { return rules[hook.Name] == nil })
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
