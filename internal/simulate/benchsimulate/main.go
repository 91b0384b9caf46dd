// Command benchsimulate prints the simulator's figures: whether it reproduces published results to the second, what
// policies and borrowing reach on traces, how fast it is, and apart from that what machines of clouds cost. It fails where a
// goal is missed.
//
// Words: docs/design/glossary.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

var ctx = context.Background()

func main() {
	traces := flag.String("traces", "../shared/data/traces", "folder with the traces of jobs")
	clouds := flag.String("clouds", "../shared/data/cloud", "folder with prices of clouds and when spot machines could be had")
	only := flag.String("only", "", "run one part alone: published, policies, backfill, borrowing, speed, or cost, which is not run otherwise")
	jobs := flag.Int("jobs", 1_000_000, "jobs of the run that is timed")
	bar := flag.Float64("bar", 0, "fail where a million jobs take more seconds of processor time than this; 0 fails nowhere")
	load := flag.Float64("load", 0.95, "part of the cards that they ask for")
	flag.Parse()
	var errs []error
	for _, part := range []struct {
		name  string
		apart bool // only where it is asked for
		run   func() error
	}{
		{name: "published", run: func() error { return published(*traces) }},
		{name: "policies", run: func() error { return policies(*traces) }},
		{name: "backfill", run: func() error { return backfill(*traces) }},
		{name: "borrowing", run: func() error { return borrowing(*traces) }},
		{name: "speed", run: func() error { return speed(*jobs, *load, *bar) }},
		{name: "cost", apart: true, run: func() error { return money(*clouds) }},
	} {
		if *only == "" && !part.apart || *only == part.name {
			errs = append(errs, part.run())
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "benchsimulate:", err)
		os.Exit(1)
	}
}

// exact are averages that the Helios artifact publishes for virtual clusters of Philly (Hu et al., SC '21): completion
// time and queueing delay in seconds, cut off.
var exact = []struct {
	queue      string
	rule       string
	jct, delay int64
}{
	{"2869ce", "fifo", 70_215, 21_171},
	{"2869ce", "sjf", 56_388, 7_344},
	{"7f04ca", "fifo", 133_826, 1_412},
	{"7f04ca", "sjf", 133_271, 857},
	{"ee9e8c", "sjf", 130_493, 14_619},
	{"0e4a51", "sjf", 168_747, 36_682},
}

// published replays virtual clusters under the artifact's rules.
func published(traces string) error {
	trace, cluster, err := philly(traces, "philly-oct-nov-2017-exact4.csv")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range exact {
		part := trace.Only(e.queue)
		if e.rule == "sjf" {
			part.ShortestFirst()
		}
		r, err := run(part, cluster.Helios(), world.Settings{})
		if err != nil {
			return err
		}
		fmt.Printf("figure jct_%s_%s %d s\n", e.queue, e.rule, int64(r.JCT.Mean))
		fmt.Printf("figure delay_%s_%s %d s\n", e.queue, e.rule, int64(r.Delay.Mean))
		if int64(r.JCT.Mean) != e.jct || int64(r.Delay.Mean) != e.delay {
			errs = append(errs, fmt.Errorf("%s under %s: %d / %d s, published %d / %d", e.queue, e.rule, int64(r.JCT.Mean), int64(r.Delay.Mean), e.jct, e.delay))
		}
	}
	return errors.Join(errs...)
}

// philly is a trace with its published shape, each queue alone.
func philly(traces, file string) (*world.Trace, *world.Cluster, error) {
	trace, err := world.ReadTraceFile(filepath.Join(traces, file))
	if err != nil {
		return nil, nil, err
	}
	shares, err := world.ReadShape(filepath.Join(traces, "philly-queues.csv"), "")
	if err != nil {
		return nil, nil, err
	}
	return trace, world.Partitions(shares), nil
}

func run(t *world.Trace, c *world.Cluster, s world.Settings) (*world.Report, error) {
	w, err := world.New(t, c, s)
	if err != nil {
		return nil, err
	}
	return w.Run(ctx)
}
