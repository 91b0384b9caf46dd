package multicluster

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// served is a RayService that west runs.
func served(t *testing.T) (here, there *unstructured.Unstructured) {
	t.Helper()
	install(t, "rayservices.ray.io")
	ns := arena(t, "0", "8", "east", "west")
	here = samples(t, ns, "rayservice")[0]
	here.Object["spec"].(map[string]any)["serveConfigV2"] = "first"
	known(t, here, "spec.rayClusterConfig.suspend")
	manager.Make(t, here)
	wait(t, manager, manager.WorkloadOf(t, here), "a cluster", func(wl *kueue.Workload) error {
		if ptr.Deref(wl.Status.ClusterName, "") != "west" {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	there = wait(t, west, here, "being started there", func(there *unstructured.Unstructured) error {
		if at(there, "spec.rayClusterConfig.suspend") == true || at(there, "spec.serveConfigV2") != "first" {
			return fmt.Errorf("it is %v", there.Object["spec"])
		}
		return nil
	})
	return here, there
}

// What a RayService serves can be changed here while it runs there.
func TestForwarded(t *testing.T) {
	here, there := served(t)
	patch(t, manager, here, `{"spec":{"serveConfigV2":"second"}}`)
	wait(t, west, there, "what is to be served", func(there *unstructured.Unstructured) error {
		if config := at(there, "spec.serveConfigV2"); config != "second" {
			return fmt.Errorf("it is %v", config)
		}
		return nil
	})
}

// Unless that is switched off.
func TestNotForwarded(t *testing.T) {
	reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) { cfg.FeatureGates = map[string]bool{"MultiKueueRemoteSpecSync": false} })
	here, there := served(t)
	patch(t, manager, here, `{"spec":{"serveConfigV2":"second"}}`)
	for _, told := range []string{"first", "second"} { // when one status is here, what came of the change with the one before is over
		text := `{"serviceStatus":"` + told + `"}`
		status(t, west, there, text)
		wait(t, manager, here, "the status from there", same(text))
	}
	if err := west.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
		t.Fatal(err)
	}
	if config := at(there, "spec.serveConfigV2"); config != "first" {
		t.Errorf("the one there serves %v", config)
	}
}
