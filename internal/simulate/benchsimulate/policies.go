package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// restart is what a preemption costs, as in the replay that policies are compared by.
var restart = world.Restart{OneNode: 40, ManyNodes: 60}

// replays are traces on which policies are compared: each queue alone, no borrowing.
var replays = []struct {
	name, trace, shape, nodes string
}{
	{name: "philly4", trace: "philly-oct-nov-2017-exact4.csv", shape: "philly-queues.csv"},
	{name: "muri1", trace: "muri-trace1.csv", shape: "muri-queues.csv"},
	{name: "muri3", trace: "muri-trace3.csv", shape: "muri-queues.csv"},
	{name: "itp", trace: "itp-2021.csv", shape: "itp-queues.csv", nodes: "nodes_tight"},
	{name: "philly11", trace: "philly-oct-nov-2017.csv", shape: "philly-queues.csv"},
}

// policies that know no run times, against the strict queue.
func policies(traces string) error {
	var errs []error
	for _, replay := range replays {
		trace, err := world.ReadTraceFile(filepath.Join(traces, replay.trace))
		if err != nil {
			return err
		}
		shares, err := world.ReadShape(filepath.Join(traces, replay.shape), replay.nodes)
		if err != nil {
			return err
		}
		cluster := world.Partitions(shares)
		cluster.Placement = "binpack"
		fifo, err := policy(replay.name, "fifo", trace, cluster.Helios(), nil)
		if err != nil {
			return err
		}
		if _, err := policy(replay.name, "besteffort", trace, cluster, fifo); err != nil {
			return err
		}
		las, err := policy(replay.name, "las", trace, cluster.LeastAttainedService(), fifo)
		if err != nil {
			return err
		}
		if replay.name == "philly4" {
			shipped, err := policy(replay.name, "las_default_placement", trace, world.Partitions(shares).LeastAttainedService(), fifo)
			if err != nil {
				return err
			}
			errs = append(errs, goal("least attained service", las), goal("least attained service with the default placement", shipped))
		}
	}
	return errors.Join(errs...)
}

func policy(trace, name string, t *world.Trace, c *world.Cluster, fifo *world.Report) (*world.Report, error) {
	start := time.Now()
	r, err := run(t, c, world.Settings{Restart: restart})
	if err != nil {
		return nil, err
	}
	fmt.Printf("figure jct_%s_%s %.2f h\n", trace, name, r.JCT.Mean/3600)
	fmt.Printf("figure delay_%s_%s %.2f h\n", trace, name, r.Delay.Mean/3600)
	fmt.Printf("figure delay_p999_%s_%s %.1f h\n", trace, name, r.Delay.P999/3600)
	fmt.Printf("figure preemptions_per_job_%s_%s %.3f\n", trace, name, float64(r.Preemptions)/float64(r.Jobs))
	if fifo != nil {
		fmt.Printf("figure jct_ratio_%s_%s %.3f of fifo\n", trace, name, r.JCT.Mean/fifo.JCT.Mean)
	}
	fmt.Printf("figure replay_%s_%s %.1f s\n", trace, name, time.Since(start).Seconds())
	return r, nil
}

// goal of an order that knows no run times, on the four queues whose jobs are known exactly: SJF's mean with an oracle,
// FIFO's worst delays, and a third of a preemption a job.
func goal(name string, r *world.Report) error {
	if jct, worst, per := r.JCT.Mean/3600, r.Delay.P999/3600, float64(r.Preemptions)/float64(r.Jobs); jct > 37.3 || worst > 174 || per > 0.35 {
		return fmt.Errorf("%s on philly4: mean %.2f h (at most 37.3), p99.9 delay %.1f h (174), %.3f preemptions a job (0.35)", name, jct, worst, per)
	}
	return nil
}

// borrowing compares queues that each have their own nodes with the same queues in one cohort, on three quarters of the
// published nodes. It is another experiment than the replays above: nobody may be worse off than alone.
func borrowing(traces string) error {
	trace, err := world.ReadTraceFile(filepath.Join(traces, "philly-oct-nov-2017.csv"))
	if err != nil {
		return err
	}
	shares, err := world.ReadShape(filepath.Join(traces, "philly-queues-tight.csv"), "")
	if err != nil {
		return err
	}
	alone, err := policy("tight", "alone", trace, world.Partitions(shares), nil)
	if err != nil {
		return err
	}
	together, err := policy("tight", "borrowing", trace, world.Pool(shares), nil)
	if err != nil {
		return err
	}
	var errs []error
	borrowed := 0.0
	for i, g := range together.ByQueue {
		borrowed += g.Borrowed
		errs = append(errs, worse(&g, &alone.ByQueue[i]))
	}
	fmt.Printf("figure borrowed_tight %.1f %%\n", 100*borrowed/together.CardHours)
	return errors.Join(errs...)
}

// worse says in what a queue is worse off than alone.
func worse(g, was *world.Group) error {
	var errs []error
	for _, figure := range []struct {
		name         string
		borrows, was float64
	}{{"completion time", g.JCT.Mean, was.JCT.Mean}, {"delay", g.Delay.Mean, was.Delay.Mean}, {"p99 delay", g.Delay.P99, was.Delay.P99}} {
		if figure.borrows > figure.was {
			errs = append(errs, fmt.Errorf("queue %s is worse off with borrowing: %s %.2f h, alone %.2f h", g.Name, figure.name, figure.borrows/3600, figure.was/3600))
		}
	}
	return errors.Join(errs...)
}
