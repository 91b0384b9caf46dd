package sandbox

import (
	"context"
	"fmt"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// QueuePolicy for targets, that says nothing yet.
func QueuePolicy(name string, targets ...v1alpha1.TargetRef) *v1alpha1.QueuePolicy {
	p := &v1alpha1.QueuePolicy{}
	p.Name, p.Spec.TargetRefs = name, targets
	return p
}

// ClusterQueueTarget is a ClusterQueue as a policy names it.
func ClusterQueueTarget(name string) v1alpha1.TargetRef {
	return v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: name}
}

// WaitAccepted waits for a reason of a policy's Accepted condition, and returns the policy.
func (c *Cluster) WaitAccepted(t *testing.T, name, reason string) *v1alpha1.QueuePolicy {
	t.Helper()
	p := &v1alpha1.QueuePolicy{}
	Eventually(t, "policy "+name+" is "+reason, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		accepted := apimeta.FindStatusCondition(p.Status.Conditions, v1alpha1.Accepted)
		if accepted == nil || accepted.Reason != reason || accepted.ObservedGeneration != p.Generation {
			return fmt.Errorf("condition is %+v", accepted)
		}
		return nil
	})
	return p
}
