package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Drain takes a node on which pods of a namespace run out of service, until the test ends or Uncordon: no pods are sent there any
// more, and those are deleted.
func (c *Cluster) Drain(t *testing.T, namespace, node string) {
	t.Helper()
	pods := &corev1.PodList{}
	Eventually(t, "pods run on "+node, func(ctx context.Context) error {
		if err := c.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != node || p.Status.Phase != corev1.PodRunning })
		if len(pods.Items) == 0 {
			return errors.New("none does")
		}
		return nil
	})
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	c.Change(t, object, func() { object.Spec.Unschedulable = true })
	t.Cleanup(func() { c.Uncordon(t, node) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: Job(namespace, "", "", 1, "0").Spec.Template.Spec}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	c.AwaitCordon(t, pod)
	for i := range pods.Items {
		if err := c.Delete(t.Context(), &pods.Items[i]); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// Uncordon puts a node back into service.
func (c *Cluster) Uncordon(t *testing.T, node string) {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.Patch(context.WithoutCancel(t.Context()), object, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`))); err != nil {
		t.Error(err)
	}
}

// AwaitCordon waits until the scheduler knows that a pod's node takes no pods: until then, a job's next pods may go there.
func (c *Cluster) AwaitCordon(t *testing.T, like *corev1.Pod) {
	t.Helper()
	tries := 0
	Eventually(t, "the scheduler sends no pods to the node", func(ctx context.Context) error {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: like.Namespace, Name: fmt.Sprintf("probe-%d", tries)}, Spec: *like.Spec.DeepCopy()}
		err := c.Get(ctx, client.ObjectKeyFromObject(probe), probe)
		if apierrors.IsNotFound(err) {
			err = c.Create(ctx, probe)
		}
		if err != nil {
			return err
		}
		unschedulable := slices.ContainsFunc(probe.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
		if probe.Spec.NodeName == "" && !unschedulable {
			return errors.New("it has not looked at a pod yet")
		}
		tries++
		if err := c.Delete(ctx, probe); err != nil || unschedulable {
			return err
		}
		return errors.New("it sent a pod there")
	})
}
