package cli

import (
	"encoding/json"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Why jobs wait, and whether others would start, as the queue itself answers.
func TestExplain(t *testing.T) {
	ns := cluster.Namespace(t)
	queues(t, ns, ns, "8")
	session(t, ns, "explain.txt")
}

// A user who may only read one namespace may ask about its jobs and no others,
// and does not learn which job of another namespace is in the way.
func TestExplainKeepsSecrets(t *testing.T) {
	ours, theirs := cluster.Namespace(t), cluster.Namespace(t)
	queues(t, ours, ours, "4")
	cluster.Make(t, sandbox.LocalQueue(theirs, "main", ours))
	view := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ours, Name: "ann"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "ann"}},
	}
	cluster.Make(t, view)
	must(t, theirs, `elastic submit job --name hidden --image x:1 --gpus 4 --queue main -a sandbox.elasticai.io/run-for=forever run`)
	must(t, theirs, "elastic wait hidden --for running")
	must(t, ours, `elastic submit job --name waits --image x:1 --gpus 1 --queue main run`)
	eventually(t, ours, "elastic explain waits", "job/hidden in "+theirs) // the administrator sees it

	config := rest.CopyConfig(cluster.REST)
	config.Impersonate.UserName = "ann"
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(namespace string) ([]byte, error) {
		list := &kueue.WorkloadList{}
		if err := cluster.List(t.Context(), list, client.InNamespace(namespace)); err != nil || len(list.Items) != 1 {
			t.Fatalf("%v: %d workloads in %s", err, len(list.Items), namespace)
		}
		return core.CoreV1().RESTClient().Get().AbsPath("/apis/visibility.elasticai.io/v1alpha1/namespaces", namespace, "explanations", list.Items[0].Name).DoRaw(t.Context())
	}
	data, err := ask(ours)
	if err != nil {
		t.Fatal(err)
	}
	explanation := &v1alpha1.Explanation{}
	if err := json.Unmarshal(data, explanation); err != nil {
		t.Fatal(err)
	}
	if len(explanation.HeldBy) != 1 || explanation.HeldBy[0].ClusterQueue != ours || strings.Contains(string(data), "hidden") || strings.Contains(string(data), theirs) {
		t.Errorf("ann must learn that one job of the queue is in the way, and not which: %s", data)
	}
	if data, err := ask(theirs); !apierrors.IsForbidden(err) {
		t.Errorf("ann must not learn about another namespace: %v %s", err, data)
	}
	must(t, theirs, "elastic delete hidden")
	must(t, ours, "elastic delete waits")
}
