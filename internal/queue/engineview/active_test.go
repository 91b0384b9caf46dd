package engineview

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func named[T client.Object](obj T, name string) T {
	obj.SetName(name)
	return obj
}

func check(name, controller string, active bool) *kueue.AdmissionCheck {
	ac := named(&kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}, name)
	if active {
		ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	}
	return ac
}

// Every reason Kueue has for an inactive queue.
func TestInactiveQueues(t *testing.T) {
	o := NewObjects()
	racked := named(&kueue.ResourceFlavor{}, "racked")
	racked.Spec.TopologyName = ptr.To(kueue.TopologyReference("racks"))
	for _, obj := range []client.Object{
		named(&kueue.ResourceFlavor{}, "plain"), racked,
		check("on", "example.com/x", true), check("off", "example.com/x", false),
		check("far", kueue.MultiKueueControllerName, true), check("farther", kueue.MultiKueueControllerName, true),
		check("nodes", kueue.ProvisioningRequestControllerName, true),
	} {
		o.Set(obj, false)
	}
	for name, test := range map[string]struct {
		flavors, checks string
		onFlavor        string
		stop            kueue.StopPolicy
		deleted         bool
		reason, message string
	}{
		"ready":          {flavors: "plain", checks: "on"},
		"terminating":    {flavors: "plain", deleted: true, reason: "Terminating", message: "Can't admit new workloads; clusterQueue is terminating"},
		"stopped":        {flavors: "plain", stop: kueue.Hold, reason: "Stopped", message: "Can't admit new workloads: is stopped."},
		"no flavor":      {flavors: "plain gone lost", reason: "FlavorNotFound", message: "Can't admit new workloads: references missing ResourceFlavor(s): gone,lost."},
		"no check":       {checks: "on gone", reason: "AdmissionCheckNotFound", message: "Can't admit new workloads: references missing AdmissionCheck(s): gone."},
		"sleeping check": {checks: "on off", reason: "AdmissionCheckInactive", message: "Can't admit new workloads: references inactive AdmissionCheck(s): off."},
		"no topology":    {flavors: "racked", reason: "TopologyNotFound", message: `Can't admit new workloads: there is no Topology "racks" for TAS flavor "racked".`},
		"topology there": {flavors: "racked", checks: "far"},
		"two far away":   {checks: "farther far", reason: "MultipleMultiKueueAdmissionChecks", message: "Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: far,farther."},
		"far for some":   {flavors: "plain other", checks: "far", onFlavor: "plain", reason: "FlavorNotFound", message: "Can't admit new workloads: references missing ResourceFlavor(s): other, Cannot specify MultiKueue AdmissionCheck per flavor, found: far."},
		"far and nodes":  {checks: "far nodes", reason: "MultiKueueWithProvisioningRequest", message: "Can't admit new workloads: Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: far, nodes."},
		"several":        {flavors: "gone", checks: "off", stop: kueue.HoldAndDrain, reason: "Stopped", message: "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): gone, references inactive AdmissionCheck(s): off."},
	} {
		t.Run(name, func(t *testing.T) {
			cq := queueWith(test.flavors, test.checks)
			if test.onFlavor != "" {
				cq.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{kueue.ResourceFlavorReference(test.onFlavor)}
			}
			if test.stop != "" {
				cq.Spec.StopPolicy = &test.stop
			}
			if test.deleted {
				cq.DeletionTimestamp = ptr.To(metav1.Now())
			}
			reason, message := o.InactiveReason(cq)
			if reason != test.reason || message != test.message {
				t.Errorf("%q: %q, want %q: %q", reason, message, test.reason, test.message)
			}
		})
	}
	o.Set(named(&kueue.Topology{}, "racks"), false)
	if reason, _ := o.InactiveReason(queueWith("racked", "")); reason != "" {
		t.Errorf("with its topology there the queue is %s", reason)
	}
}

func queueWith(flavors, checks string) *kueue.ClusterQueue {
	cq := named(&kueue.ClusterQueue{}, "cq")
	group := kueue.ResourceGroup{}
	for _, name := range strings.Fields(flavors) {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	if checks != "" {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for _, name := range strings.Fields(checks) {
			cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks,
				kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(name)})
		}
	}
	return cq
}
