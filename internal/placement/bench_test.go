package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// bigCluster is nodes of 8 cards, filled to the given part with pods of a mix of shapes.
func bigCluster(tb testing.TB, policy string, nodes int, full float64) (*Engine, []string, []Pod, *rand.Rand) {
	e := newEngine(tb, Options{Policy: policy})
	names := make([]string, nodes)
	for i := range names {
		n := gpuNode(fmt.Sprintf("node-%04d", i), 8, []string{"A100", "H100"}[i%2], 80000)
		n.Resources["cpu"], n.Resources["pods"] = 128000, 110
		names[i] = n.Name
		apply(tb, e, NodeChanged{n})
	}
	var shapes []Pod
	for _, core := range []int64{10, 20, 25, 30, 40, 50, 70, 80} {
		for _, cpu := range []int64{2000, 4000, 8000} {
			shapes = append(shapes, Pod{Resources: map[string]int64{"cpu": cpu, "memory": cpu << 20}, Containers: []Container{{Name: "main", Cards: share(tb, core, 0)}}})
		}
	}
	for _, cards := range []int64{1, 1, 1, 2, 4, 8} {
		shapes = append(shapes, Pod{Resources: map[string]int64{"cpu": 12000 * cards}, Containers: []Container{{Name: "main", Cards: share(tb, 100*cards, 0)}}})
	}
	r := rand.New(rand.NewPCG(1, 2))
	held, total := int64(0), int64(float64(nodes)*8000*full)
	for i := 0; held < total; i++ {
		pod := shapes[r.IntN(len(shapes))]
		pod.Key = fmt.Sprintf("ns/fill-%d", i)
		node, err := e.Best(&pod)
		if err != nil {
			continue // the large find no place on a cluster this full
		}
		a := assign(tb, e, &pod, node)
		for _, c := range a.Grants[0].Cards {
			held += c.Core
		}
	}
	return e, names, shapes, r
}

// decide runs n decisions (choose a node, choose cards, hold them; an old pod leaves) and returns how long each took.
func decide(tb testing.TB, e *Engine, shapes []Pod, r *rand.Rand, n int) []time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		pod := shapes[r.IntN(len(shapes))]
		pod.Key = fmt.Sprintf("ns/new-%d", i)
		start := time.Now()
		node, err := e.Best(&pod)
		if err == nil {
			_, err = e.Assign(&pod, node, time.Time{})
		}
		took[i] = time.Since(start)
		var refusal *Refusal
		if err != nil && !errors.As(err, &refusal) {
			tb.Fatal(err)
		}
		e.Release(pod.Key)
		e.Release(fmt.Sprintf("ns/fill-%d", i))
		refill := shapes[r.IntN(len(shapes))]
		refill.Key = fmt.Sprintf("ns/fill-%d", i)
		if node, err := e.Best(&refill); err == nil {
			assign(tb, e, &refill, node)
		}
	}
	slices.Sort(took)
	return took
}

func BenchmarkDecide(b *testing.B) {
	for _, policy := range []string{"fragmentation", "binpack", "spread"} {
		b.Run(policy, func(b *testing.B) {
			e, _, shapes, r := bigCluster(b, policy, 5000, 0.8)
			b.ReportAllocs()
			b.ResetTimer()
			took := decide(b, e, shapes, r, b.N)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
			b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns")
		})
	}
}

// BenchmarkFilter is what an extender's request with all node names costs.
func BenchmarkFilter(b *testing.B) {
	e, names, shapes, _ := bigCluster(b, "binpack", 5000, 0.5)
	verdicts, scores := make([]Verdict, 0, len(names)), make([]int64, 0, len(names))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		pod := &shapes[i%len(shapes)]
		var err error
		if verdicts, err = e.Filter(pod, names, verdicts[:0]); err != nil {
			b.Fatal(err)
		}
		if scores, err = e.Score(pod, names, scores[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGang places 64 pods of a card each and takes them back.
func BenchmarkGang(b *testing.B) {
	e, _, _, _ := bigCluster(b, "binpack", 1000, 0.5)
	g := &Gang{Key: "ns/g", PodSets: []PodSet{{Name: "s", Count: 64, Pod: Pod{Containers: []Container{{Name: "c", Cards: share(b, 100, 0)}}}}}}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		txn := e.Begin()
		if answer := txn.Place(g); !answer.Fits {
			b.Fatal(answer.Refusal)
		}
		txn.Rollback()
	}
}
