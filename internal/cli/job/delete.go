package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

func deleteCommand(flags *cluster.Flags) *cobra.Command {
	var typed string
	cmd := &cobra.Command{
		Use: "delete JOB...", Aliases: []string{"del", "rm"}, Short: "Delete jobs and their pods",
		Example: "  elastic delete train\n  elastic delete a b c",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: Complete(flags),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			progress := output.To(cmd.ErrOrStderr()).Start("deleting jobs", len(args))
			defer progress.End()
			var failed []error
			for _, name := range args {
				err := Delete(cmd.Context(), c, name, typed)
				progress.Step()
				if err != nil {
					failed = append(failed, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The Job %s has been deleted successfully\n", name)
			}
			return errors.Join(failed...)
		}),
	}
	AddType(cmd, &typed)
	return cmd
}

// Delete a job; its pods go with it.
func Delete(ctx context.Context, c *cluster.Client, name, typed string, options ...client.DeleteOption) error {
	job, err := find(ctx, c, name, typed)
	if err != nil {
		return err
	}
	options = append(options, client.PropagationPolicy("Background"), client.Preconditions{UID: ptr.To(job.Object.GetUID())})
	return c.Delete(ctx, job.Object, options...)
}

func pruneCommand(flags *cluster.Flags) *cobra.Command {
	var all bool
	var since time.Duration
	cmd := &cobra.Command{
		Use: "prune --since AGE", Short: "Delete jobs that ended long ago",
		Example: "  elastic prune --since 24h\n  elastic prune -A --since 168h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since <= 0 {
				return errors.New("say how long ago with --since, as in --since 24h")
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = ""
			}
			found, err := List(cmd.Context(), c, namespace, "")
			if err != nil {
				return err
			}
			now := time.Now()
			progress := output.To(cmd.ErrOrStderr()).Start("deleting jobs", len(found))
			defer progress.End()
			for _, job := range found {
				progress.Step()
				view, err := job.Kind.View(job.Object)
				if err != nil || !view.Ended {
					continue
				}
				if _, end := job.times(true, now); now.Sub(end) < since {
					continue
				}
				if err := c.Delete(cmd.Context(), job.Object, client.PropagationPolicy("Background")); client.IgnoreNotFound(err) != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The Job %s has been deleted successfully\n", job.Object.GetName())
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&since, "since", 0, "only those that ended so long ago or longer")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "in all namespaces")
	return cmd
}
