package jobs

import (
	"maps"
	"slices"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Manifests are what the cluster has to know about the kinds of the table: the
// webhooks that hold their jobs, and what elastic-queue may do with them. They
// are deploy/queue/jobs.yaml.
func Manifests() []any {
	declared := metav1.LabelSelector{MatchLabels: map[string]string{AggregateLabel: "true"}}
	return []any{
		webhooks(Table()),
		rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: jobsRole},
			Rules: rules(Table()),
		},
		binding(jobsRole),
		rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: declaredRole},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{declared}},
		},
		binding(declaredRole),
	}
}

const (
	program      = "elastic-queue"
	jobsRole     = "elastic-queue-jobs"
	declaredRole = "elastic-queue-declared-jobs"
)

func binding(role string) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: program, Name: program}},
	}
}

// The webhook of the built-in kinds is installed with the program; the one of
// declared kinds is the program's own, and goes where that goes.
const (
	installedWebhooks = "elastic-queue-jobs"
	declaredWebhooks  = "elastic-queue-jobs-declared"
	jobsWebhook       = "jobs.elasticai.io"
	podsWebhook       = "pods.elasticai.io"
)

// webhook names the one that sees a kind. Objects whose pods are gated, and
// pods, are only sent where they name a queue: nothing else in the cluster
// waits for us.
func (k *Kind) webhook() string {
	if k.suspends() {
		return jobsWebhook
	}
	return podsWebhook
}

func webhooks(table []*Kind) admissionregv1.MutatingWebhookConfiguration {
	byName := map[string]*admissionregv1.MutatingWebhook{}
	for _, name := range []string{jobsWebhook, podsWebhook} {
		byName[name] = &admissionregv1.MutatingWebhook{
			Name: name, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(10)),
			SideEffects: ptr.To(admissionregv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregv1.Fail),
			ClientConfig: admissionregv1.WebhookClientConfig{Service: &admissionregv1.ServiceReference{
				Namespace: program, Name: "elastic-queue-webhook-service", Path: ptr.To(WebhookPath),
			}},
			// Nothing of the control plane waits for us.
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", program},
			}}},
		}
	}
	byName[jobsWebhook].MatchConditions = []admissionregv1.MatchCondition{{Name: "is-new-or-moves", Expression: changesGuarded()}}
	pods := byName[podsWebhook]
	pods.MatchConditions = []admissionregv1.MatchCondition{{Name: "names-a-queue", Expression: "has(object.metadata.labels) && '" + QueueNameLabel +
		"' in object.metadata.labels || has(object.metadata.annotations) && '" + QueueNameLabel + "' in object.metadata.annotations"}}
	// Operators mark their pods in webhooks of their own, which may come later.
	pods.ReinvocationPolicy = ptr.To(admissionregv1.IfNeededReinvocationPolicy)
	for _, kind := range table {
		hook := byName[kind.webhook()]
		hook.Rules = append(hook.Rules, kind.rule())
	}
	return admissionregv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: installedWebhooks, Labels: map[string]string{"elasticai.io/webhooks-of": "elastic-queue-webhooks"}},
		Webhooks:   []admissionregv1.MutatingWebhook{*byName[jobsWebhook], *pods},
	}
}

// rule is what a webhook has to see of a kind: how its objects begin, and what
// becomes of them; pods stay as they are.
func (k *Kind) rule() admissionregv1.RuleWithOperations {
	operations := []admissionregv1.OperationType{admissionregv1.Create}
	if !k.isPod() {
		operations = append(operations, admissionregv1.Update)
	}
	return admissionregv1.RuleWithOperations{Operations: operations, Rule: admissionregv1.Rule{
		APIGroups: []string{k.GVK.Group}, APIVersions: []string{k.GVK.Version}, Resources: []string{k.Spec.Resource},
		Scope: ptr.To(admissionregv1.NamespacedScope),
	}}
}

// rules are what elastic-queue may do with the objects of the kinds.
func rules(table []*Kind) []rbacv1.PolicyRule {
	type grant struct{ group, verbs string }
	verbs := map[string][]string{
		"change": {"get", "list", "watch", "patch", "delete"}, // deactivated jobs may be deleted after a while
		"pods":   {"get", "list", "watch", "patch", "delete"},
		"read":   {"list", "watch"},
		"get":    {"get"}, "patch": {"patch"}, "update": {"update"},
	}
	grants := map[grant][]string{
		// Owners between a job and its pods, and what TrainJobs are made of.
		{"apps", "get"}:                  {"daemonsets", "deployments", "replicasets"},
		{"batch", "get"}:                 {"cronjobs"},
		{"trainer.kubeflow.org", "read"}: {"clustertrainingruntimes", "trainingruntimes"},
	}
	add := func(group, verbs string, resources ...string) {
		grants[grant{group, verbs}] = append(grants[grant{group, verbs}], resources...)
	}
	for _, kind := range table {
		group, resource := kind.GVK.Group, kind.Spec.Resource
		switch {
		case kind.isPod():
			add(group, "pods", resource)
			add(group, "patch", resource+"/status")
			add(group, "update", resource+"/finalizers")
		case kind.suspends():
			add(group, "change", resource)
			add(group, "update", resource+"/finalizers") // a workload blocks its owner's deletion
			if len(kind.clearOnStop) > 0 || len(kind.sync) > 0 && kind.managedBy != nil {
				add(group, "patch", resource+"/status")
			}
		case kind.group != nil:
			add(group, "read", resource)
			add(group, "get", resource)
			add(group, "update", resource+"/finalizers")
		default:
			add(group, "get", resource) // of an owner: whose pods are they?
		}
	}
	var out []rbacv1.PolicyRule
	for _, g := range slices.SortedFunc(maps.Keys(grants), func(a, b grant) int {
		return slices.Compare([]string{a.group, a.verbs}, []string{b.group, b.verbs})
	}) {
		slices.Sort(grants[g])
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{g.group}, Resources: slices.Compact(grants[g]), Verbs: verbs[g.verbs]})
	}
	return out
}
