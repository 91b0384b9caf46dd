package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// asks is how often each form of the command is typed.
const asks = 50

// benchExplain fills a cluster with workloads that wait, some of them of jobs,
// starts elastic-queue with its part of the API, and then types "elastic
// explain" about these jobs: each call is a process of its own.
func benchExplain(ctx context.Context, s setup, pending int) error {
	return s.onPlane(ctx, "bench-explain-", func(c client.WithWatch, dir, kubeconfig string) error {
		return s.explain(ctx, c, dir, kubeconfig, pending)
	})
}

func (s setup) explain(ctx context.Context, c client.Client, dir, kubeconfig string, pending int) (err error) {
	begin := time.Now()
	kind := slices.IndexFunc(kinds.Table(), func(k *kinds.Kind) bool { return k.GVK == batchv1.SchemeGroupVersion.WithKind("Job") })
	err = fill(ctx, c, pending, func(i int) error {
		if i%(pending/asks) == 0 {
			return makeJob(ctx, c, kinds.Table()[kind], i)
		}
		return c.Create(ctx, waitingWorkload(i))
	})
	if err != nil {
		return err
	}
	queue, err := s.installed(ctx, c, dir, kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queue.end()) }()
	held, err := settle(ctx, c, pending)
	if err != nil {
		return err
	}
	fmt.Printf("%d workloads in %d namespaces and %d ClusterQueues: %d wait, %d hold quota, after %.0f s\n",
		pending, namespaces, clusterQueues, pending-held, held, time.Since(begin).Seconds())
	return s.measureExplain(ctx, kubeconfig, pending)
}

// makeJob makes a job like waitingWorkload, and the workload the queue gives it.
func makeJob(ctx context.Context, c client.Client, kind *kinds.Kind, i int) error {
	count, template := waitingPods(i)
	job := &batchv1.Job{ObjectMeta: waitingName(i), Spec: batchv1.JobSpec{
		Parallelism: &count, Completions: &count, Suspend: ptr.To(true), Template: template,
	}}
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "main"}
	if err := c.Create(ctx, job); err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(kind.GVK)
	wl, err := kind.BuildWorkload(ctx, c, u)
	if err != nil {
		return err
	}
	return c.Create(ctx, wl)
}

// installed is elastic-queue with its webhooks and its part of the API, as they
// are installed, but for their addresses.
func (s setup) installed(ctx context.Context, c client.Client, dir, kubeconfig string) (*process, error) {
	metrics, err1 := freeAddress()
	health, err2 := freeAddress()
	webhook, err3 := freeAddress()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(webhook, ":")
	objects, err := deploy.Program("queue")
	if err != nil {
		return nil, err
	}
	if err := deploy.PointWebhooksTo("elastic-queue", "https://"+webhook, objects); err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("bench"), client.ForceOwnership); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`apiVersion: elasticai.io/v1alpha1
kind: QueueConfiguration
metrics: {bindAddress: %q}
health: {bindAddress: %q}
webhook: {host: %s, port: %s, certDir: %q, dnsNames: [%s, elastic-queue-webhook-service.elastic-queue.svc]}
leaderElection: {enabled: false}
`, metrics, health, host, port, filepath.Join(dir, "certs"), host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return start(filepath.Join(dir, "elastic.log"), nil, filepath.Join(s.bin, "elastic-queue"), "--kubeconfig", kubeconfig, "--config", config)
}

// settle waits until all jobs are in the queues and their counts have stopped
// to change. It returns how many hold quota.
func settle(ctx context.Context, c client.Client, jobs int) (held int, err error) {
	const still = 10
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	last, same := "", 0
	for same < still {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the queues do not come to rest: %s: %w", last, ctx.Err())
		case <-time.After(time.Second):
		}
		list := &kueue.ClusterQueueList{}
		if err := c.List(ctx, list); err != nil {
			return 0, err
		}
		waiting, now := 0, ""
		held = 0
		for i := range list.Items {
			status := &list.Items[i].Status
			waiting, held = waiting+int(status.PendingWorkloads), held+int(status.ReservingWorkloads)
			now += fmt.Sprintf(" %d+%d", status.PendingWorkloads, status.ReservingWorkloads)
		}
		if same++; now != last || waiting+held != jobs {
			last, same = now, 0
		}
	}
	return held, nil
}

// measureExplain asks about jobs from all over the line, as text and as JSON.
func (s setup) measureExplain(ctx context.Context, kubeconfig string, pending int) error {
	for _, form := range []struct{ name, output string }{{"explain_ms", ""}, {"explain_json_ms", "json"}} {
		var took []time.Duration
		for i := range asks {
			meta := waitingName(i * (pending / asks))
			args := []string{"explain", meta.Name, "-n", meta.Namespace}
			if form.output != "" {
				args = append(args, "-o", form.output)
			}
			begin := time.Now()
			out, err := s.typed(ctx, kubeconfig, args...)
			took = append(took, time.Since(begin))
			if err != nil {
				return err
			}
			if err := answered(out, form.output, meta.Name); err != nil {
				return err
			}
		}
		slices.Sort(took)
		fmt.Printf("figure %s %.0f ms\n", form.name, milliseconds(took[asks/2]))
		fmt.Printf("figure %s %.0f ms\n", strings.Replace(form.name, "_ms", "_p99_ms", 1), milliseconds(took[asks-1]))
	}
	return nil
}

// typed is a command as a shell runs it.
func (s setup) typed(ctx context.Context, kubeconfig string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "elastic"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("elastic %s: %w: %s", strings.Join(args, " "), err, &said)
	}
	return out.Bytes(), nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// answered says whether the queue itself gave the answer: what the command
// makes of a workload's status alone is none.
func answered(out []byte, output, job string) error {
	if output == "" {
		if !bytes.Contains(out, []byte("job/"+job)) || bytes.Contains(out, []byte("could not be asked")) {
			return fmt.Errorf("no answer about %s: %s", job, out)
		}
		return nil
	}
	var answer struct {
		Note     string
		Standing *struct{ State, ClusterQueue string }
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Standing == nil || answer.Standing.ClusterQueue == "" || answer.Note != "" {
		return fmt.Errorf("no answer about %s: %s", job, out)
	}
	return nil
}
