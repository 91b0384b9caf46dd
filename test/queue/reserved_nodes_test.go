package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const (
	reservedNode = "a100-40g-0"
	otherNode    = "h100-80g-0"
)

// cpuQueue makes a queue of processors, on all nodes, with LocalQueues main and lesson; nodes are chosen by kube-scheduler.
func cpuQueue(t *testing.T) string {
	t.Helper()
	ns := cluster.Namespace(t)
	cq := sandbox.ClusterQueue(ns, ns, "0")
	cq.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"cpu"}
	cq.Spec.ResourceGroups[0].Flavors[0].Resources = []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("20")}}
	cluster.Make(t, sandbox.Flavor(ns, nil), cq, sandbox.LocalQueue(ns, "main", ns), sandbox.LocalQueue(ns, "lesson", ns))
	return ns
}

// reserveNode reserves a node for the LocalQueue lesson, from a time on.
func reserveNode(t *testing.T, ns string, in time.Duration, nodes ...string) *v1alpha1.QueuePolicy {
	t.Helper()
	p := sandbox.QueuePolicy(ns, v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: ns, Name: "lesson"})
	p.Spec.Reservations = []v1alpha1.Reservation{{
		Name: "lesson", Start: time.Now().UTC().Add(in).Format("2006-01-02T15:04"), Duration: "4h", Nodes: nodes,
	}}
	cluster.Make(t, p)
	return cluster.WaitAccepted(t, ns, v1alpha1.ReasonAccepted)
}

func cpuJob(ns, name, queue string, pods int32, node string) *batchv1.Job {
	job := sandbox.Job(ns, name, queue, pods, "0")
	job.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	if node != "" {
		job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return job
}

// nodesOfPods waits until as many pods of a namespace with these labels have nodes, and returns which.
func nodesOfPods(t *testing.T, ns string, pods int, labels client.MatchingLabels) string {
	t.Helper()
	on := map[string]int{}
	sandbox.Eventually(t, "pods have nodes", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := cluster.List(ctx, list, client.InNamespace(ns), labels); err != nil {
			return err
		}
		clear(on)
		n := 0
		for i := range list.Items {
			if name := list.Items[i].Spec.NodeName; name != "" {
				on[name]++
				n++
			}
		}
		if n != pods {
			return fmt.Errorf("%d of %d: %v", n, pods, on)
		}
		return nil
	})
	return fmt.Sprint(on)
}

// Pods of others do not come to a node that is reserved, whatever made them, though a scheduler that knows no queues places
// them; who is over before uses the gap, and whom it is for starts there. Without the policy all is as in Kueue.
func TestReservedNodesAreKeptFree(t *testing.T) {
	ns := cpuQueue(t)
	policy := reserveNode(t, ns, 2*time.Hour, reservedNode, "nowhere")
	if got := policy.Status.Targets[0].InForce; len(got) != 1 || !strings.Contains(got[0].Value, "nodes "+reservedNode+" nowhere") {
		t.Errorf("in force: %+v", got)
	}
	sandbox.Eventually(t, "the policy is told of a node that does not exist", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ReservationsLacking)
		if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "nodes: there is no node nowhere") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	cluster.Make(t, cpuJob(ns, "many", "main", 6, ""))
	if got, want := nodesOfPods(t, ns, 6, client.MatchingLabels{"batch.kubernetes.io/job-name": "many"}), fmt.Sprint(map[string]int{otherNode: 6}); got != want {
		t.Errorf("pods of a Job are on %s", got)
	}
	for i := range 3 {
		pod := plainPod(ns, fmt.Sprint("plain-", i), map[string]string{"kueue.x-k8s.io/queue-name": "main", "plain": "yes"})
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}}}},
		}}}
		cluster.Make(t, pod)
	}
	if got, want := nodesOfPods(t, ns, 3, client.MatchingLabels{"plain": "yes"}), fmt.Sprint(map[string]int{otherNode: 3}); got != want {
		t.Errorf("plain pods are on %s", got)
	}
	there := cpuJob(ns, "there", "main", 1, reservedNode)
	cluster.Make(t, there)
	waits := cluster.WorkloadOf(t, there)
	sandbox.Eventually(t, "who asks for the node waits", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(waits), waits); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(waits.Status.Conditions, kueue.WorkloadQuotaReserved)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "nodes "+reservedNode+", nowhere are reserved for LocalQueue/"+ns+"/lesson") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	short := cpuJob(ns, "short", "main", 1, reservedNode)
	short.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "3600"
	cluster.Make(t, short, cpuJob(ns, "lesson", "lesson", 1, reservedNode))
	for _, name := range []string{"short", "lesson"} {
		if got, want := nodesOfPods(t, ns, 1, client.MatchingLabels{"batch.kubernetes.io/job-name": name}), fmt.Sprint(map[string]int{reservedNode: 1}); got != want {
			t.Errorf("%s is on %s", name, got)
		}
	}
	if err := cluster.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, waits, kueue.WorkloadAdmitted, true)
	if got, want := nodesOfPods(t, ns, 1, client.MatchingLabels{"batch.kubernetes.io/job-name": "there"}), fmt.Sprint(map[string]int{reservedNode: 1}); got != want {
		t.Errorf("without the policy it is on %s", got)
	}
}

// The author of a pod does not take off the gate that holds it until it is told which nodes to avoid, nor changes what it is
// told.
func TestAuthorsDoNotGetToReservedNodes(t *testing.T) {
	ns := cluster.Namespace(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns + "-author"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "update", "patch", "delete"},
	}}}
	cluster.Make(t, role)
	author := as(t, ns+"-author", role.Name, ns)
	pod := plainPod(ns, "held", nil)
	pod.Annotations[v1alpha1.AvoidNodesAnnotation] = strings.Repeat("n,", 20_000) // the queue leaves it at its gate
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.AvoidNodesGate}}
	cluster.Make(t, pod)
	for what, change := range map[string]func(){
		"the gate":       func() { pod.Spec.SchedulingGates = nil },
		"the annotation": func() { delete(pod.Annotations, v1alpha1.AvoidNodesAnnotation) },
	} {
		sandbox.Eventually(t, what+" stays", func(ctx context.Context) error {
			if err := author.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			change()
			err := author.Update(ctx, pod)
			if apierrors.IsConflict(err) {
				return err
			}
			if !apierrors.IsForbidden(err) {
				t.Errorf("its author changes %s: %v", what, err)
			}
			return nil
		})
	}
}
