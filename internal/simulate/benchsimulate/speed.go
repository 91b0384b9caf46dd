package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// speed times a trace of invented jobs on 10,000 cards with the default policies, on one core, and measures what a
// waiting job takes of memory. Only where it is asked for it holds the time against a bar: on a busy machine processor time grows, too.
func speed(jobs int, load, bar float64) error {
	runtime.GOMAXPROCS(1)
	world.CollectSeldom()
	if path := os.Getenv("CPUPROFILE"); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var shares []world.Share
	for i := range 10 {
		shares = append(shares, world.Share{Queue: fmt.Sprintf("team-%d", i), Nodes: 125, Cards: 8})
	}
	trace := invented(jobs, 10_000, 10, load)
	start, used := time.Now(), cpuTime()
	happened := digest{fnv.New64a(), nil}
	r, err := run(trace, world.Pool(shares), world.Settings{Watch: happened.add})
	if err != nil {
		return err
	}
	took, perMillion := time.Since(start), (cpuTime()-used).Seconds()*1e6/float64(jobs)
	fmt.Printf("digest of all that happened: %x\n", happened.Sum64())
	fmt.Printf("figure simulated_jobs %d jobs\n", r.Ended)
	fmt.Printf("figure simulation_time %.1f s\n", took.Seconds())
	fmt.Printf("figure simulated_jobs_per_second %.0f jobs/s\n", float64(r.Ended)/took.Seconds())
	fmt.Printf("figure simulation_cpu_time %.1f s\n", (cpuTime() - used).Seconds())
	fmt.Printf("figure simulation_cpu_time_per_job %.1f us\n", (cpuTime()-used).Seconds()*1e6/float64(r.Ended))
	fmt.Printf("figure simulation_cpu_time_of_a_million_jobs %.1f s\n", perMillion)
	fmt.Printf("figure simulated_jobs_per_cpu_second %.0f jobs/s\n", float64(r.Ended)/(cpuTime()-used).Seconds())
	fmt.Printf("figure simulated_cards_used %.1f %%\n", 100*r.CardsUsed)
	return errors.Join(tooSlow(perMillion, bar), memory(min(jobs, 200_000), shares))
}

// tooSlow holds the processor time of a million jobs against a bar; 0: there is none.
func tooSlow(seconds, bar float64) error {
	if bar <= 0 {
		return nil
	}
	fmt.Printf("figure simulation_cpu_time_bar %.1f s\n", bar)
	if seconds <= bar {
		return nil
	}
	return fmt.Errorf("a million jobs take %.1f s of processor time: want %.1f or less", seconds, bar)
}

// digest of all that happened: a change that is to change no decision leaves it as it is.
type digest struct {
	hash.Hash64
	line []byte
}

func (d *digest) add(m world.Moment) {
	d.line = binary.AppendVarint(d.line[:0], m.At)
	d.line = binary.AppendVarint(d.line, int64(m.Job))
	d.line = binary.AppendVarint(d.line, int64(m.By))
	d.line = append(d.line, byte(m.What))
	for i := range m.Nodes {
		n := &m.Nodes[i]
		d.line = append(d.line, n.Node...)
		d.line = append(append(d.line, 0), n.PodSet...)
		d.line = binary.AppendVarint(append(d.line, 0), int64(n.Pods))
		for _, card := range n.Cards {
			d.line = binary.AppendVarint(d.line, int64(card))
		}
	}
	_, _ = d.Write(d.line) // a hash returns no error
}

// mostBytes is what a waiting job may take of memory.
const mostBytes = 2048

// memory of a waiting job, and of one where four times as many wait: it is linear.
func memory(jobs int, shares []world.Share) error {
	var errs []error
	for _, n := range []int{jobs / 4, jobs} {
		bytes, err := memoryOf(n, shares)
		if err != nil {
			return err
		}
		name := "simulated_bytes_per_waiting_job"
		if n < jobs {
			name += "_of_a_quarter"
		}
		fmt.Printf("figure %s %.0f B\n", name, bytes)
		errs = append(errs, tooMuch(bytes, n))
	}
	return errors.Join(errs...)
}

func tooMuch(bytes float64, jobs int) error {
	if bytes < mostBytes {
		return nil
	}
	return fmt.Errorf("a waiting job takes %.0f B where %d jobs wait: want less than %d", bytes, jobs, mostBytes)
}

// memoryOf a waiting job in a cluster in which jobs run on every card and all others wait: all that is there for it, its line of
// the trace, too. What the nodes and the jobs that run take is in a world in which hardly anybody waits.
func memoryOf(jobs int, shares []world.Share) (float64, error) {
	few, running, err := memoryWith(min(jobs/2, 4000), shares)
	if err != nil {
		return 0, err
	}
	all, waiting, err := memoryWith(jobs, shares)
	return (all - few) / float64(waiting-running), err
}

// memoryWith so many jobs: how much a world takes with its trace, and how many wait in it.
func memoryWith(jobs int, shares []world.Share) (bytes float64, waiting int, err error) {
	before := heap()
	trace := &world.Trace{Name: "waiting"}
	for i := range jobs {
		trace.Jobs = append(trace.Jobs, world.Job{ID: fmt.Sprint(i), Queue: shares[i%len(shares)].Queue, Duration: 1_000_000, Cards: 1 << (i % 4)})
	}
	w, err := world.New(trace, world.Pool(shares), world.Settings{Until: 1})
	if err != nil {
		return 0, 0, err
	}
	if _, err := w.Run(ctx); err != nil {
		return 0, 0, err
	}
	grown := float64(heap()) - float64(before)
	runtime.KeepAlive(trace)
	return grown, w.Waiting(), nil
}

// cpuTime that this process has used: beside others on the same cores, time alone says little.
func cpuTime() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// invented jobs: sizes as in published traces of GPU clusters, run times from seconds to days, arrivals at random so
// that they ask for this part of the cards.
func invented(jobs, cards, queues int, load float64) *world.Trace {
	r := rand.New(rand.NewPCG(22, 1))
	sizes := []int32{1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32}
	trace := &world.Trace{Name: "invented", Jobs: make([]world.Job, jobs)}
	var work float64
	for i := range trace.Jobs {
		j := &trace.Jobs[i]
		j.ID, j.Queue = fmt.Sprintf("job-%07d", i), fmt.Sprintf("team-%d", r.IntN(queues))
		j.Cards = sizes[r.IntN(len(sizes))]
		j.Duration = 10 + int64(math.Min(math.Exp(6.5+2*r.NormFloat64()), 14*86400))
		work += float64(j.Duration) * float64(j.Cards)
	}
	gap := work / load / float64(cards) / float64(jobs)
	at := 0.0
	for i := range trace.Jobs {
		at += gap * r.ExpFloat64()
		trace.Jobs[i].Submit = int64(at)
	}
	return trace
}
