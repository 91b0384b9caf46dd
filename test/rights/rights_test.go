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

// right is what a rule grants.
type right struct {
	Use
	// instead: the rules for kinds of jobs are made from a few forms, and a kind that uses a verb stands for all of its form.
	instead []string
}

// covers says that the right is there for a use. Where the API server streams, as the tests' does, a watch begins without
// a list; where it does not, it begins with one.
func (r right) covers(use Use) bool {
	verb := r.Verb == use.Verb || r.Verb == "list" && use.Verb == "watch"
	what := r.Group == use.Group && r.Resource == use.Resource || slices.Contains(r.instead, use.Group+"/"+use.Resource)
	return verb && what && r.Account == use.Account && (r.Name == "" || r.Name == use.Name)
}

// granted are the rights that the installed roles give to the programs' accounts.
func granted(t *testing.T) []right {
	t.Helper()
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]string{}
	for _, folder := range []string{"queue", "gpu-scheduler", "scheduler", "gpu-agent", "gpu-agent-dra", "gpu-remote", "web", "web-proxy", "web-history"} {
		objects, err := deploy.Program(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			collect(t, object, rules, bound)
		}
	}
	var all []right
	for account, roles := range bound {
		for _, role := range roles {
			forms := map[string][]string{}
			for _, rule := range rules[role] {
				for _, use := range expand(account, rule) {
					form := strings.Join(rule.Verbs, ",")
					forms[form] = append(forms[form], use.Group+"/"+use.Resource)
				}
			}
			for _, rule := range rules[role] {
				for _, use := range expand(account, rule) {
					r := right{Use: use}
					if role == "ClusterRole/elastic-queue-jobs" {
						r.instead = forms[strings.Join(rule.Verbs, ",")]
					}
					all = append(all, r)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b right) int { return strings.Compare(a.String(), b.String()) })
	return all
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

// kept are rights whose use the tests cannot show, or not each time, with what needs them.
var kept = map[string]string{
	"elastic-gpu-agent: delete elasticgpu.io/gpus":                                                                 "a card was taken out",
	"elastic-gpu-agent: delete resource.k8s.io/resourceslices":                                                     "a node's devices need fewer slices than before",
	"elastic-gpu-agent: patch elasticgpu.io/gpus":                                                                  "another card is in the place of one",
	"elastic-gpu-agent: patch events.k8s.io/events":                                                                "an event that comes again is counted",
	"elastic-gpu-scheduler: get pods":                                                                              "a pod is to be bound before its watch tells of it",
	"elastic-gpu-scheduler: update secrets elastic-gpu-scheduler-extender":                                         "certificates are renewed after years",
	"elastic-gpu-scheduler: patch events.k8s.io/events":                                                            "an event that comes again is counted",
	"elastic-gpu-scheduler: create events.k8s.io/events":                                                           "a pod says it has cards that it was not given",
	"elastic-queue: get coordination.k8s.io/leases c1f6bfd2.kueue.x-k8s.io":                                        "Kueue's configuration names its lease",
	"elastic-queue: update coordination.k8s.io/leases c1f6bfd2.kueue.x-k8s.io":                                     "Kueue's configuration names its lease",
	"elastic-gpu-scheduler: update secrets elastic-gpu-scheduler-webhooks":                                         "certificates are renewed after months",
	"elastic-queue: get kueue.x-k8s.io/localqueues":                                                                "a job comes together with its queue",
	"elastic-queue: get kueue.x-k8s.io/clusterqueues":                                                              "a job comes together with its queue",
	"elastic-queue: get kueue.x-k8s.io/workloads":                                                                  "a new leader's cache is behind",
	"elastic-queue: get kueue.x-k8s.io/admissionchecks":                                                            "a job comes together with its queue",
	"elastic-queue: patch events.k8s.io/events":                                                                    "an event that comes again is counted",
	"elastic-queue: patch kueue.x-k8s.io/cohorts/status":                                                           "shares of cohorts are told with fair sharing on",
	"elastic-queue: update secrets elastic-queue-webhooks":                                                         "certificates are renewed after months",
	"elastic-queue: patch admissionregistration.k8s.io/mutatingwebhookconfigurations elastic-queue-jobs-declared":  "certificates are renewed after months",
	"elastic-queue: delete admissionregistration.k8s.io/mutatingwebhookconfigurations elastic-queue-jobs-declared": "the last declared kind went",
}

// unnamed are rights to objects of any name where names are fixed as a rule, with what needs them.
var unnamed = map[string]string{
	"elastic-queue: get apiextensions.k8s.io/customresourcedefinitions": "users declare kinds of jobs, whose CRDs have any name",
	"elastic-queue: get secrets":                                        "kubeconfigs of other clusters have any name",
}

// anyName are the verbs whose rights cannot name objects: what is created has no name yet, and lists are of all.
var anyName = []string{"create", "list", "watch"}

// A right that could be narrower: of all objects of a resource whose names are known.
func TestRightsNameTheirObjects(t *testing.T) {
	wide := map[string]bool{}
	for _, right := range granted(t) {
		if !named[right.Resource] || right.Name != "" || slices.Contains(anyName, right.Verb) {
			continue
		}
		wide[right.String()] = true
		if unnamed[right.String()] == "" {
			t.Errorf("%s: granted for any name; write resourceNames", right)
		}
	}
	for name := range unnamed {
		if !wide[name] {
			t.Errorf("%s: excused and not granted", name)
		}
	}
}

// excused says that a right may be unused. For the one about finalizers an API server asks inside, where it is not logged, and
// only with OwnerReferencesPermissionEnforcement, when a workload that keeps its owner from going is written.
func excused(right Use) bool {
	_, ok := kept[right.String()]
	return ok || strings.HasSuffix(right.Resource, "/finalizers")
}

// An excuse for a right that is not granted is out of date.
func TestExcusesAreOfRights(t *testing.T) {
	rights := granted(t)
	for name := range kept {
		if !slices.ContainsFunc(rights, func(r right) bool { return r.String() == name }) {
			t.Errorf("%s: excused and not granted", name)
		}
	}
}

func TestEveryRightIsUsed(t *testing.T) {
	uses, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	onNode := slices.ContainsFunc(uses, func(use Use) bool { return use.Resource == "nodes/status" })
	if !onNode {
		t.Log("nothing is known of the agent on a real node: its rights are left out")
	}
	onPage := slices.ContainsFunc(uses, func(use Use) bool { return use.Account == "elastic-web" })
	if !onPage {
		t.Log("nothing is known of the page in a cluster, which takes a browser: its rights are left out")
	}
	for _, right := range granted(t) {
		if right.Account == "elastic-gpu-agent" && !onNode || right.Account == "elastic-web" && !onPage {
			continue
		}
		used := slices.ContainsFunc(uses, func(use Use) bool { return !use.Refused && right.covers(use) })
		if !used && !excused(right.Use) {
			t.Errorf("%s: granted and never used", right)
		}
	}
}

func TestNothingIsRefused(t *testing.T) {
	uses, err := Kept()
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range uses {
		if use.Refused && use.Group != "examplecorp.com" { // a kind that a test declares before it gives the right
			t.Errorf("%s: refused", use)
		}
	}
}

func TestRead(t *testing.T) {
	log := `{"verb":"patch","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"workloads","subresource":"status","apiGroup":"kueue.x-k8s.io","name":"a"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"patch","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"workloads","subresource":"status","apiGroup":"kueue.x-k8s.io","name":"b"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"get","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"secrets","name":"x"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"get","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"pods","namespace":"a"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"get","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"pods","namespace":"b"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"watch","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"watch","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"},"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"get","user":{"username":"system:serviceaccount:elastic-queue:elastic-queue"}}
{"verb":"get","user":{"userna`
	uses, err := Read(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := []Use{
		{Account: "elastic-queue", Verb: "get", Resource: "pods"},
		{Account: "elastic-queue", Verb: "get", Resource: "pods", Refused: true},
		{Account: "elastic-queue", Verb: "get", Resource: "secrets", Name: "x", Refused: true},
		{Account: "elastic-queue", Verb: "patch", Group: "kueue.x-k8s.io", Resource: "workloads/status"},
		{Account: "elastic-queue", Verb: "watch", Resource: "nodes"},
	}
	if !slices.Equal(uses, want) {
		t.Errorf("read %+v", uses)
	}
}
