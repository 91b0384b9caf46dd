package cli

import (
	"errors"

	"github.com/spf13/cobra"

	clisimulate "github.com/elastic-ai/elastic/internal/cli/simulate"
	"github.com/elastic-ai/elastic/internal/simulate"
)

// simulateCommand drives the engines from traces.
func simulateCommand() *cobra.Command {
	cmd := clisimulate.Command()
	cmd.AddCommand(simulatePlacementCommand(), simulateReplayCommand())
	return cmd
}

func simulatePlacementCommand() *cobra.Command {
	var options simulate.PlacementOptions
	var output, plot string
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Compare placement policies on a trace of pods that arrive and stay",
		Long: `Compare placement policies: pods of a trace arrive in random order until they ask
for more than the cluster has, and what is left unallocated is measured. The
traces are in the format of cluster-trace-gpu-v2023.`,
		Example: `  elastic simulate placement --nodes nodes.csv --pods pods.csv --policy fragmentation,fgd,binpack --seeds 10
  elastic simulate placement --nodes nodes.csv --pods pods.csv -o json --plot unallocated.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needTrace(options); err != nil {
				return err
			}
			return simulate.WritePlacement(cmd.OutOrStdout(), options, output, plot)
		},
	}
	addTrace(cmd, &options, &output)
	cmd.Flags().IntVar(&options.Seeds, "seeds", 10, "how many random streams to average over")
	cmd.Flags().Int64Var(&options.FirstSeed, "first-seed", 42, "seed of the first stream")
	cmd.Flags().StringVar(&plot, "plot", "", "also draw the curves into this SVG file")
	return cmd
}

func simulateReplayCommand() *cobra.Command {
	var options simulate.PlacementOptions
	var output string
	cmd := &cobra.Command{
		Use:     "replay",
		Short:   "Replay a trace in its own time, with departures and waiting",
		Example: "  elastic simulate replay --nodes nodes.csv --pods pods.csv --policy fragmentation,binpack",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needTrace(options); err != nil {
				return err
			}
			return simulate.WriteReplay(cmd.OutOrStdout(), options, output)
		},
	}
	addTrace(cmd, &options, &output)
	return cmd
}

func addTrace(cmd *cobra.Command, options *simulate.PlacementOptions, output *string) {
	cmd.Flags().StringVar(&options.Nodes, "nodes", "", "CSV file of nodes (required)")
	cmd.Flags().StringVar(&options.Pods, "pods", "", "CSV file of pods (required)")
	cmd.Flags().StringSliceVar(&options.Policies, "policy", []string{"fragmentation"}, "policies to compare, comma between")
	cmd.Flags().StringVarP(output, "output", "o", "table", "table or json")
}

func needTrace(options simulate.PlacementOptions) error {
	if options.Nodes == "" || options.Pods == "" {
		return errors.New("give --nodes and --pods: CSV files as cluster-trace-gpu-v2023 has them")
	}
	return nil
}
