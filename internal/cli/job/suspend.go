package job

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

func suspendCommand(flags *cluster.Flags) *cobra.Command {
	return activeCommand(flags, "suspend", "Stop jobs; other jobs may use their quota", "suspended", false)
}

func resumeCommand(flags *cluster.Flags) *cobra.Command {
	return activeCommand(flags, "resume", "Queue suspended jobs again", "resumed", true)
}

func activeCommand(flags *cluster.Flags, use, short, done string, active bool) *cobra.Command {
	var typed string
	cmd := &cobra.Command{
		Use: use + " JOB...", Short: short, Example: "  elastic " + use + " train",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: Complete(flags),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			for _, name := range args {
				if err := SetActive(cmd.Context(), c, name, typed, active); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The Job %s has been %s\n", name, done)
			}
			return nil
		}),
	}
	AddType(cmd, &typed)
	return cmd
}

// SetActive activates or deactivates the workload of a queued job, and sets the suspend flag of any
// other.
func SetActive(ctx context.Context, c *cluster.Client, name, typed string, active bool, options ...client.PatchOption) error {
	job, err := find(ctx, c, name, typed)
	if err != nil {
		return err
	}
	wl, err := workloadOf(ctx, c, job)
	if err != nil {
		return err
	}
	if wl != nil {
		before := wl.DeepCopy()
		wl.Spec.Active = ptr.To(active)
		return c.Patch(ctx, wl, client.MergeFrom(before), options...)
	}
	if !job.Kind.Suspends() {
		return fmt.Errorf("%s %s is in no queue, and its kind cannot be suspended", strings.ToLower(job.Kind.GVK.Kind), name)
	}
	before := job.Object.DeepCopy()
	if err := job.Kind.Suspend(job.Object, !active); err != nil {
		return err
	}
	return c.Patch(ctx, job.Object, client.MergeFrom(before), options...)
}
