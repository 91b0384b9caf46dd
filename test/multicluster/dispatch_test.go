package multicluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// What is configured counts: which dispatcher says where workloads are sent, and whether what
// changes here is taken over there.
func TestConfigured(t *testing.T) {
	t.Cleanup(func() {
		manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
			cfg.MultiKueue.DispatcherName, cfg.MultiKueue.IncrementalDispatcherConfig, cfg.FeatureGates = "", nil, nil
		})
	})
	manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.MultiKueue.DispatcherName = kueueconfig.MultiKueueDispatcherModeIncremental
		cfg.MultiKueue.IncrementalDispatcherConfig = &kueueconfig.IncrementalDispatcherConfig{StepSize: ptr.To(int32(1))}
		cfg.FeatureGates = map[string]bool{"MultiKueueRemoteSpecSync": false}
	})
	t.Run("nothing taken over", notForwarded) // by west, which is then known to answer
	t.Run("incremental dispatcher", incremental)
	manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.MultiKueue.DispatcherName, cfg.FeatureGates = "example.com/by-hand", nil
	})
	t.Run("dispatcher of somebody else's", external)
}

// sentTo waits until copies of a workload are in these workers and in no other.
func sentTo(t *testing.T, wl *kueue.Workload, clusters ...string) *kueue.Workload {
	t.Helper()
	now := wait(t, manager, wl, fmt.Sprintf("being sent to %v", clusters), func(wl *kueue.Workload) error {
		if !slices.Equal(wl.Status.NominatedClusterNames, clusters) {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	for name, worker := range map[string]*sandbox.Cluster{"east": east, "west": west} {
		if slices.Contains(clusters, name) {
			condition(t, worker, wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
			continue
		}
		gone(t, worker, wl.Namespace, &kueue.WorkloadList{}, &batchv1.JobList{})
	}
	return now
}

// The incremental dispatcher asks one cluster after the other, in the order they
// are configured in.
func incremental(t *testing.T) {
	ns := arena(t, "4", "0", "west", "east")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := sentTo(t, manager.WorkloadOf(t, job), "west")
	// A round later: nothing but the workload says when the first began.
	manager.Backdate(t, wl, kueue.WorkloadQuotaReserved, 5*time.Minute)
	runsIn(t, wl, "east")
	gone(t, west, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
}

// An external dispatcher, which is the test, says where a workload is
// sent, and changes its mind.
func external(t *testing.T) {
	ns := arena(t, "4", "0", "east", "west")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := condition(t, manager, manager.WorkloadOf(t, job), kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
	nominate := func(cluster string) {
		t.Helper()
		status(t, manager, wl, `{"nominatedClusterNames":["`+cluster+`"]}`)
	}
	nominate("west")
	sentTo(t, wl, "west")
	nominate("east")
	runsIn(t, wl, "east")
	gone(t, west, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
}

// A RayService that has changed here goes on there as it was.
func notForwarded(t *testing.T) {
	here, there := served(t, "west")
	patch(t, manager, here, `{"spec":{"serveConfigV2":"second"}}`)
	for _, reported := range []string{"first", "second"} { // when one status is here, what came of the change with the one before is over
		text := `{"serviceStatus":"` + reported + `"}`
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
