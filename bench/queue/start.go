package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A cluster as it is found: this many namespaces with a LocalQueue each,
// flavors, ClusterQueues in cohorts.
const (
	namespaces    = 300
	flavors       = 7
	clusterQueues = 30
)

// started is what one start took.
type started struct {
	first   time.Duration // from its start to the first admission written
	admits  int           // admissions written in the time after
	memory  int           // MiB, at most
	cpu     time.Duration
	pending int
}

// benchStart fills a cluster with workloads that wait, and then starts
// elastic-queue.
func benchStart(ctx context.Context, s setup, pending int) error {
	return s.onPlane(ctx, "bench-start-", func(c client.WithWatch, dir, kubeconfig string) error {
		return s.start(ctx, c, dir, kubeconfig, pending)
	})
}

// onPlane runs a measurement on a control plane of its own, and keeps the logs if it fails.
func (s setup) onPlane(ctx context.Context, name string, measure func(c client.WithWatch, dir, kubeconfig string) error) (err error) {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			_ = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w (logs in %s)", err, dir)
		}
	}()
	plane, kubeconfig, err := controlPlane(ctx, s.bin, dir, s.crds)
	if err != nil {
		return err
	}
	defer func() { _ = plane.end() }()
	c, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	return measure(c, dir, kubeconfig)
}

func (s setup) start(ctx context.Context, c client.WithWatch, dir, kubeconfig string, pending int) error {
	begin := time.Now()
	if err := fill(ctx, c, pending, func(i int) error { return c.Create(ctx, waitingWorkload(i)) }); err != nil {
		return err
	}
	fmt.Printf("%d namespaces, %d ClusterQueues, %d flavors, %d workloads waiting, made in %.0f s\n",
		namespaces, clusterQueues, flavors, pending, time.Since(begin).Seconds())
	out, err := s.measureStart(ctx, c, dir, kubeconfig)
	if err != nil {
		return err
	}
	fmt.Printf("first admission after %.1f s; %d admissions in the 15 s after; %d MiB at most, %.1f s of CPU time\n",
		out.first.Seconds(), out.admits, out.memory, out.cpu.Seconds())
	fmt.Printf("figure queue_start_seconds %.1f s\n", out.first.Seconds())
	fmt.Printf("figure queue_start_memory %d MiB\n", out.memory)
	fmt.Printf("figure queue_start_cpu_seconds %.1f s\n", out.cpu.Seconds())
	return nil
}

func (s setup) measureStart(ctx context.Context, c client.WithWatch, dir, kubeconfig string) (out started, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	metrics, err := freeAddress()
	if err != nil {
		return out, err
	}
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.Limit(1)); err != nil {
		return out, err
	}
	changes, err := c.Watch(ctx, &kueue.WorkloadList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return out, err
	}
	defer changes.Stop()
	begin := time.Now()
	side, err := s.elastic(-1, 0)(dir, kubeconfig, metrics)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, side.end()) }()
	var enough <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-side.done:
			return out, fmt.Errorf("elastic-queue ended: %w (its log is in %s)", side.err, filepath.Join(dir, "elastic.log"))
		case <-enough:
			out.memory = side.peak()
			out.cpu, err = side.cpu()
			return out, err
		case change := <-changes.ResultChan():
			wl, ok := change.Object.(*kueue.Workload)
			if !ok || wl.Status.Admission == nil {
				continue
			}
			if out.admits++; enough == nil {
				out.first = time.Since(begin)
				enough = time.After(15 * time.Second)
			}
		}
	}
}

func connect(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kueue.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// fill makes the cluster's objects, what waits with eight at a time.
func fill(ctx context.Context, c client.Client, pending int, waiting func(i int) error) error {
	var first []client.Object
	for i := range flavors {
		first = append(first, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavorName(i)}})
	}
	for i := range clusterQueues {
		first = append(first, fullQueue(i))
	}
	for i := range namespaces {
		name := fmt.Sprintf("team-%03d", i)
		first = append(first, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "main"}, Spec: kueue.LocalQueueSpec{
				ClusterQueue: kueue.ClusterQueueReference(fmt.Sprintf("queue-%02d", i%clusterQueues)),
			}})
	}
	for _, object := range first {
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
	return eightAtATime(pending, waiting)
}

// eightAtATime does something so many times, until it fails.
func eightAtATime(times int, do func(i int) error) error {
	const workers = 8
	failed := make([]error, workers)
	var doing sync.WaitGroup
	for w := range workers {
		doing.Go(func() {
			for i := w; i < times && failed[w] == nil; i += workers {
				failed[w] = do(i)
			}
		})
	}
	doing.Wait()
	return errors.Join(failed...)
}

func flavorName(i int) string { return fmt.Sprintf("model-%d", i) }

func fullQueue(i int) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("queue-%02d", i)}, Spec: kueue.ClusterQueueSpec{
		CohortName: kueue.CohortReference(fmt.Sprintf("cohort-%d", i%cohorts)), NamespaceSelector: &metav1.LabelSelector{},
		QueueingStrategy: kueue.BestEffortFIFO,
		Preemption:       &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
	}}
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu"}}
	for i := range flavors {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavorName(i)), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("100")}, {Name: "memory", NominalQuota: resource.MustParse("1Ti")},
			{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("8")},
		}})
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	return cq
}

// waitingPods are one to eight pods of one to eight cards.
func waitingPods(i int) (int32, corev1.PodTemplateSpec) {
	cards := resource.MustParse([]string{"1", "2", "4", "8"}[i%4])
	env := make([]corev1.EnvVar, 10)
	for n := range env {
		env[n] = corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: "as a job has it that somebody wrote"}
	}
	return int32(1 + i/4%8), corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "train", Image: "example.com/team/train:1", Command: []string{"python", "train.py", "--epochs", "3"}, Env: env,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("32Gi"), "nvidia.com/gpu": cards},
				Limits:   corev1.ResourceList{"nvidia.com/gpu": cards},
			},
		}},
	}}
}

// waitingName is where the workload or job with a number is.
func waitingName(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%03d", i%namespaces), Name: fmt.Sprintf("job-%05d", i)}
}

// waitingWorkload is at one of ten priorities.
func waitingWorkload(i int) *kueue.Workload {
	count, template := waitingPods(i)
	return &kueue.Workload{ObjectMeta: waitingName(i), Spec: kueue.WorkloadSpec{
		QueueName: "main", Priority: ptr.To(int32(i % 10)), PodSets: []kueue.PodSet{{Name: "main", Count: count, Template: template}},
	}}
}
