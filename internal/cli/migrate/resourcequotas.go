// Package migrate has the commands that bring what a cluster has into queues.
//
// Words: docs/design/glossary.md.
package migrate

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/migrate/propose"
)

// Command is "elastic import".
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Turn what a cluster has into queues"}
	cmd.AddCommand(jobsCommand(), resourceQuotasCommand())
	return cmd
}

func resourceQuotasCommand() *cobra.Command {
	var flags cluster.Flags
	options := propose.Options{Flavor: "default-flavor", LocalQueue: "default"}
	cmd := &cobra.Command{
		Use:   "resourcequotas",
		Short: "Propose queues with the quota that ResourceQuotas hand out",
		Long: `Reads the ResourceQuotas and running pods of a namespace, or of all, and prints
queues with the same quota. Nothing is changed: look at the result, and apply it.`,
		Example: `  elastic import resourcequotas > queues.yaml
  elastic import resourcequotas -n vision --cohort company | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, _ []string) error {
			where := client.InNamespace(flags.Namespace)
			quotas, pods := &corev1.ResourceQuotaList{}, &corev1.PodList{}
			if err := c.List(cmd.Context(), quotas, where); err != nil {
				return err
			}
			if len(quotas.Items) == 0 {
				return fmt.Errorf("there are no ResourceQuotas: nothing to propose")
			}
			if err := c.List(cmd.Context(), pods, where); err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), propose.FromResourceQuotas(quotas.Items, pods.Items, options))
		}),
	}
	flags.AddTo(cmd)
	cmd.Flags().StringVar(&options.Flavor, "flavor", options.Flavor, "name of the ResourceFlavor")
	cmd.Flags().StringVar(&options.LocalQueue, "local-queue", options.LocalQueue, "name of the LocalQueue in every namespace")
	cmd.Flags().StringVar(&options.Cohort, "cohort", "", "a cohort in which the queues may borrow from each other")
	return cmd
}

// write prints the proposal as YAML, the notes as comments.
func write(w io.Writer, proposals []propose.Proposal) error {
	for _, p := range proposals {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Object)
		if err != nil {
			return err
		}
		delete(object, "status")
		delete(object["metadata"].(map[string]any), "creationTimestamp")
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "---")
		for _, note := range p.Notes {
			fmt.Fprintln(w, "#", note)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}
