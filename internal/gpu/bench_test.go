package gpu_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/placement"
)

// BenchmarkExtender asks over HTTP with 5,000 node names, each node with 8 cards and 80 % of them
// taken; between questions a pod is bound, so that the answer changes.
func BenchmarkExtender(b *testing.B) {
	const nodes = 5000
	gpu.TuneGC()
	w := newWorld(b, placement.Options{})
	names := make([]string, nodes)
	objects := make([]client.Object, 0, nodes+nodes*8)
	for i := range nodes {
		names[i] = fmt.Sprintf("gpu-node-%04d.example.internal", i)
		objects = append(objects, node(names[i], 8))
		for card := range 8 {
			p := share(fmt.Sprintf("held-%d-%d", i, card), 80)
			p.Spec.NodeName = names[i]
			p.Annotations = map[string]string{egpu.Assumed: "true", "elasticgpu.io/container-main": fmt.Sprint(card)}
			objects = append(objects, p)
		}
	}
	w.Feed(false, objects...)
	ask := func(path string, body []byte) {
		response, err := http.Post(w.url+path, "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if n, err := io.Copy(io.Discard, response.Body); err != nil || n < nodes {
			b.Fatalf("%s: %d bytes, %v", path, n, err)
		}
	}
	request := share("asking", 15)
	request.Spec.Containers[0].Resources.Limits[egpu.ResourceMemory] = quantity(1000)
	body, err := json.Marshal(args{request, &names})
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range []string{"/scheduler/filter", "/scheduler/priorities"} {
		b.Run(path[len("/scheduler/"):], func(b *testing.B) {
			ask(path, body) // the first question about a pod of this request shape looks at all nodes
			var took, used []time.Duration
			for i := range b.N {
				change(w, names, i)
				start, before := time.Now(), processorTime(b)
				ask(path, body)
				took, used = append(took, time.Since(start)), append(used, processorTime(b)-before)
			}
			slices.Sort(took)
			slices.Sort(used)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(used[len(used)*99/100].Microseconds())/1000, "p99-cpu-ms")
		})
	}
}

// processorTime this process has used, both ends of the connection and the collector included: unlike
// time on the clock it does not grow with what else runs here.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// change what is free: a pod comes or goes.
func change(w *world, names []string, i int) {
	p := &corev1.Pod{}
	*p = *share(fmt.Sprint("come-", i/2), 10)
	p.Spec.NodeName = names[(i/2*37)%len(names)]
	p.Annotations = map[string]string{egpu.Assumed: "true", "elasticgpu.io/container-main": "0"}
	w.Feed(i%2 == 1, p)
}
