package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/reach"
	"github.com/elastic-ai/elastic/internal/cli/screen"
)

// planner says whether jobs would start.
type planner = func(cmd *cobra.Command, c *reach.Cluster, output *screen.Output, objects []*unstructured.Unstructured) error

// Commands are the ones for jobs.
func Commands(plan planner) []*cobra.Command {
	var list []*cobra.Command
	for _, make := range []func(*reach.Flags) *cobra.Command{
		func(f *reach.Flags) *cobra.Command { return submitCommand(f, plan) },
		listCommand, getCommand, logsCommand, attachCommand, deleteCommand, suspendCommand, resumeCommand, waitCommand, pruneCommand,
		cronCommand, dataCommand, scaleInCommand, scaleOutCommand,
	} {
		flags := &reach.Flags{}
		cmd := make(flags)
		flags.AddTo(cmd)
		list = append(list, cmd)
	}
	return list
}

// AddType gives a command the flag that tells jobs of one name apart.
func AddType(cmd *cobra.Command, typed *string) {
	cmd.Flags().StringVarP(typed, "type", "T", "", "type of the job, as in tfjob, where several have one name")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(formNames(), cobra.ShellCompDirectiveNoFileComp))
}

// Complete offers the names of jobs.
func Complete(flags *reach.Flags) cobra.CompletionFunc {
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

// some says which jobs are meant: of a kind, here or everywhere.
type some struct {
	all   bool
	typed string
}

func (s *some) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "of all namespaces")
	AddType(cmd, &s.typed)
}

