package job

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// planner reports whether jobs would start.
type planner = func(cmd *cobra.Command, c *cluster.Client, printer *output.Printer, objects []*unstructured.Unstructured) error

// Commands are the commands for jobs.
func Commands(plan planner) []*cobra.Command {
	var list []*cobra.Command
	for _, make := range []func(*cluster.Flags) *cobra.Command{
		func(f *cluster.Flags) *cobra.Command { return submitCommand(f, plan) },
		runCommand, listCommand, getCommand, logsCommand, attachCommand, deleteCommand, suspendCommand, resumeCommand, waitCommand, pruneCommand,
		cronCommand, dataCommand, scaleInCommand, scaleOutCommand,
	} {
		flags := &cluster.Flags{}
		cmd := make(flags)
		flags.AddTo(cmd)
		list = append(list, cmd)
	}
	return list
}

// AddType adds the flag that chooses between jobs of one name.
func AddType(cmd *cobra.Command, typed *string) {
	cmd.Flags().StringVarP(typed, "type", "T", "", "type of the job, as in tfjob, where several have one name")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(formNames(), cobra.ShellCompDirectiveNoFileComp))
}

// Complete offers the names of jobs.
func Complete(flags *cluster.Flags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := flags.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
		defer cancel()
		found, err := List(ctx, c, c.Namespace, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, job := range found {
			names = append(names, job.Object.GetName())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// withCluster is a command's RunE that needs a client of the cluster.
func withCluster(flags *cluster.Flags, run func(cmd *cobra.Command, c *cluster.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := flags.Connect()
		if err != nil {
			return err
		}
		return run(cmd, c, args)
	}
}

// withJob is the RunE of a command about the job its first argument names; rest are the others.
func withJob(flags *cluster.Flags, typed *string, run func(cmd *cobra.Command, c *cluster.Client, job *Job, rest []string) error) func(*cobra.Command, []string) error {
	return withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
		job, err := Get(cmd.Context(), c, args[0], *typed)
		if err != nil {
			return err
		}
		return run(cmd, c, job, args[1:])
	})
}
