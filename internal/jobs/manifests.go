package jobs

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/reconcile"
	"github.com/elastic-ai/elastic/internal/jobs/webhooks"
)

// Manifests are what the cluster has to know about the kinds of the table: the webhooks that
// suspend their jobs, and the roles of elastic-queue. They are deploy/queue/jobs.yaml.
func Manifests() []any {
	declared := metav1.LabelSelector{MatchLabels: map[string]string{reconcile.AggregateLabel: "true"}}
	return []any{
		webhooks.Configuration(kinds.Table()),
		rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: jobsRole},
			Rules: rules(kinds.Table()),
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

// rules are what elastic-queue may do with the objects of the kinds.
func rules(table []*kinds.Kind) []rbacv1.PolicyRule {
	type grant struct{ group, verbs string }
	verbs := map[string][]string{
		"change": {"get", "list", "watch", "patch", "delete"}, // deactivated jobs may be deleted after a while
		"pods":   {"get", "list", "watch", "patch", "delete"},
		"read":   {"list", "watch"},
		"get":    {"get"}, "patch": {"patch"}, "update": {"update"},
	}
	grants := map[grant][]string{
		// Owners between a job and its pods, and the runtimes of TrainJobs.
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
		case kind.IsPod():
			add(group, "pods", resource)
			add(group, "patch", resource+"/status")
			add(group, "update", resource+"/finalizers")
		case kind.Suspends():
			add(group, "change", resource)
			add(group, "update", resource+"/finalizers") // a workload blocks its owner's deletion
			if kind.PatchesStatus() {
				add(group, "patch", resource+"/status")
			}
		case kind.GroupsPods():
			add(group, "read", resource)
			add(group, "get", resource)
			add(group, "update", resource+"/finalizers")
		default:
			add(group, "get", resource) // to find the owner of pods
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
