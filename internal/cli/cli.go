// Package cli is the command line of Elastic.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/gpu"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/internal/version"
)

// Main runs the command line and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := Root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "elastic:", err)
		return 1
	}
	return 0
}

// Root is the command all others hang from.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "elastic",
		Short: "The queue and the GPU sharing for AI teams on Kubernetes",
		Example: `  # Kubernetes with simulated GPU nodes and Elastic in it, on this machine
  elastic up --detach

  # What is there
  elastic status
  elastic kubectl get clusterqueues`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(local.Commands()...)
	root.AddCommand(gpu.Command(), simulateCommand())
	return root
}
