package rights

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/elastic-ai/elastic/deploy"
)

// granted are the rights that the installed roles give to the programs' accounts.
func granted(t *testing.T) []Use {
	t.Helper()
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]string{}
	for _, folder := range []string{"queue", "gpu-scheduler", "scheduler", "gpu-agent"} {
		objects, err := deploy.Program(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			collect(t, object, rules, bound)
		}
	}
	all := map[Use]bool{}
	for account, roles := range bound {
		for _, role := range roles {
			for _, rule := range rules[role] {
				for _, use := range expand(account, rule) {
					all[use] = true
				}
			}
		}
	}
	return sorted(all)
}

func collect(t *testing.T, object *unstructured.Unstructured, rules map[string][]rbacv1.PolicyRule, bound map[string][]string) {
	t.Helper()
	switch object.GetKind() {
	case "ClusterRole", "Role":
		role := &rbacv1.ClusterRole{} // a Role has the same rules in the same place
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			t.Fatal(err)
		}
		rules[object.GetKind()+"/"+object.GetName()] = append(rules[object.GetKind()+"/"+object.GetName()], role.Rules...)
	case "ClusterRoleBinding", "RoleBinding":
		binding := &rbacv1.ClusterRoleBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
			t.Fatal(err)
		}
		for _, subject := range binding.Subjects {
			if subject.Kind == rbacv1.ServiceAccountKind {
				bound[subject.Name] = append(bound[subject.Name], binding.RoleRef.Kind+"/"+binding.RoleRef.Name)
			}
		}
	}
}

func expand(account string, rule rbacv1.PolicyRule) []Use {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var uses []Use
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					uses = append(uses, Use{Account: account, Verb: verb, Group: group, Resource: resource, Name: name})
				}
			}
		}
	}
	return uses
}

// covers says that a right is there for a use. Where the API server streams, as the tests' does, a watch begins without
// a list; where it does not, it begins with one.
func covers(right, use Use) bool {
	verb := right.Verb == use.Verb || right.Verb == "list" && use.Verb == "watch"
	return verb && right.Account == use.Account && right.Group == use.Group && right.Resource == use.Resource &&
		(right.Name == "" || right.Name == use.Name)
}

// kept are rights that no test needs, with what needs them.
var kept = map[string]string{}

func TestEveryRightIsUsed(t *testing.T) {
	uses, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range granted(t) {
		used := slices.ContainsFunc(uses, func(use Use) bool { return !use.Refused && covers(right, use) })
		why, excused := kept[right.String()]
		switch {
		case !used && !excused:
			t.Errorf("%s: granted and never used", right)
		case used && excused:
			t.Errorf("%s: is used, so it needs no excuse (%s)", right, why)
		}
	}
}

func TestNothingIsRefused(t *testing.T) {
	uses, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range uses {
		if use.Refused && !strings.HasPrefix(use.Group, "test.") {
			t.Errorf("%s: refused", use)
		}
	}
}

func TestRead(t *testing.T) {
	log := `{"verb":"patch","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"workloads","subresource":"status","apiGroup":"kueue.x-k8s.io","name":"a"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"patch","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"workloads","subresource":"status","apiGroup":"kueue.x-k8s.io","name":"b"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"get","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"secrets","name":"x"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"get","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"}}
{"verb":"get","user":{"userna`
	uses, err := Read(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := []Use{
		{Account: "elastic-queue", Verb: "get", Resource: "secrets", Name: "x", Refused: true},
		{Account: "elastic-queue", Verb: "patch", Group: "kueue.x-k8s.io", Resource: "workloads/status"},
	}
	if !slices.Equal(uses, want) {
		t.Errorf("read %+v", uses)
	}
}
