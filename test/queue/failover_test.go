package queue

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// The queue is killed in the middle of its work, several times. Every job
// finishes, none runs twice, and no quota stays behind.
func TestKilledInALoop(t *testing.T) {
	const jobs, kills = 40, 3
	ns := queueFor(t, "8")
	for i := range jobs {
		job := sandbox.Job(ns, fmt.Sprintf("job-%02d", i), "main", 2, "1")
		job.Spec.Template.Annotations[sandbox.RunFor] = "1s"
		cluster.Make(t, job)
	}
	for kill := range kills {
		waitFinished(t, ns, (kill+1)*jobs/(kills+2))
		if err := syscall.Kill(queuePID(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	waitFinished(t, ns, jobs)
	waitUsage(t, ns, "0")

	list := &batchv1.JobList{}
	if err := cluster.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != jobs || len(pods.Items) != 2*jobs {
		t.Errorf("%d jobs made %d pods, want %d and %d: a job was started twice or stopped without need", len(list.Items), len(pods.Items), jobs, 2*jobs)
	}
	workloads := &kueue.WorkloadList{}
	if err := cluster.List(t.Context(), workloads, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(workloads.Items) != jobs {
		t.Errorf("%d jobs have %d workloads", jobs, len(workloads.Items))
	}
}

// waitFinished waits until that many jobs have completed.
func waitFinished(t *testing.T, ns string, want int) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d jobs have finished", want), func(ctx context.Context) error {
		list := &batchv1.JobList{}
		if err := cluster.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		done := 0
		for _, job := range list.Items {
			if job.Status.Succeeded == 2 {
				done++
			}
		}
		if done < want {
			return fmt.Errorf("%d have", done)
		}
		return nil
	})
}

// queuePID is the process of elastic-queue as it runs now.
func queuePID(t *testing.T) int {
	t.Helper()
	pid := 0
	sandbox.Eventually(t, "elastic-queue runs", func(context.Context) error {
		c, err := local.Open("test")
		if err != nil {
			return err
		}
		state, err := c.State()
		if err != nil {
			return err
		}
		for _, p := range state.Programs {
			if p.Name == "elastic-queue" && syscall.Kill(p.PID, 0) == nil {
				pid = p.PID
				return nil
			}
		}
		return fmt.Errorf("programs are %v", state.Programs)
	})
	return pid
}
