package admission

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has used: where other processes run too, the only fair clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fill makes the world of Kueue's performance harness: cohorts of queues that
// may borrow from each other, three sizes of workloads.
func fill(e *Engine, cohorts, queues int, nominal int64, pre Preemption) {
	e.Apply(FlavorChanged{Flavor{Name: "default"}})
	e.Apply(NamespaceChanged{Name: "default"})
	borrow := int64(100_000)
	for c := range cohorts {
		for q := range queues {
			name := fmt.Sprintf("c%d-q%d", c, q)
			e.Apply(QueueChanged{Queue{Name: name, Cohort: fmt.Sprintf("c%d", c), NamespaceSelector: &Term{}, Preemption: pre,
				Groups: []ResourceGroup{{Resources: []string{CPU}, Flavors: []FlavorQuotas{{Flavor: "default", Quotas: map[string]Quota{CPU: {Nominal: nominal, BorrowingLimit: &borrow}}}}}}}})
			e.Apply(LocalQueueChanged{LocalQueue{Key: Key{"default", name}, Queue: name}})
		}
	}
}

func benchWorkload(i int, queue string, cpu, prio int64) Workload {
	name := fmt.Sprintf("w%07d", i)
	return Workload{Key: Key{"default", name}, UID: name, LocalQueue: queue, Priority: prio, Created: time.Unix(int64(i), 0),
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{CPU: cpu}}}}
}

// drive admits and finishes until everything has run, and returns how many
// decisions and evictions that took.
func drive(b testing.TB, e *Engine, specs map[Key]*Workload) (decisions, admitted, evictions int) {
	at := time.Unix(1_000_000, 0)
	var running []Key
	for left := len(specs); left > 0; {
		p := e.Decide(at)
		decisions++
		at = at.Add(time.Second)
		admitted += len(p.Admit)
		evictions += len(p.Evict)
		for _, a := range p.Admit {
			w := specs[a.Workload]
			w.Admission = a.Admission
			e.Apply(WorkloadChanged{*w})
			running = append(running, a.Workload)
		}
		for _, v := range p.Evict {
			w := specs[v.Workload]
			w.Admission = nil
			e.Apply(WorkloadChanged{*w})
		}
		if len(running) == 0 { // those that ran before this began
			for _, k := range sortedKeys(specs) {
				if specs[k].Admission != nil {
					running = append(running, k)
				}
			}
		}
		n := max(1, len(running)/2)
		for _, k := range running[:min(n, len(running))] {
			if w := specs[k]; w != nil && w.Admission != nil {
				w.Finished = true
				e.Apply(WorkloadChanged{*w})
				delete(specs, k)
				left--
			}
		}
		running = running[min(n, len(running)):]
		if left > 0 && len(p.Admit) == 0 && len(p.Evict) == 0 && len(running) == 0 {
			b.Fatalf("stuck with %d left", left)
		}
	}
	return decisions, admitted, evictions
}

func benchDrive(b *testing.B, o Options, cohorts, queues, perQueue int, pre Preemption) {
	b.ReportAllocs()
	var admitted, evictions int
	var used time.Duration
	for range b.N {
		b.StopTimer()
		e := New(o)
		fill(e, cohorts, queues, 20_000, pre)
		specs := map[Key]*Workload{}
		i := 0
		sizes := []struct{ cpu, prio int64 }{{1000, 50}, {1000, 50}, {1000, 50}, {1000, 50}, {1000, 50}, {1000, 50}, {1000, 50}, {5000, 100}, {5000, 100}, {20000, 200}}
		for k := range perQueue {
			for c := range cohorts {
				for q := range queues {
					s := sizes[k%len(sizes)]
					w := benchWorkload(i, fmt.Sprintf("c%d-q%d", c, q), s.cpu, s.prio)
					specs[w.Key] = &w
					i++
				}
			}
		}
		keys := sortedKeys(specs)
		b.StartTimer()
		start := cpuTime()
		for _, k := range keys {
			e.Apply(WorkloadChanged{*specs[k]})
		}
		_, a, v := drive(b, e, specs)
		used += cpuTime() - start
		admitted += a
		evictions += v
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(admitted), "cpu-ns/admission")
	b.ReportMetric(float64(evictions)/float64(b.N), "evictions")
}

