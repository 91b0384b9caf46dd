package engineview

import (
	"slices"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestDelayedPlacement(t *testing.T) {
	o := NewObjects()
	for name, controller := range map[string]string{
		"nodes": kueue.ProvisioningRequestControllerName, "clusters": kueue.MultiKueueControllerName, "other": "example.com/other",
	} {
		o.Set(check(name, controller, true), false)
	}
	for name, test := range map[string]struct {
		checks, on string
		want       []string
	}{
		"no checks":                    {},
		"a check that brings no nodes": {checks: "other"},
		"a check that is not there":    {checks: "missing"},
		"all flavors":                  {checks: "other nodes", want: []string{"own", "spot"}},
		"one flavor":                   {checks: "nodes", on: "spot", want: []string{"spot"}},
		"other clusters have them all": {checks: "clusters", want: []string{"own", "spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			cq := queueWith("spot own", test.checks)
			if test.on != "" {
				cq.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{kueue.ResourceFlavorReference(test.on)}
			}
			if got := o.DelayedFlavors(cq); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
