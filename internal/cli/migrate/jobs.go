package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Outcomes of an import, job by job.
const (
	fits     = "ok"       // it can be imported
	imported = "imported" // it was
	skipped  = "skipped"
	problem  = "problem" // it cannot be imported as things are
)

var errProblems = errors.New("nothing was imported: mend what is marked as a problem, or leave it out with a rule that skips it")

func jobsCommand() *cobra.Command {
	flags := &cluster.Flags{}
	var (
		printer output.Printer
		m       mapping
		all     bool
		dryRun  bool
		exclude []string
	)
	cmd := &cobra.Command{
		Use: "jobs", Aliases: []string{"pods"},
		Short: "Bring jobs and pods that run already into queues",
		Long: `Brings jobs and single pods that run in no queue into queues, without stopping
them: each gets an admitted Workload, in the flavor of the nodes it runs on, and
the label of its queue. They count in the quota from then on, also beyond it.
Without --dry-run=false it only says what would happen. Nothing is imported
while a job cannot be.`,
		Example: `  elastic import jobs -n vision --queue main
  elastic import jobs -A --queue-label team --map nlp=main --map web=batch
  elastic import jobs -n vision --mapping-file rules.yaml --dry-run=false`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.read(); err != nil {
				return err
			}
			counting, err := workload.NewResourceTransformations(exclude, nil)
			if err != nil {
				return err
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = ""
			}
			im := &importer{Client: c, mapping: &m, counting: counting}
			if err := im.look(cmd.Context(), namespace); err != nil {
				return err
			}
			bad := slices.ContainsFunc(im.found, func(f *candidate) bool { return f.Outcome == problem })
			if !dryRun && !bad {
				progress := output.To(cmd.ErrOrStderr()).Start("importing jobs", len(im.found))
				err = im.bring(cmd.Context(), progress.Step)
				progress.End()
			}
			if failed := errors.Join(err, printer.Print(cmd.OutOrStdout(), im.found, im.names(), im.print)); failed != nil {
				return failed
			}
			if bad {
				return errProblems
			}
			return nil
		},
	}
	flags.AddTo(cmd)
	printer.AddTo(cmd)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces")
	cmd.Flags().BoolVar(&dryRun, "dry-run", true, "only say what would happen")
	cmd.Flags().StringVar(&m.queue, "queue", "", "LocalQueue of the jobs that no rule names")
	cmd.Flags().StringVar(&m.label, "queue-label", "", "label by whose value --map chooses the queue")
	cmd.Flags().StringArrayVar(&m.values, "map", nil, "VALUE=QUEUE: jobs with that value of --queue-label go there (repeatable)")
	cmd.Flags().StringVar(&m.file, "mapping-file", "", "file of rules, as Kueue's importer takes them")
	cmd.Flags().StringSliceVar(&exclude, "exclude-resource-prefixes", nil, "resources that the queue's configuration leaves out of quota")
	return cmd
}

func (im *importer) names() []string {
	var names []string
	for _, f := range im.found {
		if f.Outcome == fits || f.Outcome == imported {
			names = append(names, f.Job)
		}
	}
	return names
}

func (im *importer) print(s output.Writer, wide bool) {
	t := &output.Table{Columns: []output.Column{
		{Name: "NAMESPACE", Cut: true}, {Name: "JOB", Cut: true}, {Name: "RESULT", Paint: output.ByStatus}, {Name: "QUEUE"}, {Name: "CLUSTERQUEUE", Cut: true},
		{Name: "USES", Cut: true}, {Name: "WHY", Cut: true}, {Name: "WORKLOAD", Wide: true},
	}}
	for _, f := range im.found {
		t.Add(f.Namespace, f.Job, f.Outcome, dash(f.Queue), dash(f.ClusterQueue), dash(strings.Join(f.Uses, ", ")), dash(f.Why), dash(f.Workload))
	}
	t.Print(s, wide)
	for _, note := range im.notes {
		fmt.Fprintln(s, note)
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
