package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

func getCommand(flags *cluster.Flags) *cobra.Command {
	var typed string
	var events, gpus bool
	var printer output.Printer
	cmd := &cobra.Command{
		Use: "get JOB", Short: "Show one job and its pods",
		Example: "  elastic get train\n  elastic get train --type tfjob -o yaml\n  elastic get train -e   # with what happened to its pods",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: Complete(flags),
		RunE: withJob(flags, &typed, func(cmd *cobra.Command, c *cluster.Client, job *Job, _ []string) error {
			info, err := job.Describe(cmd.Context(), c, time.Now())
			if err != nil {
				return err
			}
			var happened []corev1.Event
			if events {
				if happened, err = job.Events(cmd.Context(), c); err != nil {
					return err
				}
			}
			return printer.Print(cmd.OutOrStdout(), info, []string{info.Type + "/" + info.Name}, func(s output.Writer, wide bool) {
				printJob(s, &info, wide || gpus)
				if events {
					printEvents(s, happened)
				}
			})
		}),
	}
	AddType(cmd, &typed)
	cmd.Flags().BoolVarP(&events, "events", "e", false, "with the events of its pods")
	cmd.Flags().BoolVarP(&gpus, "gpus", "g", false, "with the cards of its pods")
	printer.AddTo(cmd)
	return cmd
}

// printJob prints one job.
func printJob(s output.Writer, info *Info, cards bool) {
	for _, field := range [][2]string{
		{"Name", info.Name}, {"Status", s.Paint(output.ByStatus(info.Status), info.Status)}, {"Namespace", info.Namespace}, {"Queue", orNA(info.Queue)},
		{"Priority", orNA(info.Priority)}, {"Trainer", info.Trainer}, {"Duration", info.duration()},
	} {
		fmt.Fprintf(s, "%-11s%s\n", field[0]+":", field[1])
	}
	if info.Cost != nil {
		fmt.Fprintf(s, "%-11s%s\n", "Cost:", info.cost())
	}
	if info.Reason != "" && info.Status != Succeeded {
		fmt.Fprintf(s, "%-11s%s\n", "Reason:", info.Reason)
	}
	fmt.Fprintln(s, "\nInstances:")
	t := &output.Table{Indent: "  ", Rule: true, Columns: []output.Column{
		{Name: "NAME", Cut: true}, {Name: "STATUS", Paint: output.ByStatus}, {Name: "AGE"}, {Name: "IS_CHIEF"}, {Name: "GPU(Requested)"},
		{Name: "QUEUE", Cut: true}, {Name: "NODE", Cut: true}, {Name: "CARDS", Wide: true},
	}}
	for _, pod := range info.Instances {
		age := output.Duration(time.Duration(pod.Seconds) * time.Second)
		t.Add(pod.Name, pod.Status, age, pod.Chief, number(pod.Requested), orNA(info.Queue), orNA(pod.Node), orNA(pod.Cards))
	}
	t.Print(s, cards)
}

// Events of the job, its workload and its pods.
func (j *Job) Events(ctx context.Context, c *cluster.Client) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	if err := c.List(ctx, list, client.InNamespace(j.Object.GetNamespace())); err != nil {
		return nil, err
	}
	about := map[string]bool{string(j.Object.GetUID()): true}
	if j.Workload != nil {
		about[string(j.Workload.UID)] = true
	}
	for _, pod := range j.Pods {
		about[string(pod.UID)] = true
	}
	var out []corev1.Event
	for _, event := range list.Items {
		if about[string(event.InvolvedObject.UID)] {
			out = append(out, event)
		}
	}
	return out, nil
}

func printEvents(s output.Writer, events []corev1.Event) {
	fmt.Fprintln(s, "\nEvents:")
	t := &output.Table{Indent: "  ", Columns: []output.Column{{Name: "OBJECT", Cut: true}, {Name: "TYPE"}, {Name: "REASON"}, {Name: "MESSAGE", Cut: true}}}
	for _, e := range events {
		t.Add(strings.ToLower(e.InvolvedObject.Kind)+"/"+e.InvolvedObject.Name, e.Type, e.Reason, strings.TrimSpace(e.Message))
	}
	t.Print(s, false)
}
