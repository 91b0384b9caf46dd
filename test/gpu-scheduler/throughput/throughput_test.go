// Package throughput measures how many pods a second are bound: by kube-scheduler alone, by
// kube-scheduler with elastic-gpu-scheduler as its extender, and by elastic-scheduler.
package throughput

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

// BenchmarkBind creates all pods while the scheduler works, and prints figures. THROUGHPUT_PODS says how many.
func BenchmarkBind(b *testing.B) {
	count := 600
	if given := os.Getenv("THROUGHPUT_PODS"); given != "" {
		var err error
		if count, err = strconv.Atoi(given); err != nil {
			b.Fatal(err)
		}
	}
	small := corev1.ResourceList{"cpu": resource.MustParse("10m")}
	share := corev1.ResourceList{"cpu": resource.MustParse("10m"), egpu.ResourceCore: resource.MustParse("50")}
	b.Run(string(local.AsExtender), func(b *testing.B) {
		cluster = sandbox.For(b, sandbox.Options{Nodes: "100x8:H100-80G", GPUScheduler: local.AsExtender})
		report(b, "alone", bindAll(b, "alone", small, count))
		report(b, string(local.AsExtender), bindAll(b, string(local.AsExtender), share, count))
	})
	b.Run(string(local.AsPlugin), func(b *testing.B) {
		cluster = sandbox.For(b, sandbox.Options{Nodes: "100x8:H100-80G", GPUScheduler: local.AsPlugin})
		report(b, string(local.AsPlugin), bindAll(b, string(local.AsPlugin), share, count))
	})
}

func report(b *testing.B, way string, perSecond float64) {
	b.ReportMetric(perSecond, way+"-pods/s")
	fmt.Printf("counters since the start:\n%s\n", counters(b))
	fmt.Printf("figure gpu_scheduler_bind_%s %.0f pods/s\n", way, perSecond)
}

func bindAll(b *testing.B, name string, limits corev1.ResourceList, count int) float64 {
	ctx := context.Background()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "load-" + name + "-"}}
	if err := cluster.Create(ctx, ns); err != nil {
		b.Fatal(err)
	}
	start, before := time.Now(), childrenCPU()
	work := make(chan int)
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for i := range work {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprint("p", i), Annotations: map[string]string{sandbox.RunFor: "forever"}},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name: "main", Image: "example.com/train:1", Resources: corev1.ResourceRequirements{Limits: limits},
					}}},
				}
				if err := cluster.Create(ctx, p); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	makers.Wait()
	created := time.Since(start)
	for bound := 0; bound < count; {
		time.Sleep(50 * time.Millisecond)
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace(ns.Name)); err != nil {
			b.Fatal(err)
		}
		bound = 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName != "" {
				bound++
			}
		}
		if time.Since(start) > 5*time.Minute {
			b.Fatalf("%d of %d bound after %s", bound, count, time.Since(start))
		}
	}
	took := time.Since(start)
	b.Logf("%s: %d pods created in %s, all bound after %s; processor time: %s",
		name, count, created.Round(time.Millisecond), took.Round(time.Millisecond), since(before))
	return float64(count) / took.Seconds()
}

// counters of the scheduler's own metrics that say what it did.
func counters(b *testing.B) string {
	for _, p := range cluster.State.Programs {
		if p.Name != "elastic-gpu-scheduler" {
			continue
		}
		response, err := http.Get("http://" + p.Metrics + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		var lines []string
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			line := scanner.Text()
			if strings.HasPrefix(line, "elastic_gpu_binds_total") || strings.HasPrefix(line, "rest_client_requests_total") ||
				strings.HasPrefix(line, "elastic_gpu_extender_duration_seconds_sum") || strings.HasPrefix(line, "elastic_gpu_extender_duration_seconds_count") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	return ""
}
