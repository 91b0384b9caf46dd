package jobs

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Labels by which roles are aggregated, as Kueue's are: into the batch admin's, the batch user's,
// and Kubernetes' own.
const (
	forAdmins  = "rbac.kueue.x-k8s.io/batch-admin"
	forUsers   = "rbac.kueue.x-k8s.io/batch-user"
	ofRole     = "rbac.kueue.x-k8s.io/role"
	toView     = "rbac.authorization.k8s.io/aggregate-to-view"
	toEdit     = "rbac.authorization.k8s.io/aggregate-to-edit"
	toAdmin    = "rbac.authorization.k8s.io/aggregate-to-admin"
	rolePrefix = "kueue-"
)

// Roles are those of users, with Kueue's names: batch admins set up queues, batch users create
// jobs. They are deploy/queue/roles.yaml.
func Roles() []rbacv1.ClusterRole {
	var out []rbacv1.ClusterRole
	for _, batch := range []struct{ name, label string }{{"batch-admin-role", forAdmins}, {"batch-user-role", forUsers}} {
		role := clusterRole(batch.name)
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{batch.label: "true"}}}}
		out = append(out, role)
	}
	const group = "kueue.x-k8s.io"
	// Objects of the cluster are for admins; users may read objects in their namespaces.
	for _, resource := range []string{"clusterqueues", "cohorts", "resourceflavors", "topologies"} {
		out = append(out, editor(singular(resource), group, resource, forAdmins), viewer(singular(resource), group, resource, forAdmins, toAdmin))
	}
	// What a queue does beyond Kueue is the administrators' alone: a tenant loosens nothing.
	out = append(out, editor("queuepolicy", "elasticai.io", "queuepolicies", forAdmins), viewer("queuepolicy", "elasticai.io", "queuepolicies", forAdmins),
		editor("cloudoffer", "elasticai.io", "cloudoffers", forAdmins), viewer("cloudoffer", "elasticai.io", "cloudoffers", forAdmins),
		viewer("budgetaccount", "elasticai.io", "budgetaccounts", forAdmins))
	for _, resource := range []string{"localqueues", "workloads"} {
		out = append(out, editor(singular(resource), group, resource, forAdmins),
			viewer(singular(resource), group, resource, forAdmins, forUsers, toView, toEdit, toAdmin))
	}
	const visibility = "visibility.kueue.x-k8s.io"
	out = append(out,
		role("pending-workloads-cq-viewer", visibility, []string{"clusterqueues/pendingworkloads"}, reading, forAdmins, toView, toEdit, toAdmin),
		role("pending-workloads-lq-viewer", visibility, []string{"localqueues/pendingworkloads"}, reading, forAdmins, forUsers, toView, toEdit, toAdmin))
	seen, taken := map[schema.GroupKind]bool{}, map[string]bool{}
	for _, kind := range kinds.Table() {
		if kind.GVK.Group == "" || kind.GVK.Group == "apps" {
			continue // Kubernetes' own roles contain them
		}
		if seen[kind.GVK.GroupKind()] {
			continue // another version of the same
		}
		name := strings.ToLower(kind.GVK.Kind)
		if taken[name] { // such as Volcano's Job
			name = strings.Split(kind.GVK.Group, ".")[1] + "-" + name
		}
		seen[kind.GVK.GroupKind()], taken[name] = true, true
		out = append(out, editor(name, kind.GVK.Group, kind.Spec.Resource, forAdmins, forUsers),
			viewer(name, kind.GVK.Group, kind.Spec.Resource, forAdmins, forUsers, toView, toEdit, toAdmin))
	}
	return out
}

var (
	reading = []string{"get", "list", "watch"}
	writing = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
)

func singular(resource string) string {
	if stem, found := strings.CutSuffix(resource, "ies"); found {
		return stem + "y"
	}
	return strings.TrimSuffix(resource, "s")
}

func clusterRole(name string) rbacv1.ClusterRole {
	return rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: rolePrefix + name},
	}
}

func role(name, group string, resources, verbs []string, labels ...string) rbacv1.ClusterRole {
	r := clusterRole(name + "-role")
	r.Labels = map[string]string{ofRole: name}
	for _, label := range slices.Sorted(slices.Values(labels)) {
		maps.Copy(r.Labels, map[string]string{label: "true"})
	}
	r.Rules = []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: verbs}}
	return r
}

func editor(name, group, resource string, labels ...string) rbacv1.ClusterRole {
	r := role(name+"-editor", group, []string{resource}, writing, labels...)
	r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource + "/status"}, Verbs: []string{"get"}})
	return r
}

func viewer(name, group, resource string, labels ...string) rbacv1.ClusterRole {
	return role(name+"-viewer", group, []string{resource, resource + "/status"}, reading, labels...)
}
