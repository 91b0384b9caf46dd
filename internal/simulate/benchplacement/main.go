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
	"strings"

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
	flag.Parse()
	if err := run(*traces, strings.Split(*variants, ","), strings.Split(*policies, ","), *seeds, *first, *decisions); err != nil {
		fmt.Fprintln(os.Stderr, "benchplacement:", err)
		os.Exit(1)
	}
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