var reclaimAny = Preemption{WithinQueue: PreemptLowerPriority, ReclaimWithinCohort: PreemptAny}

func BenchmarkDecideBaseline(b *testing.B) { benchDrive(b, Options{}, 5, 6, 500, reclaimAny) }

func BenchmarkDecideLargeScale(b *testing.B) { benchDrive(b, Options{}, 10, 100, 50, reclaimAny) }

func BenchmarkDecideFairSharing(b *testing.B) {
	benchDrive(b, Options{Policy: PolicyDRF}, 5, 6, 500, reclaimAny)
}

// One release and one decision in a queue with many pending.
func BenchmarkDecidePending(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := New(Options{})
			fill(e, 1, 1, 10_000, Preemption{})
			for i := range n {
				e.Apply(WorkloadChanged{benchWorkload(i, "c0-q0", 1000+int64(i%1000), 0)})
			}
			at := time.Unix(1_000_000, 0)
			p := e.Decide(at)
			running := []Key{}
			for _, a := range p.Admit {
				running = append(running, a.Workload)
			}
			i := n
			b.ReportAllocs()
			b.ResetTimer()
			start, evals := cpuTime(), e.evals
			for range b.N {
				e.Apply(WorkloadGone{running[0]})
				running = running[1:]
				e.Apply(WorkloadChanged{benchWorkload(i, "c0-q0", 1000+int64(i%1000), 0)})
				i++
				for _, a := range e.Decide(at).Admit {
					running = append(running, a.Workload)
				}
			}
			b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(e.evals-evals)/float64(b.N), "evals/op")
		})
	}
}

// Low priorities fill the queues, then high ones come and preempt them.
func BenchmarkDecidePreemption(b *testing.B) {
	b.ReportAllocs()
	var admitted, evictions int
	var used time.Duration
	for range b.N {
		e := New(Options{})
		fill(e, 5, 6, 20_000, reclaimAny)
		specs := map[Key]*Workload{}
		i := 0
		add := func(n int, cpu, prio int64) {
			for range n {
				w := benchWorkload(i, fmt.Sprintf("c%d-q%d", i%5, i/5%6), cpu, prio)
				specs[w.Key] = &w
				e.Apply(WorkloadChanged{w})
				i++
			}
		}
		add(3_000, 1_000, 10)
		for _, a := range e.Decide(time.Unix(1, 0)).Admit {
			specs[a.Workload].Admission = a.Admission
			e.Apply(WorkloadChanged{*specs[a.Workload]})
		}
		start := cpuTime()
		add(600, 5_000, 100)
		_, a, v := drive(b, e, specs)
		used += cpuTime() - start
		admitted, evictions = admitted+a, evictions+v
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(admitted), "cpu-ns/admission")
	b.ReportMetric(float64(evictions)/float64(b.N), "evictions")
}

// The whole life of n pending workloads: arrive, be admitted, finish. What one
// costs should hardly depend on how many there are.
func BenchmarkDecideScaling(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			var used time.Duration
			for range b.N {
				e := New(Options{})
				fill(e, 5, 6, 20_000, reclaimAny)
				specs := make(map[Key]*Workload, n)
				start := cpuTime()
				for i := range n {
					w := benchWorkload(i, fmt.Sprintf("c%d-q%d", i%5, i/5%6), 1_000*int64(1+i%20), int64(i%3))
					specs[w.Key] = &w
					e.Apply(WorkloadChanged{w})
				}
				drive(b, e, specs)
				used += cpuTime() - start
			}
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N*n), "cpu-ns/workload")
		})
	}
}