// describe reads what is to be known of them.
func (s *some) describe(ctx context.Context, c *reach.Cluster) ([]Info, error) {
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

func listCommand(flags *reach.Flags) *cobra.Command {
	which := &some{}
	cmd := reach.List[Info]{What: "jobs", Read: which.describe, Name: typedName, Print: func(s screen.Screen, infos []Info, wide bool) {
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

// TopCommand is "top job": what jobs hold, the greatest first.
func TopCommand(flags *reach.Flags) *cobra.Command {
	which := &some{}
	cmd := reach.List[Info]{
		What: "jobs",
		Read: func(ctx context.Context, c *reach.Cluster) ([]Info, error) {
			infos, err := which.describe(ctx, c)
			held := slices.DeleteFunc(infos, func(i Info) bool { return i.Allocated == nil || *i.Allocated == 0 })
			slices.SortStableFunc(held, func(a, b Info) int { return cmp.Compare(*b.Allocated, *a.Allocated) })
			return held, err
		},
		Name:  typedName,
		Print: func(s screen.Screen, held []Info, wide bool) { Table(held, which.all).Print(s, wide) },
	}.Make(&cobra.Command{Use: "job", Short: "Show jobs by the cards they hold", Example: "  elastic top job -A"}, flags)
	which.addTo(cmd)
	return cmd
}

// Table is what list prints.
func Table(infos []Info, namespaces bool) *screen.Table {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "NAME", Cut: true}, {Name: "STATUS", Paint: screen.ByStatus}, {Name: "TRAINER"}, {Name: "DURATION"},
		{Name: "GPU(Requested)"}, {Name: "GPU(Allocated)"}, {Name: "QUEUE", Cut: true}, {Name: "NODE", Cut: true},
		{Name: "PRIORITY", Wide: true}, {Name: "PODS", Wide: true}, {Name: "REASON", Wide: true, Cut: true},
	}}
	if namespaces {
		t.Columns = append([]screen.Column{{Name: "NAMESPACE", Cut: true}}, t.Columns...)
	}
	for i := range infos {
		job := &infos[i]
		row := []any{
			job.Name, job.Status, job.Trainer, job.duration(), number(job.Requested), job.allocated(), orNA(job.Queue), job.node(),
			orNA(job.Priority), len(job.Instances), orNA(job.Reason),
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

func getCommand(flags *reach.Flags) *cobra.Command {
	var typed string
	var events, gpus bool
	var output screen.Output
	cmd := &cobra.Command{
		Use: "get JOB", Short: "Show one job and its pods",
		Example: "  elastic get train\n  elastic get train --type tfjob -o yaml\n  elastic get train -e   # with what happened to its pods",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			job, err := Get(cmd.Context(), c, args[0], typed)
			if err != nil {
				return err
			}
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
			return output.Print(cmd.OutOrStdout(), info, []string{info.Type + "/" + info.Name}, func(s screen.Screen, wide bool) {
				printJob(s, &info, wide || gpus)
				if events {
					printEvents(s, happened)
				}
			})
		},
	}
	AddType(cmd, &typed)
	cmd.Flags().BoolVarP(&events, "events", "e", false, "with the events of its pods")
	cmd.Flags().BoolVarP(&gpus, "gpus", "g", false, "with the cards of its pods")
	output.AddTo(cmd)
	return cmd
}

// printJob is one job on one screen.
func printJob(s screen.Screen, info *Info, cards bool) {
	for _, field := range [][2]string{
		{"Name", info.Name}, {"Status", s.Paint(screen.ByStatus(info.Status), info.Status)}, {"Namespace", info.Namespace}, {"Queue", orNA(info.Queue)},
		{"Priority", orNA(info.Priority)}, {"Trainer", info.Trainer}, {"Duration", info.duration()},
	} {
		fmt.Fprintf(s, "%-11s%s\n", field[0]+":", field[1])
	}
	if info.Reason != "" && info.Status != Succeeded {
		fmt.Fprintf(s, "%-11s%s\n", "Reason:", info.Reason)
	}
	fmt.Fprintln(s, "\nInstances:")
	t := &screen.Table{Indent: "  ", Rule: true, Columns: []screen.Column{
		{Name: "NAME", Cut: true}, {Name: "STATUS", Paint: screen.ByStatus}, {Name: "AGE"}, {Name: "IS_CHIEF"}, {Name: "GPU(Requested)"},
		{Name: "QUEUE", Cut: true}, {Name: "NODE", Cut: true}, {Name: "CARDS", Wide: true},
	}}
	for _, pod := range info.Instances {
		age := screen.Duration(time.Duration(pod.Seconds) * time.Second)
		t.Add(pod.Name, pod.Status, age, pod.Chief, number(pod.Requested), orNA(info.Queue), orNA(pod.Node), orNA(pod.Cards))
	}
	t.Print(s, cards)
}

// Events of the job, its workload and its pods.
func (j *Job) Events(ctx context.Context, c *reach.Cluster) ([]corev1.Event, error) {
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

func printEvents(s screen.Screen, events []corev1.Event) {
	fmt.Fprintln(s, "\nEvents:")
	t := &screen.Table{Indent: "  ", Columns: []screen.Column{{Name: "OBJECT", Cut: true}, {Name: "TYPE"}, {Name: "REASON"}, {Name: "MESSAGE", Cut: true}}}
	for _, e := range events {
		t.Add(strings.ToLower(e.InvolvedObject.Kind)+"/"+e.InvolvedObject.Name, e.Type, e.Reason, strings.TrimSpace(e.Message))
	}
	t.Print(s, false)
}

func deleteCommand(flags *reach.Flags) *cobra.Command {
	var typed string
	cmd := &cobra.Command{
		Use: "delete JOB...", Aliases: []string{"del", "rm"}, Short: "Delete jobs and their pods",
		Example: "  elastic delete train\n  elastic delete a b c",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			progress := screen.Of(cmd.ErrOrStderr()).Start("deleting jobs", len(args))
			defer progress.End()
			var failed []error
			for _, name := range args {
				err := remove(cmd.Context(), c, name, typed)
				progress.Step()
				if err != nil {
					failed = append(failed, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The Job %s has been deleted successfully\n", name)
			}
			return errors.Join(failed...)
		},
	}
	AddType(cmd, &typed)
	return cmd
}

func remove(ctx context.Context, c *reach.Cluster, name, typed string) error {
	job, err := find(ctx, c, name, typed)
	if err != nil {
		return err
	}
	return c.Delete(ctx, job.Object, client.PropagationPolicy("Background"), client.Preconditions{UID: ptr.To(job.Object.GetUID())})
}

func suspendCommand(flags *reach.Flags) *cobra.Command {
	return activeCommand(flags, "suspend", "Stop jobs; their place on the cluster goes to others", "suspended", false)
}

func resumeCommand(flags *reach.Flags) *cobra.Command {
	return activeCommand(flags, "resume", "Queue suspended jobs again", "resumed", true)
}

func activeCommand(flags *reach.Flags, use, short, done string, active bool) *cobra.Command {
	var typed string
	cmd := &cobra.Command{
		Use: use + " JOB...", Short: short, Example: "  elastic " + use + " train",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := setActive(cmd.Context(), c, name, typed, active); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The Job %s has been %s\n", name, done)
			}
			return nil
		},
	}
	AddType(cmd, &typed)
	return cmd
}

// setActive switches a queued job by its workload, which the queue goes by, and
// any other by its own flag.
func setActive(ctx context.Context, c *reach.Cluster, name, typed string, active bool) error {
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
		return c.Patch(ctx, wl, client.MergeFrom(before))
	}
	if !job.Kind.Suspends() {
		return fmt.Errorf("%s %s is in no queue, and its kind cannot be suspended", strings.ToLower(job.Kind.GVK.Kind), name)
	}
	before := job.Object.DeepCopy()
	if err := job.Kind.Suspend(job.Object, !active); err != nil {
		return err
	}
	return c.Patch(ctx, job.Object, client.MergeFrom(before))
}

func pruneCommand(flags *reach.Flags) *cobra.Command {
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
			progress := screen.Of(cmd.ErrOrStderr()).Start("deleting jobs", len(found))
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
