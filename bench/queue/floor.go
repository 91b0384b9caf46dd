package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"
	kueueworkload "sigs.k8s.io/kueue/pkg/workload"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// floor makes the three writes that no workload can do without, and nothing
// else: it is created as the harness does, admitted as elastic-queue does, and
// finished as the harness does. Nothing is decided, nothing waits, as many at a time
// as elastic-queue has writers, while two watches are read, as the runner's and
// the queue's are. What is left is the API server.
func (s setup) floor(ctx context.Context, scale float64) (out outcome, err error) {
	dir, err := os.MkdirTemp("", "bench-queue-")
	if err != nil {
		return out, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	plane, kubeconfig, err := controlPlane(ctx, s.bin, dir, s.crds)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, plane.end()) }()
	c, err := connect(kubeconfig)
	if err != nil {
		return out, err
	}
	work := bareWork(scale)
	for i := range cohorts * queues {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: queueName(i)}}); err != nil {
			return out, err
		}
	}
	// A kind's first list waits until it is served; a watch would be turned away.
	if err := c.List(ctx, &kueue.WorkloadList{}); err != nil {
		return out, err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	for range 2 {
		if err := readWatch(watching, kubeconfig); err != nil {
			return out, err
		}
	}
	planeBefore, err := plane.cpu()
	if err != nil {
		return out, err
	}
	ownBefore, begin := ownCPU(), time.Now()
	err = inParallel(16, len(work), func(i int) error { return lead(ctx, c, work[i]) })
	out = outcome{name: "floor", wall: time.Since(begin), runnerCPU: ownCPU() - ownBefore, admitted: len(work)}
	planeCPU, measured := plane.cpu()
	out.apiCPU = planeCPU - planeBefore
	return out, errors.Join(err, measured)
}

// lead takes a workload through its life.
func lead(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	if err := c.Create(ctx, wl); err != nil {
		return fmt.Errorf("creating %s: %w", wl.Name, err)
	}
	set := wl.Spec.PodSets[0]
	usage := set.Template.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	workload.Admit(wl, &admission.Admission{Queue: wl.Namespace, PodSets: []admission.PodSetAssignment{{
		Name: string(set.Name), Count: set.Count, Flavors: map[string]string{"cpu": "rf"}, Usage: map[string]int64{"cpu": usage},
	}}}, nil, time.Now())
	patch, err := workload.AdmissionPatch(wl)
	if err != nil {
		return err
	}
	written := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"}}
	written.Namespace, written.Name = wl.Namespace, wl.Name
	if err := c.Status().Patch(ctx, written, client.RawPatch(types.ApplyYAMLPatchType, patch),
		client.FieldOwner(workload.AdmissionManager), client.ForceOwnership, client.FieldValidation(metav1.FieldValidationIgnore)); err != nil {
		return fmt.Errorf("admitting %s: %w", wl.Name, err)
	}
	wl.ResourceVersion = written.ResourceVersion
	if err := kueueworkload.SetConditionAndUpdate(ctx, c, wl, kueue.WorkloadFinished, metav1.ConditionTrue,
		"ByTest", "By test runner", constants.JobControllerName, clock.RealClock{}); err != nil {
		return fmt.Errorf("finishing %s: %w", wl.Name, err)
	}
	return nil
}

// bareWork is the baseline's workloads as the generator makes them, of all
// queues in turn.
func bareWork(scale float64) []*kueue.Workload {
	var work []*kueue.Workload
	for set, c := range baseline {
		for n := range c.scaled(scale) {
			for q := range cohorts * queues {
				work = append(work, c.workload(queueName(q), fmt.Sprintf("%s-%d-%d-0", c.name, set, n)))
			}
		}
	}
	return work
}

func (c class) workload(queue, name string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: queue, Labels: map[string]string{
			"kueue.x-k8s.io/performance-scheduler-running-ms": strconv.Itoa(c.runMs), "kueue.x-k8s.io/performance-scheduler-class": c.name,
		}},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue), Priority: ptr.To(int32(c.prio)),
			PodSets: []kueue.PodSet{{Name: kueue.DefaultPodSetName, Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": *resource.NewQuantity(int64(c.cpus), resource.DecimalSI)},
				}}},
			}}}},
		},
	}
}

func queueName(i int) string { return fmt.Sprintf("cq-0-%d-cohort-%d", i%queues, i/queues) }

// readWatch reads what a watch of all workloads sends, until ctx ends.
func readWatch(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/apis/kueue.x-k8s.io/v1beta2/workloads?watch=true", nil)
	if err != nil {
		return err
	}
	response, err := transport.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("watching workloads: %s", response.Status), response.Body.Close())
	}
	go func() {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}()
	return nil
}

// inParallel does n pieces of work with some workers; the first error ends it.
func inParallel(workers, n int, do func(int) error) error {
	var next atomic.Int64
	failed := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if failed[w] = do(i); failed[w] != nil {
					next.Store(int64(n))
				}
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}

// ownCPU is the time this process has used.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it has nothing to fail on
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
