package job

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// jobSelection is which jobs a command is about: of one type or all, in one namespace or all.
type jobSelection struct {
	all   bool
	typed string
}

func (s *jobSelection) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "of all namespaces")
	AddType(cmd, &s.typed)
}

// describe reads the selected jobs.
func (s *jobSelection) describe(ctx context.Context, c *cluster.Client) ([]Info, error) {
	namespace := c.Namespace
	if s.all {
		namespace = ""
	}
	found, err := List(ctx, c, namespace, s.typed)
	if err != nil {
		return nil, err
	}
	infos := []Info{}
	now := time.Now()
	for _, job := range found {
		info, err := job.Describe(ctx, c, now)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func typedName(i *Info) string { return i.Type + "/" + i.Name }

// listCommand is "elastic list".
func listCommand(flags *cluster.Flags) *cobra.Command {
	which := &jobSelection{}
	cmd := cluster.List[Info]{What: "jobs", Read: which.describe, Name: typedName, Print: func(s output.Writer, infos []Info, wide bool) {
		if len(infos) == 0 && s.Width > 0 {
			fmt.Fprintln(s, "No jobs here. See all namespaces with -A.")
			return
		}
		Table(infos, which.all).Print(s, wide)
	}}.Make(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs",
		Example: "  elastic list\n  elastic list -A -o wide\n  elastic list -T tfjob -o json",
	}, flags)
	which.addTo(cmd)
	cmd.Flags().BoolVar(&which.all, "allNamespaces", false, "the same")
	_ = cmd.Flags().MarkHidden("allNamespaces")
	return cmd
}

// TopCommand is "elastic top job": jobs by the cards they have, the most first.
func TopCommand(flags *cluster.Flags) *cobra.Command {
	which := &jobSelection{}
	cmd := cluster.List[Info]{
		What: "jobs",
		Read: func(ctx context.Context, c *cluster.Client) ([]Info, error) {
			infos, err := which.describe(ctx, c)
			running := slices.DeleteFunc(infos, func(i Info) bool { return i.Allocated == nil || *i.Allocated == 0 })
			slices.SortStableFunc(running, func(a, b Info) int { return cmp.Compare(*b.Allocated, *a.Allocated) })
			return running, err
		},
		Name:  typedName,
		Print: func(s output.Writer, running []Info, wide bool) { Table(running, which.all).Print(s, wide) },
	}.Make(&cobra.Command{Use: "job", Short: "Show jobs by the cards they hold", Example: "  elastic top job -A"}, flags)
	which.addTo(cmd)
	return cmd
}

// Table is what list prints.
func Table(infos []Info, namespaces bool) *output.Table {
	t := &output.Table{Columns: []output.Column{
		{Name: "NAME", Cut: true}, {Name: "STATUS", Paint: output.ByStatus}, {Name: "TRAINER"}, {Name: "DURATION"},
		{Name: "GPU(Requested)"}, {Name: "GPU(Allocated)"}, {Name: "QUEUE", Cut: true}, {Name: "NODE", Cut: true},
		{Name: "PRIORITY", Wide: true}, {Name: "PODS", Wide: true}, {Name: "REASON", Wide: true, Cut: true},
	}}
	costs := slices.ContainsFunc(infos, func(i Info) bool { return i.Cost != nil })
	if costs {
		t.Columns = append(t.Columns, output.Column{Name: "COST"})
	}
	if namespaces {
		t.Columns = append([]output.Column{{Name: "NAMESPACE", Cut: true}}, t.Columns...)
	}
	for i := range infos {
		job := &infos[i]
		row := []any{
			job.Name, job.Status, job.Trainer, job.duration(), number(job.Requested), job.allocated(), orNA(job.Queue), job.node(),
			orNA(job.Priority), len(job.Instances), orNA(job.Reason),
		}
		if costs {
			row = append(row, job.cost())
		}
		if namespaces {
			row = append([]any{job.Namespace}, row...)
		}
		t.Add(row...)
	}
	return t
}

func orNA(text string) string {
	if text == "" {
		return NA
	}
	return text
}
