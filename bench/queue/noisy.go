package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// chartMemory is the memory limit of the queue's container in the chart, in MiB; the kernel holds the process to it.
const chartMemory = 2048

// A noisy tenant's workloads in all, each of another size, beside a quiet tenant that submits one workload at a time.
const (
	noisyTenant = "noisy"
	quietTenant = "quiet"
	questions   = 60
)

// benchNoisy measures how long a tenant's workload waits for its quota, which is free, alone, while another tenant of
// the same cohort submits its workloads, and when those wait.
func benchNoisy(ctx context.Context, s setup, pending int) error {
	return s.onPlane(ctx, "bench-noisy-", func(c client.WithWatch, dir, kubeconfig string) error {
		return s.noisy(ctx, c, dir, kubeconfig, pending)
	})
}

func (s setup) noisy(ctx context.Context, c client.WithWatch, dir, kubeconfig string, pending int) (err error) {
	if err := makeTenants(ctx, c); err != nil {
		return err
	}
	metrics, err := freeAddress()
	if err != nil {
		return err
	}
	side, err := s.elastic(-1, 0)(dir, kubeconfig, metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, side.end()) }()
	if err := side.holdTo(chartMemory); err != nil {
		return fmt.Errorf("holding elastic-queue to its memory: %w", err)
	}
	q := &quiet{c: c}
	if _, err := q.ask(ctx, 1); err != nil { // until it is up
		return fmt.Errorf("%w (its log is in %s)", err, filepath.Join(dir, "elastic.log"))
	}
	alone, err := q.ask(ctx, questions)
	if err != nil {
		return err
	}
	made := make(chan error, 1)
	begin := time.Now()
	go func() { made <- submitNoise(ctx, c, pending) }()
	var during []time.Duration
	for making := true; making; {
		select {
		case err := <-made:
			if err != nil {
				return err
			}
			making = false
		default:
			one, err := q.ask(ctx, 1)
			if err != nil {
				return err
			}
			during = append(during, one...)
		}
	}
	took := time.Since(begin)
	beside, err := q.ask(ctx, questions)
	if err != nil {
		return err
	}
	if err := ended(side); err != nil {
		return fmt.Errorf("elastic-queue ended: %w", err)
	}
	fmt.Printf("a tenant's %d workloads, one of them of %d pods, made in %.0f s beside another tenant\n", pending, math.MaxInt32, took.Seconds())
	fmt.Printf("the other's workload has its quota after (median, 99 of 100): alone %s, meanwhile %s, afterwards %s\n",
		median(alone), median(during), median(beside))
	fmt.Printf("figure noisy_tenant_alone %.1f ms\n", ms(quantile(alone, 0.5)))
	fmt.Printf("figure noisy_tenant_meanwhile %.1f ms\n", ms(quantile(during, 0.5)))
	fmt.Printf("figure noisy_tenant_afterwards %.1f ms\n", ms(quantile(beside, 0.5)))
	fmt.Printf("figure noisy_tenant_afterwards_p99 %.1f ms\n", ms(quantile(beside, 0.99)))
	fmt.Printf("elastic-queue ran to the end under a limit of %d MiB; at most it had\n", chartMemory)
	fmt.Printf("figure noisy_tenant_memory %d MiB\n", side.peak())
	return nil
}

func ended(p *process) error {
	select {
	case <-p.done:
		return errors.Join(errors.New("while it was needed"), p.err)
	default:
		return nil
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(times []time.Duration) string {
	return fmt.Sprintf("%.1f ms, %.1f ms", ms(quantile(times, 0.5)), ms(quantile(times, 0.99)))
}

func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// makeTenants makes two tenants with a queue each in one cohort.
func makeTenants(ctx context.Context, c client.Client) error {
	objects := []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	for _, name := range []string{noisyTenant, quietTenant} {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
			CohortName: "all", NamespaceSelector: &metav1.LabelSelector{}, QueueingStrategy: kueue.BestEffortFIFO,
			Preemption: &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"cpu"},
				Flavors: []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{{
					Name: "cpu", NominalQuota: resource.MustParse("10"),
				}}}},
			}},
		}}
		objects = append(objects, cq, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)}})
	}
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func tenantWorkload(namespace, name string, pods int32, cpu *resource.Quantity) *kueue.Workload {
	_, template := waitingPods(0)
	template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *cpu}}
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.WorkloadSpec{
		QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: pods, Template: template}},
	}}
}

// submitNoise makes workloads of as many sizes as there are, none of which fits beside the first few, and one of two
// billion pods.
func submitNoise(ctx context.Context, c client.Client, pending int) error {
	if err := c.Create(ctx, tenantWorkload(noisyTenant, "huge", math.MaxInt32, resource.NewMilliQuantity(1, resource.DecimalSI))); err != nil {
		return err
	}
	return eightAtATime(pending, func(i int) error {
		cpu := resource.NewMilliQuantity(int64(5000+i), resource.DecimalSI)
		return c.Create(ctx, tenantWorkload(noisyTenant, fmt.Sprintf("job-%06d", i), int32(1+i%8), cpu))
	})
}

// quiet is the other tenant.
type quiet struct {
	c    client.WithWatch
	made int
}

// ask submits workloads one after the other, and says how long each waited for its quota.
func (q *quiet) ask(ctx context.Context, times int) (out []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	list := &kueue.WorkloadList{}
	if err := q.c.List(ctx, list, client.InNamespace(quietTenant), client.Limit(1)); err != nil {
		return nil, err
	}
	changes, err := q.c.Watch(ctx, &kueue.WorkloadList{}, &client.ListOptions{Namespace: quietTenant, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return nil, err
	}
	defer changes.Stop()
	for range times {
		q.made++
		wl := tenantWorkload(quietTenant, fmt.Sprintf("one-%05d", q.made), 1, resource.NewQuantity(1, resource.DecimalSI))
		begin := time.Now()
		if err := q.c.Create(ctx, wl); err != nil {
			return nil, err
		}
		for reserved := false; !reserved; {
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("workload %s has no quota after %s", wl.Name, time.Since(begin).Round(time.Second))
			case change, open := <-changes.ResultChan():
				if !open {
					return nil, errors.New("the watch ended")
				}
				now, ok := change.Object.(*kueue.Workload)
				reserved = ok && now.Name == wl.Name && now.Status.Admission != nil
			}
		}
		out = append(out, time.Since(begin))
		if err := q.c.Delete(ctx, wl); err != nil {
			return nil, err
		}
	}
	return out, nil
}
