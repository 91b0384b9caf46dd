package multicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// reconfigure has the manager's elastic-queue go on with another configuration,
// and after the test with its own.
func reconfigure(t *testing.T, change func(*v1alpha1.QueueConfiguration)) {
	t.Helper()
	file := filepath.Join(filepath.Dir(manager.Program(t, "elastic-queue").Log), "config.yaml")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg := v1alpha1.NewQueueConfiguration()
	if err := yaml.UnmarshalStrict(before, cfg); err != nil {
		t.Fatal(err)
	}
	change(cfg)
	after, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	startWith := func(text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		was := manager.Program(t, "elastic-queue").PID
		if err := syscall.Kill(was, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		sandbox.Eventually(t, "another elastic-queue", func(context.Context) error {
			if manager.Program(t, "elastic-queue").PID == was {
				return errors.New("it has yet to end")
			}
			return nil
		})
	}
	t.Cleanup(func() { startWith(before) })
	startWith(after)
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
func TestIncrementalDispatcher(t *testing.T) {
	reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.MultiKueue.DispatcherName = kueueconfig.MultiKueueDispatcherModeIncremental
		cfg.MultiKueue.IncrementalDispatcherConfig = &kueueconfig.IncrementalDispatcherConfig{StepSize: ptr.To(int32(1))}
	})
	ns := arena(t, "4", "0", "west", "east")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := sentTo(t, manager.WorkloadOf(t, job), "west")
	// A round later: nothing but the workload says when the first began.
	sandbox.Eventually(t, "having its quota for a round", func(ctx context.Context) error {
		if err := manager.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		reserved.LastTransitionTime.Time = reserved.LastTransitionTime.Add(-5 * time.Minute)
		return manager.Status().Update(ctx, wl)
	})
	runsIn(t, wl, "east")
	gone(t, west, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
}

// A dispatcher of somebody else's, which is the test, says where a workload is
// sent, and changes its mind.
func TestExternalDispatcher(t *testing.T) {
	reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) { cfg.MultiKueue.DispatcherName = "example.com/by-hand" })
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
