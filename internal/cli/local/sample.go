package local

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/deploy"
)

// sampleQueue is the sample that has the queue.
func (o *UpOptions) sampleQueue() string {
	if o.Clouds {
		return "clouds"
	}
	return "single-clusterqueue-setup"
}

// showSample sets a queue up and sends a job through it, and reports each step.
func showSample(ctx context.Context, c client.Client, name string, say func(string, ...any)) error {
	queue, err := deploy.Sample(name)
	if err != nil {
		return err
	}
	if err := apply(ctx, c, queue); err != nil {
		return err
	}
	objects, err := deploy.Sample("sample-job")
	if err != nil {
		return err
	}
	sample := objects[0]
	if err := c.Create(ctx, sample); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(sample)
	say("\nA first job: %s asks for 3 cards in the queue \"main\"", key.Name)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	last := ""
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		now, done, err := sampleState(ctx, c, key)
		if err != nil {
			return false, unlessLate(err)
		}
		if now != last {
			say("  %s", now)
			last = now
		}
		return done, nil
	})
}

// sampleState is where the job stands, in a line.
func sampleState(ctx context.Context, c client.Client, key client.ObjectKey) (line string, done bool, err error) {
	job := &batchv1.Job{}
	if err := c.Get(ctx, key, job); err != nil {
		return "", false, err
	}
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Type == batchv1.JobComplete && condition.Status == "True":
			return "finished: its quota is free again", true, nil
		case condition.Type == batchv1.JobFailed && condition.Status == "True":
			return "", false, fmt.Errorf("%s failed: %s", key.Name, condition.Message)
		}
	}
	if job.Spec.Suspend == nil || !*job.Spec.Suspend {
		return fmt.Sprintf("running: %d of 3 pods", job.Status.Active), false, nil
	}
	workloads := &kueue.WorkloadList{}
	if err := c.List(ctx, workloads, client.InNamespace(key.Namespace)); err != nil {
		return "", false, err
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if len(wl.OwnerReferences) == 0 || wl.OwnerReferences[0].UID != job.UID {
			continue
		}
		if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			return "admitted by ClusterQueue " + string(wl.Status.Admission.ClusterQueue), false, nil
		}
		return "queued as Workload " + wl.Name, false, nil
	}
	return "suspended", false, nil
}
