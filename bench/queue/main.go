package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"

	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	var s setup
	flag.StringVar(&s.bin, "bin", "../bin", "folder of Elastic's programs")
	flag.StringVar(&s.harness, "harness", "../bin/bench", "folder of the harness's programs")
	flag.StringVar(&s.crds, "crds", "../deploy/crd", "folder of the CRDs")
	flag.DurationVar(&s.timeout, "timeout", 30*time.Minute, "longest time for one run")
	scale := flag.Float64("scale", 0.1, "share of the baseline's 15,000 workloads")
	only := flag.String("only", "", "run one only: kueue, elastic, recommended, unlimited or floor")
	starting := flag.Int("start", 0, "measure a start beside this many waiting workloads, and nothing else")
	explaining := flag.Int("explain", 0, "measure 'elastic explain' beside this many waiting jobs, and nothing else")
	noise := flag.Int("noisy", 0, "measure one tenant's waits beside this many workloads of another, and nothing else")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := s.locate()
	switch {
	case err != nil:
	case *starting > 0:
		err = benchStart(ctx, s, *starting)
	case *noise > 0:
		err = benchNoisy(ctx, s, *noise)
	case *explaining > 0:
		err = benchExplain(ctx, s, *explaining)
	default:
		err = bench(ctx, s, *scale, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-queue:", err)
		os.Exit(1)
	}
}

// locate makes the folders' names good from anywhere.
func (s *setup) locate() error {
	var err error
	for _, folder := range []*string{&s.bin, &s.harness, &s.crds} {
		if *folder, err = filepath.Abs(*folder); err != nil {
			return err
		}
	}
	return nil
}

// The limit that minimalkueue has built in.
const qps, burst = 50, 100

func bench(ctx context.Context, s setup, scale float64, only string) error {
	work, err := os.CreateTemp("", "bench-queue-*.yaml")
	if err != nil {
		return err
	}
	_ = work.Close()
	defer func() { _ = os.Remove(work.Name()) }()
	s.work = work.Name()
	total, err := writeWork(s.work, scale)
	if err != nil {
		return err
	}
	fmt.Printf("%d workloads in %d queues of %d cohorts\n", total, cohorts*queues, cohorts)
	sides := []struct {
		name    string
		program func(dir, kubeconfig, metrics string) (*process, error)
	}{
		{"kueue", s.kueue},
		{"elastic", s.elastic(qps, burst)},
		{"recommended", s.recommended(qps, burst)},
		{"unlimited", s.elastic(-1, 0)},
	}
	results := map[string]outcome{}
	for _, side := range sides {
		if only != "" && only != side.name {
			continue
		}
		out, err := s.run(ctx, side.name, side.program)
		if err != nil {
			return err
		}
		if out.admitted != total {
			return fmt.Errorf("%s: the runner saw %d workloads of %d", side.name, out.admitted, total)
		}
		print(out)
		results[side.name] = out
	}
	if only != "" && only != "floor" {
		return nil
	}
	floor, err := s.floor(ctx, scale)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	machine := floor.wall.Seconds() * float64(runtime.NumCPU())
	fmt.Printf("%-11s wall %6.1f s, API server %6.1f s: three writes for each workload and nothing else; of %d cores: control plane %.0f %%, client %.0f %%\n",
		floor.name, floor.wall.Seconds(), floor.apiCPU.Seconds(), runtime.NumCPU(),
		100*floor.apiCPU.Seconds()/machine, 100*floor.runnerCPU.Seconds()/machine)
	if only == "" {
		figures(results["kueue"], results["elastic"], results["recommended"], results["unlimited"], floor)
	}
	return nil
}

func print(o outcome) {
	var waits []string
	for _, c := range baseline {
		waits = append(waits, fmt.Sprintf("%s %.1f s", c.name, o.wait[c.name].Seconds()))
	}
	fmt.Printf("%-11s wall %6.1f s, cpu %6.1f s, API server %6.1f s, %4d MiB, %5d evictions, %.2f writes and %.2f events per workload, mean wait %s\n",
		o.name, o.wall.Seconds(), o.cpu.Seconds(), o.apiCPU.Seconds(), o.memory, o.evictions,
		o.perAdmission(o.writes), o.perAdmission(o.events), strings.Join(waits, ", "))
	machine := o.wall.Seconds() * float64(runtime.NumCPU())
	fmt.Printf("%-11s of %d cores in that time: control plane %.0f %%, %s %.0f %%, runner %.0f %%\n", "", runtime.NumCPU(),
		100*o.apiCPU.Seconds()/machine, o.name, 100*o.cpu.Seconds()/machine, 100*o.runnerCPU.Seconds()/machine)
}

// figures compares; a ratio is Kueue's cost over ours.
func figures(kueue, elastic, recommended, unlimited, floor outcome) {
	figure := func(name string, value float64, unit string) { fmt.Printf("figure %s %.2f %s\n", name, value, unit) }
	figure("queue_cpu_ratio", kueue.cpu.Seconds()/elastic.cpu.Seconds(), "x")
	figure("queue_wall_ratio", kueue.wall.Seconds()/elastic.wall.Seconds(), "x")
	figure("queue_cpu_ratio_recommended", kueue.cpu.Seconds()/recommended.cpu.Seconds(), "x")
	figure("queue_wall_ratio_recommended", kueue.wall.Seconds()/recommended.wall.Seconds(), "x")
	figure("queue_wall_ratio_unlimited", kueue.wall.Seconds()/unlimited.wall.Seconds(), "x")
	figure("queue_floor_seconds", floor.wall.Seconds(), "s")
	figure("queue_over_floor", unlimited.wall.Seconds()/floor.wall.Seconds(), "x")
	figure("queue_api_cpu_ratio", kueue.apiCPU.Seconds()/elastic.apiCPU.Seconds(), "x")
	figure("queue_writes_per_admission", elastic.perAdmission(elastic.writes+elastic.events), "writes")
	figure("queue_events_per_admission", elastic.perAdmission(elastic.events), "events")
	figure("queue_evictions_ratio", float64(kueue.evictions)/max(1, float64(elastic.evictions)), "x")
}
