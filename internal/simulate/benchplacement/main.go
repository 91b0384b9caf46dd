// Command benchplacement prints the figures of placement: what policies leave unallocated on the
// openb traces, and how long one decision takes on 5,000 nodes of 8 cards.
//
// Words: docs/design/glossary.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/simulate"
)

func main() {
	traces := flag.String("traces", "../shared/data/openb", "folder with the openb node and pod lists")
	variants := flag.String("variants", "default,gpushare40,multigpu20,gpuspec10,cpu050", "pod lists to run")
	policies := flag.String("policies", placement.DefaultPolicy+",fgd", "policies to run, the first is ours")
	seeds := flag.Int("seeds", 10, "streams")
	first := flag.Int64("first-seed", 42, "seed of the first stream")
	decisions := flag.Int("decisions", 5000, "decisions to time; 0 for none")
	fragmented := flag.String("defragmentation", "", "instead, print how often 8 cards of a node are to be had with these many moves at most, as in 0,1,2,4")
	load := flag.Int("load", 100, "demand for cards in percent of what there is, for -defragmentation")
	rounds := flag.Int("rounds", 3, "how often the trace is run, for -defragmentation")
	part := flag.Int("nodes", 10, "percent of the nodes, for -defragmentation")
	lost := flag.Duration("lost-work", 2*time.Hour, "work that moves may lose, for -defragmentation")
	flag.Parse()
	if *fragmented != "" {
		if err := defragmentation(*traces, *variants, *fragmented, *part, simulate.FragmentationOptions{
			Policy: strings.Split(*policies, ",")[0], Cards: 8, Every: 900, Load: *load, Rounds: *rounds, LostWork: int64(lost.Seconds()),
		}); err != nil {
			fmt.Fprintln(os.Stderr, "benchplacement:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*traces, strings.Split(*variants, ","), strings.Split(*policies, ","), *seeds, *first, *decisions); err != nil {
		fmt.Fprintln(os.Stderr, "benchplacement:", err)
		os.Exit(1)
	}
}

// defragmentation prints, for the first policy, how often a pod of 8 cards fits while each trace runs in its own time.
func defragmentation(traces, variants, moves string, percent int, options simulate.FragmentationOptions) error {
	for _, text := range strings.Split(moves, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		options.Moves = append(options.Moves, n)
	}
	nodes, err := simulate.ReadNodes(filepath.Join(traces, "openb_node_list_gpu_node.csv"))
	if err != nil {
		return err
	}
	some := nodes[:0]
	for i := range nodes { // spread over the list, which is sorted by kind
		if (i+1)*percent/100 > i*percent/100 {
			some = append(some, nodes[i])
		}
	}
	for _, variant := range strings.Split(variants, ",") {
		pods, err := simulate.ReadPods(filepath.Join(traces, "openb_pod_list_"+variant+".csv"))
		if err != nil {
			return err
		}
		list, err := simulate.Fragmentation(some, pods, options)
		if err != nil {
			return err
		}
		fmt.Println(variant, "on", len(some), "nodes")
		if err := simulate.WriteFragmentation(os.Stdout, list); err != nil {
			return err
		}
	}
	return nil
}

func run(traces string, variants, policies []string, seeds int, first int64, decisions int) error {
	for _, variant := range variants {
		runs, err := simulate.Placement(simulate.PlacementOptions{
			Nodes:    filepath.Join(traces, "openb_node_list_gpu_node.csv"),
			Pods:     filepath.Join(traces, "openb_pod_list_"+variant+".csv"),
			Policies: policies, Seeds: seeds, FirstSeed: first, Ratio: 1.3,
		})
		if err != nil {
			return err
		}
		for i, r := range simulate.Summarize(runs) {
			suffix := ""
			if i > 0 {
				suffix = "_" + r.Policy
			}
			fmt.Printf("figure openb_%s_unallocated%s %.2f %%\n", variant, suffix, 100*r.At100)
			fmt.Printf("figure openb_%s_unallocated_at_end%s %.2f %%\n", variant, suffix, 100*r.AtEnd)
			fmt.Printf("figure openb_%s_run%s %.2f s\n", variant, suffix, r.Seconds)
		}
	}
	if decisions == 0 {
		return nil
	}
	took, err := simulate.Decisions(policies[0], 5000, 8, 0.8, decisions)
	if err != nil {
		return err
	}
	fmt.Printf("figure placement_decision_p50 %.3f ms\n", took.At(0.5).Seconds()*1000)
	fmt.Printf("figure placement_decision_p99 %.3f ms\n", took.At(0.99).Seconds()*1000)
	return nil
}
