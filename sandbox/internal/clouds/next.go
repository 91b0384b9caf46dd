package clouds

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
)

// action is what to do about a NodeClaim.
type action string

const (
	nothing  action = "nothing"
	hold     action = "hold"     // add the finalizer: from now on the NodeClaim does not go before its machine
	launch   action = "launch"   // sell a machine
	appear   action = "appear"   // make the machine's node
	register action = "register" // say that the node is there
	giveUp   action = "give up"  // delete the NodeClaim: no machine, or none any more
	end      action = "end"      // end the machine, and take its node away
	release  action = "release"  // remove the finalizer
)

// step is an action, and when to look again without one; 0: when something changes.
type step struct {
	do    action
	again time.Duration
}

// next is what to do about a NodeClaim of a simulated cloud. It is asked again after each step. from is nil where no such
// cloud is, node where the machine has none.
func next(c *nodeClaim, from *cloud, node *corev1.Node, now time.Time) step {
	held := slices.Contains(c.Finalizers, termination)
	started := apimeta.FindStatusCondition(c.Status.Conditions, launched)
	switch {
	case c.DeletionTimestamp != nil && node != nil:
		return step{do: end}
	case c.DeletionTimestamp != nil && held:
		return step{do: release}
	case c.DeletionTimestamp != nil:
		return step{do: nothing}
	case !held:
		return step{do: hold}
	case from == nil:
		return step{do: giveUp} // as Karpenter does without the class
	case !apimeta.IsStatusConditionTrue(c.Status.Conditions, launched):
		if !from.sells(c) {
			return step{do: giveUp}
		}
		return step{do: launch}
	case !apimeta.IsStatusConditionTrue(c.Status.Conditions, registered):
		if left := started.LastTransitionTime.Add(from.startUp()).Sub(now); left > 0 {
			return step{do: nothing, again: left}
		}
		return arrive(node)
	case node == nil:
		return step{do: giveUp} // somebody has taken the machine away
	}
	return expire(c, now)
}

// arrive registers a node once pods may run there.
func arrive(node *corev1.Node) step {
	switch {
	case node == nil:
		return step{do: appear}
	case ready(node):
		return step{do: register}
	}
	return step{do: nothing}
}

// expire ends a machine that nobody has ended in time.
func expire(c *nodeClaim, now time.Time) step {
	life, err := time.ParseDuration(c.Spec.ExpireAfter)
	if err != nil {
		return step{do: nothing} // Never, or not set
	}
	if left := c.CreationTimestamp.Add(life).Sub(now); left > 0 {
		return step{do: nothing, again: left}
	}
	return step{do: giveUp}
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// sells says that the cloud has a machine as the NodeClaim wants it.
func (s *cloud) sells(c *nodeClaim) bool {
	wants := c.wants()
	if s.machine(wants[corev1.LabelInstanceTypeStable]) == nil {
		return false
	}
	for _, value := range wants { // zones may be named by labels of their own
		if slices.Contains(s.Spec.SoldOut, value) {
			return false
		}
	}
	return true
}

// machine is one of a type; nil where it has none.
func (s *cloud) machine(named string) *machine {
	i := slices.IndexFunc(s.Spec.Machines, func(m machine) bool { return m.Type == named })
	if i < 0 {
		return nil
	}
	return &s.Spec.Machines[i]
}

func (s *cloud) startUp() time.Duration {
	long, err := time.ParseDuration(s.Spec.StartUp)
	if err != nil {
		return 0 // not set; the CRD lets no other in
	}
	return long
}
