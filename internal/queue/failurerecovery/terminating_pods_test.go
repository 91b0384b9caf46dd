package failurerecovery

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var deletedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTerminatingPods(t *testing.T) {
	for _, test := range []struct {
		name       string
		change     func(pod *corev1.Pod, node *corev1.Node)
		after      time.Duration // of the deletion
		phase      corev1.PodPhase
		ended      bool
		againAfter time.Duration
	}{
		{name: "on an unreachable node", after: time.Minute, ended: true, phase: corev1.PodFailed},
		{name: "that had succeeded", after: time.Minute, ended: true, phase: corev1.PodSucceeded,
			change: func(pod *corev1.Pod, _ *corev1.Node) { pod.Status.Phase = corev1.PodSucceeded }},
		{name: "within the grace period", after: 40 * time.Second, phase: corev1.PodRunning, againAfter: 20 * time.Second},
		{name: "that did not agree", after: time.Hour, phase: corev1.PodRunning,
			change: func(pod *corev1.Pod, _ *corev1.Node) { pod.Annotations[SafeAnnotation] = "false" }},
		{name: "on a node that answers", after: time.Hour, phase: corev1.PodRunning,
			change: func(_ *corev1.Pod, node *corev1.Node) { node.Spec.Taints = nil }},
		{name: "on no node", after: time.Hour, phase: corev1.PodRunning,
			change: func(pod *corev1.Pod, _ *corev1.Node) { pod.Spec.NodeName = "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod, node := &corev1.Pod{}, &corev1.Node{}
			pod.Namespace, pod.Name, pod.UID, pod.Finalizers = "ns", "pod", "first", []string{"example.com/counted"}
			pod.Annotations, pod.DeletionTimestamp = map[string]string{SafeAnnotation: "true"}, &metav1.Time{Time: deletedAt}
			pod.Spec.NodeName, pod.Status.Phase, node.Name = "node", corev1.PodRunning, "node"
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
			if test.change != nil {
				test.change(pod, node)
			}
			c, deletions := newController(t, test.after, pod, node)
			for range 2 { // a second look does no harm
				result, err := c.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
				if err != nil || result.RequeueAfter != test.againAfter {
					t.Errorf("again after %v, want %v (%v)", result.RequeueAfter, test.againAfter, err)
				}
			}
			if err := c.client.Get(context.Background(), client.ObjectKeyFromObject(pod), pod); err != nil {
				t.Fatal(err)
			}
			conditions := 0
			for _, condition := range pod.Status.Conditions {
				if condition.Type == conditionType {
					conditions++
				}
			}
			if pod.Status.Phase != test.phase || (len(*deletions) > 0) != test.ended || (conditions == 1) != test.ended {
				t.Errorf("phase %s, deleted %v, conditions %v", pod.Status.Phase, *deletions, pod.Status.Conditions)
			}
			for _, o := range *deletions {
				if *o.GracePeriodSeconds != 0 || *o.Preconditions.UID != "first" {
					t.Errorf("deleted with %+v", o)
				}
			}
		})
	}
}

// A node that is lost has those of its pods looked at that agreed and are being deleted.
func TestPodsOfLostNode(t *testing.T) {
	pod := func(name, safe, node string, deleted bool) *corev1.Pod {
		p := &corev1.Pod{}
		p.Namespace, p.Name, p.Annotations, p.Spec.NodeName = "ns", name, map[string]string{SafeAnnotation: safe}, node
		if p.Finalizers = []string{"example.com/counted"}; deleted {
			p.DeletionTimestamp = &metav1.Time{Time: deletedAt}
		}
		return p
	}
	node := &corev1.Node{}
	node.Name = "node"
	c, _ := newController(t, 0, node, pod("ends", "true", "node", true), pod("runs", "true", "node", false),
		pod("other", "true", "elsewhere", true), pod("refuses", "", "node", true))
	if got := c.podsOn(context.Background(), node); len(got) != 1 || got[0].Name != "ends" {
		t.Errorf("looked at %v", got)
	}
}

// newController notes deletions, which a pod with a finalizer survives.
func newController(t *testing.T, after time.Duration, objects ...client.Object) (*controller, *[]client.DeleteOptions) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	deletions := &[]client.DeleteOptions{}
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).
		WithIndex(&corev1.Pod{}, nodeIndex, indexed).
		WithInterceptorFuncs(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			given := client.DeleteOptions{}
			given.ApplyOptions(opts)
			*deletions = append(*deletions, given)
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); apierrors.IsNotFound(err) {
				t.Error("a pod was deleted that is not there")
			}
			return nil
		}}).Build()
	return &controller{client: store, events: events.NewFakeRecorder(9), now: func() time.Time { return deletedAt.Add(after) }}, deletions
}
