package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

func main() {
	var (
		only    = flag.String("case", "", "run this case only: baseline, longer, largescale, preemption, fairsharing, fairoverload or scaling")
		rounds  = flag.Int("rounds", 3, "times the sides run a case in turn, and a backlog is worked off; the median counts")
		docs    = flag.String("docs", "", "folder to write the tables and the plot into")
		profile = flag.String("cpuprofile", "", "file to write a CPU profile to")
		largest = flag.Int("largest", 1_000_000, "largest backlog of the scaling case")
		sides   = flag.String("side", "both", "elastic, kueue or both; a ratio needs both")
		bar     = flag.Float64("bar", 0, "fail if the ratio of a case without policies is below this; only on a machine that does nothing else")
	)
	flag.Parse()
	if *docs != "" && *sides != "both" {
		fmt.Fprintln(os.Stderr, "bench: -docs needs both sides")
		os.Exit(2)
	}
	if *bar > 0 && *sides != "both" {
		fmt.Fprintln(os.Stderr, "bench: -bar needs both sides")
		os.Exit(2)
	}
	if err := run(*only, *sides, *rounds, *largest, *docs, *profile, *bar); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only, sides string, rounds, largest int, docs, profile string, bar float64) (err error) {
	// One thread of Go code: what runs in the background, garbage collection first of
	// all, is in the measured time and not beside it.
	runtime.GOMAXPROCS(1)
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	var results []result
	for _, generate := range []func() *work{baseline, longer, largeScale, preemptionHeavy, fairSharing, fairOverload} {
		w := generate()
		if only != "" && only != w.name {
			continue
		}
		r, err := compare(w, sides, rounds)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	var scaling []series
	if only == "" || only == "scaling" {
		if scaling, err = scale(largest, rounds); err != nil {
			return err
		}
	}
	if docs != "" {
		if err := writeDocs(docs, results, scaling); err != nil {
			return err
		}
	}
	if slow := belowBar(results, bar); len(slow) > 0 {
		return fmt.Errorf("below the bar of %.0f x: %s", bar, strings.Join(slow, ", "))
	}
	return nil
}

// belowBar prints a line for each case, and returns those whose ratio without policies is below the bar.
func belowBar(results []result, bar float64) (slow []string) {
	for i := range results {
		r := &results[i]
		if bar <= 0 {
			continue
		}
		word := "holds"
		if r.cpuRatio < bar {
			word, slow = "broken", append(slow, r.w.name)
		}
		fmt.Printf("bar admission_ratio_%s %.1f of %.0f %s\n", r.w.name, r.cpuRatio, bar, word)
	}
	return slow
}

// run1 is one side's measured run of a case.
type run1 struct {
	outcome
	cost   cost // the engine's alone
	writes cost // Kueue's admission writes, not in cost
}

type result struct {
	w                     *work
	ours, asked, kueue    run1
	every                 run1
	cpuRatio, allocsRatio float64
}

func perAdmission(r run1) (micros, allocs float64) {
	n := float64(r.admissions)
	return float64(r.cost.cpu.Nanoseconds()) / 1000 / n, float64(r.cost.allocs) / n
}

// enough: Kueue does not run a case again once it has used this much CPU time on it.
const enough = 30 * time.Second

// compare lets the sides take turns on a case and prints its figures.
func compare(w *work, sides string, rounds int) (result, error) {
	var ours, asked, every, theirs []run1 // asked and every: ours, with policies
	var used time.Duration
	for range rounds {
		if sides != "kueue" {
			for asks, side := range []*[]run1{nothing: &ours, policies: &asked, everyPolicy: &every} {
				r, err := runOurs(w, asking(asks))
				if err != nil {
					return result{}, err
				}
				*side = append(*side, r)
			}
		}
		if sides != "elastic" && used < enough {
			r, err := runKueue(w)
			if err != nil {
				return result{}, err
			}
			theirs = append(theirs, r)
			used += r.cost.cpu
		}
	}
	r := result{w: w, ours: median(ours), asked: median(asked), every: median(every), kueue: median(theirs)}
	if sides != "kueue" {
		printRun(w, "elastic", r.ours)
		printRun(w, "policies", r.asked)
		printRun(w, "every_policy", r.every)
	}
	if sides != "elastic" {
		printRun(w, "kueue", r.kueue)
	}
	if sides == "both" {
		c1, a1 := perAdmission(r.ours)
		c2, a2 := perAdmission(r.kueue)
		r.cpuRatio, r.allocsRatio = c2/c1, a2/a1
		fmt.Printf("figure admission_ratio_%s %.1f x\n", w.name, r.cpuRatio)
		c3, _ := perAdmission(r.asked)
		fmt.Printf("figure admission_ratio_with_policies_%s %.1f x\n", w.name, c2/c3)
		c4, _ := perAdmission(r.every)
		fmt.Printf("figure admission_ratio_with_every_policy_%s %.1f x\n", w.name, c2/c4)
		fmt.Printf("figure admission_allocs_ratio_%s %.1f x\n", w.name, r.allocsRatio)
		fmt.Printf("figure admission_workload_ratio_%s %.1f x\n", w.name, float64(r.kueue.cost.cpu)/float64(r.ours.cost.cpu))
		fmt.Printf("figure admission_evictions_%s %d elastic, %d kueue\n", w.name, r.ours.evictions, r.kueue.evictions)
	}
	return r, nil
}

func printRun(w *work, side string, r run1) {
	micros, allocs := perAdmission(r)
	fmt.Printf("figure admission_cpu_%s_%s %.2f us/admission\n", w.name, side, micros)
	fmt.Printf("figure admission_allocs_%s_%s %.1f objects/admission\n", w.name, side, allocs)
	fmt.Printf("# %s %s: %d workloads in %d queues, %d admissions, %d evictions, %d decisions, %d early, all done after %.1f s of virtual time, %.2f s of CPU",
		w.name, side, len(w.jobs), len(w.queues), r.admissions, r.evictions, r.decisions, r.early, float64(r.ended)/1000, r.cost.cpu.Seconds())
	if r.writes.cpu > 0 {
		fmt.Printf(" and %.2f s for its admission writes, not counted", r.writes.cpu.Seconds())
	}
	fmt.Println()
}

func median(runs []run1) run1 {
	if len(runs) == 0 {
		return run1{}
	}
	slices.SortFunc(runs, func(a, b run1) int { return int(a.cost.cpu - b.cost.cpu) })
	return runs[len(runs)/2]
}
