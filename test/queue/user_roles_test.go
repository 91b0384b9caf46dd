package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// person is somebody with one of the roles, as the API server sees them.
type person struct {
	client.Client
	raw *kubernetes.Clientset
}

// as makes a person with a role, in a namespace or everywhere.
func as(t *testing.T, name, role, namespace string) person {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}
	if namespace != "" {
		binding := &rbacv1.RoleBinding{RoleRef: ref, Subjects: subjects}
		binding.Namespace, binding.Name = namespace, name
		cluster.Make(t, binding)
	} else {
		binding := &rbacv1.ClusterRoleBinding{RoleRef: ref, Subjects: subjects}
		binding.Name = name
		cluster.Make(t, binding)
	}
	config := rest.CopyConfig(cluster.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return person{c, raw}
}

// waiting asks which workloads wait in a queue.
func (p person) waiting(ctx context.Context, version, path string, query ...string) (visibility.PendingWorkloadsSummary, error) {
	var summary visibility.PendingWorkloadsSummary
	request := p.raw.RESTClient().Get().AbsPath("/apis/visibility.kueue.x-k8s.io/" + version + path + "/pendingworkloads")
	for i := 0; i+1 < len(query); i += 2 {
		request = request.Param(query[i], query[i+1])
	}
	data, err := request.DoRaw(ctx)
	if err != nil {
		return summary, err
	}
	return summary, json.Unmarshal(data, &summary)
}

// Two tenants share a ClusterQueue that is full. Each sees which of theirs wait,
// at which place, and nothing of the other; the admin sees the whole line.
func TestWhoWaits(t *testing.T) {
	mine, theirs := queueFor(t, "1"), cluster.Namespace(t)
	cluster.Make(t, sandbox.LocalQueue(theirs, "main", mine))
	first := sandbox.Job(mine, "running", "main", 1, "1")
	first.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, first)
	waitCondition(t, cluster.WorkloadOf(t, first), kueue.WorkloadAdmitted, true)
	for i, namespace := range []string{mine, theirs, mine} {
		class := &kueue.WorkloadPriorityClass{Value: int32(10 - i)} // creation times are whole seconds
		class.Name = fmt.Sprintf("%s-%d", mine, i)
		job := sandbox.Job(namespace, fmt.Sprintf("waits-%d", i), "main", 1, "1")
		job.Labels["kueue.x-k8s.io/priority-class"] = class.Name
		cluster.Make(t, class, job)
		waitCondition(t, cluster.WorkloadOf(t, job), kueue.WorkloadQuotaReserved, false)
	}

	user, admin := as(t, "user-of-"+mine, "kueue-batch-user-role", mine), as(t, "admin-"+mine, "kueue-batch-admin-role", "")
	for _, version := range []string{"v1beta2", "v1beta1"} {
		sandbox.Eventually(t, "three wait, says "+version, func(ctx context.Context) error {
			line, err := admin.waiting(ctx, version, "/clusterqueues/"+mine)
			if err == nil && len(line.Items) != 3 {
				err = fmt.Errorf("%d wait", len(line.Items))
			}
			return err
		})
	}
	line, err := admin.waiting(t.Context(), "v1beta2", "/clusterqueues/"+mine, "offset", "1", "limit", "1")
	if err != nil || len(line.Items) != 1 {
		t.Fatalf("the second in the queue: %v, %v", line.Items, err)
	}
	second := line.Items[0]
	if second.Namespace != theirs || second.PositionInClusterQueue != 1 || second.PositionInLocalQueue != 0 ||
		second.Priority != 9 || second.LocalQueueName != "main" || len(second.OwnerReferences) != 1 || second.OwnerReferences[0].Name != "waits-1" {
		t.Errorf("the second in the queue is %+v", second)
	}

	var own visibility.PendingWorkloadsSummary
	sandbox.Eventually(t, "the user's role counts", func(ctx context.Context) error {
		own, err = user.waiting(ctx, "v1beta2", "/namespaces/"+mine+"/localqueues/main")
		return err
	})
	if len(own.Items) != 2 || own.Items[1].PositionInClusterQueue != 2 || own.Items[1].PositionInLocalQueue != 1 {
		t.Errorf("of my own I see %+v", own.Items)
	}
	for _, item := range own.Items {
		if item.Namespace != mine {
			t.Errorf("I see %s/%s, which is not mine", item.Namespace, item.Name)
		}
	}
	for _, path := range []string{"/namespaces/" + theirs + "/localqueues/main", "/clusterqueues/" + mine} {
		if _, err := user.waiting(t.Context(), "v1beta2", path); !apierrors.IsForbidden(err) {
			t.Errorf("a user of one namespace asks for %s: %v", path, err)
		}
	}
	if _, err := admin.waiting(t.Context(), "v1beta2", "/clusterqueues/nowhere"); !apierrors.IsNotFound(err) {
		t.Errorf("a queue that is not there: %v", err)
	}
}

// What the roles of people allow, and what not.
func TestRoles(t *testing.T) {
	ns, other := queueFor(t, "4"), cluster.Namespace(t)
	user, admin := as(t, "user-of-"+ns, "kueue-batch-user-role", ns), as(t, "admin-"+ns, "kueue-batch-admin-role", "")
	sandbox.Eventually(t, "the roles have flowed together", func(ctx context.Context) error {
		if err := user.List(ctx, &kueue.WorkloadList{}, client.InNamespace(ns)); err != nil {
			return err
		}
		return admin.List(ctx, &kueue.ClusterQueueList{})
	})
	dry := client.DryRunAll
	for name, tc := range map[string]struct {
		err error
		may bool
	}{
		"a user sends a job":                          {user.Create(t.Context(), sandbox.Job(ns, "job", "main", 1, "1"), dry), true},
		"a user sends a job elsewhere":                {user.Create(t.Context(), sandbox.Job(other, "job", "main", 1, "1"), dry), false},
		"a user looks at the namespace's LocalQueues": {user.List(t.Context(), &kueue.LocalQueueList{}, client.InNamespace(ns)), true},
		"a user looks at another's workloads":         {user.List(t.Context(), &kueue.WorkloadList{}, client.InNamespace(other)), false},
		"a user makes a LocalQueue":                   {user.Create(t.Context(), sandbox.LocalQueue(ns, "own", ns), dry), false},
		"a user looks at ClusterQueues":               {user.List(t.Context(), &kueue.ClusterQueueList{}), false},
		"an admin makes a ClusterQueue":               {admin.Create(t.Context(), sandbox.ClusterQueue(other, other, "1"), dry), true},
		"an admin makes a LocalQueue":                 {admin.Create(t.Context(), sandbox.LocalQueue(other, "own", ns), dry), true},
		"an admin looks at all workloads":             {admin.List(t.Context(), &kueue.WorkloadList{}), true},
	} {
		if tc.may && tc.err != nil || !tc.may && !apierrors.IsForbidden(tc.err) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
}
