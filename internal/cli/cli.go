// Package cli is the command line of Elastic. Called as arena it is arena, and
// as kubectl-elastic a plugin of kubectl. Each group of commands is a package
// below; cluster connects them to one, and output prints.
//
// Words: docs/design/glossary.md.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/elastic-ai/elastic/internal/cli/cost"
	"github.com/elastic-ai/elastic/internal/cli/doctor"
	"github.com/elastic-ai/elastic/internal/cli/explain"
	"github.com/elastic-ai/elastic/internal/cli/gpu"
	"github.com/elastic-ai/elastic/internal/cli/job"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/internal/cli/migrate"
	"github.com/elastic-ai/elastic/internal/cli/queues"
	clisimulate "github.com/elastic-ai/elastic/internal/cli/simulate"
	"github.com/elastic-ai/elastic/internal/cli/uninstall"
	"github.com/elastic-ai/elastic/internal/cli/web"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/version"
)

// Main runs the command line and returns the exit code. The first of args is
// the name it was called by.
func Main(args []string, stdout, stderr io.Writer) int {
	kinds.SetRules(kinds.Recommended) // what a job would count with in a cluster that has our file
	log.SetLogger(logr.Discard())     // libraries' logs are for programs; commands print what people need
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	called, rest := filepath.Base(args[0]), args[1:]
	if called == "kubectl_complete-elastic" {
		// By this name kubectl asks what can follow "kubectl elastic".
		called, rest = "kubectl-elastic", append([]string{cobra.ShellCompRequestCmd}, rest...)
	}
	root := Root(called)
	root.SetArgs(rest)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return 130
		}
		fmt.Fprintln(stderr, root.Name()+":", err)
		if end := (*job.ExitError)(nil); errors.As(err, &end) {
			return end.Code
		}
		return 1
	}
	return 0
}

// Root is the command all others hang from, by the name it was called by.
func Root(called string) *cobra.Command {
	root := &cobra.Command{
		Use:   "elastic",
		Short: "The queue and the GPU sharing for AI teams on Kubernetes",
		Example: `  # Kubernetes with simulated GPU nodes and Elastic in it, on this machine
  elastic up --detach

  # A job, and what becomes of it
  elastic submit job --name train --image example.com/train:1 --gpus 1 --queue main "python train.py"
  elastic list
  elastic explain train`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: "jobs", Title: "Jobs:"},
		&cobra.Group{ID: "cluster", Title: "Queues and cards:"},
		&cobra.Group{ID: "local", Title: "A cluster on this machine:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add("jobs", job.Commands(explain.Plan)...)
	add("jobs", explain.Command(), explain.PlanCommand())
	add("cluster", queues.Commands()...)
	add("cluster", gpu.Command(), topCommand(), web.Command(), doctor.Command(), migrate.Command(), uninstall.Command())
	add("local", local.Commands(web.OfLocal)...)
	costs := cost.Command()
	costs.AddCommand(queues.SpentCommand())
	root.AddCommand(simulateCommand(), clisimulate.RecordCommand(), costs)
	switch called {
	case "arena":
		asArena(root)
	case "kubectl-elastic", "kubectl_elastic":
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl elastic"}
	}
	return root
}

// asArena gives the commands arena's name and the flags it has everywhere.
// Those that change nothing here are accepted, so that scripts go on working.
func asArena(root *cobra.Command) {
	root.Use, root.Short = "arena", "Submit, list and look after training jobs"
	root.Example = strings.ReplaceAll(root.Example, "elastic ", "arena ")
	flags := root.PersistentFlags()
	flags.String("config", "", "the same as --kubeconfig")
	flags.String("loglevel", "info", "")
	flags.String("arena-namespace", "", "")
	for _, name := range []string{"pprof", "trace", "helm-binary"} {
		flags.Bool(name, false, "")
	}
	for _, name := range []string{"config", "loglevel", "arena-namespace", "pprof", "trace", "helm-binary"} {
		_ = flags.MarkHidden(name)
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if config := cmd.Flags().Lookup("config"); config.Changed && cmd.Flags().Lookup("kubeconfig") != nil {
			return cmd.Flags().Set("kubeconfig", config.Value.String())
		}
		return nil
	}
}
