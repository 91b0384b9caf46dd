package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Jobs of the kind batch/v1 are repeated by a CronJob, all others by the Cron object that arena
// creates, which needs KubeDL's operator.
var (
	cronJobs  = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}
	kubedl    = schema.GroupVersionKind{Group: "apps.kubedl.io", Version: "v1alpha1", Kind: "Cron"}
	cronKinds = []schema.GroupVersionKind{cronJobs, kubedl}
)

// Cron is a job that is created on a schedule.
type Cron struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Type        string `json:"type"`
	Schedule    string `json:"schedule"`
	Concurrency string `json:"concurrencyPolicy"`
	Suspend     bool   `json:"suspend"`
	Deadline    string `json:"deadline"`
	Last        string `json:"lastScheduleTime"`
	Created     string `json:"creationTimestamp"`
	History     []Past `json:"cronHistory"`

	object *unstructured.Unstructured
}

// Past is a job that a schedule created.
type Past struct {
	Name     string `json:"name"`
	Status   string `json:"status"`
	Kind     string `json:"kind"`
	Created  string `json:"createTime"`
	Finished string `json:"finishTime"`
}

func cronCommand(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cron", Short: "Submit jobs again and again, by a schedule",
		Long: `Submit jobs by a schedule. "cron job" makes a CronJob of Kubernetes' own. Any other
kind makes the Cron (apps.kubedl.io) that arena makes: KubeDL's operator, which
this project does not bring, has to be in the cluster. Every job that comes of it
waits in the queue it names.`,
		Example: `  elastic cron job --schedule "0 22 * * *" --name nightly --image example.com/train:1 --gpus 1 --queue main "python train.py"
  elastic cron list
  elastic cron suspend nightly`,
	}
	for i := range forms {
		cmd.AddCommand(cronFormCommand(&forms[i], &sending{flags: flags}))
	}
	cmd.AddCommand(cronListCommand(flags), cronGetCommand(flags), cronDeleteCommand(flags),
		cronSuspendCommand(flags, "suspend", "Make no more jobs for now", true),
		cronSuspendCommand(flags, "resume", "Make jobs again", false))
	return cmd
}

// schedule is what a cron has in addition to the job.
type schedule struct {
	when, concurrency, deadline string
	suspend                     bool
	history                     int
}

func cronFormCommand(f *form, send *sending) *cobra.Command {
	s, at := &submission{}, &schedule{}
	cmd := &cobra.Command{
		Use: f.names[0] + " --schedule SCHEDULE --name NAME [flags] COMMAND", Aliases: f.names[1:], Short: "Repeat " + f.short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.container != "" {
				_ = cmd.Help()
				return errNoCommand
			}
			if err := errors.Join(s.read(f, args), at.check(f)); err != nil {
				return err
			}
			return send.cron(cmd, f, s, at)
		},
	}
	s.addFlags(f, cmd.Flags())
	cmd.Flags().StringVar(&at.when, "schedule", "", "when to make jobs, as cron has it (required)")
	cmd.Flags().StringVar(&at.concurrency, "concurrency-policy", "Allow", "what to do while the last one has not ended: Allow, Forbid or Replace")
	cmd.Flags().BoolVar(&at.suspend, "suspend", false, "make none yet")
	cmd.Flags().StringVar(&at.deadline, "deadline", "", "make no more after this time, as in 2027-01-31T18:00:00Z; not for 'cron job'")
	cmd.Flags().IntVar(&at.history, "history-limit", 10, "how many ended jobs to retain")
	cmd.Flags().BoolVar(&send.dryRun, "dry-run", false, "only print what would be created")
	send.output.AddTo(cmd, "yaml", "json", "name")
	return cmd
}

func (at *schedule) check(f *form) error {
	switch {
	case at.when == "":
		return errors.New("--schedule must be set")
	case !slices.Contains([]string{"Allow", "Forbid", "Replace"}, at.concurrency):
		return fmt.Errorf("--concurrency-policy %q is not known: Allow, Forbid or Replace", at.concurrency)
	case at.deadline != "" && f.object == "Job":
		return errors.New("a CronJob has no deadline: suspend or delete it when its time has come")
	case at.deadline != "":
		if _, err := time.Parse(time.RFC3339, at.deadline); err != nil {
			return fmt.Errorf("--deadline: %w", err)
		}
	}
	return nil
}

func (s *sending) cron(cmd *cobra.Command, f *form, sub *submission, at *schedule) error {
	c, err := s.flags.Connect()
	if err != nil && !s.dryRun {
		return err
	}
	namespace := s.flags.Namespace
	if c != nil {
		namespace = c.Namespace
	}
	if err := sub.findHost(cmd.Context(), c); err != nil {
		return err
	}
	objects, err := sub.objects(f, namespace)
	if err != nil {
		return err
	}
	objects[0] = at.repeat(objects[0])
	if s.dryRun {
		return s.show(cmd.OutOrStdout(), objects)
	}
	switch err := createAll(cmd.Context(), c, objects); {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("the cron %[1]s is already exist, please delete it first. use '%[2]s cron delete %[1]s'", sub.name, cmd.Root().Name())
	case absent(err):
		return fmt.Errorf("a %s is repeated by KubeDL's operator, which this cluster has not: install it, or use 'cron job': %w", f.object, err)
	case err != nil:
		return err
	}
	if s.output.Format != "" {
		return s.show(cmd.OutOrStdout(), objects[:1])
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The cron %s %s has been submitted successfully\n", f.names[0], sub.name)
	fmt.Fprintf(cmd.OutOrStdout(), "You can run `%s cron get %s` to check the cron status\n", cmd.Root().Name(), sub.name)
	return nil
}

// repeat is the object that makes a job again and again.
func (at *schedule) repeat(job *unstructured.Unstructured) *unstructured.Unstructured {
	spec := map[string]any{"schedule": at.when, "concurrencyPolicy": at.concurrency}
	if at.suspend {
		spec["suspend"] = true
	}
	metadata := map[string]any{}
	for _, field := range []string{"labels", "annotations"} {
		if value, found, _ := unstructured.NestedFieldCopy(job.Object, "metadata", field); found {
			metadata[field] = value
		}
	}
	kind := kubedl
	if job.GetKind() == "Job" && job.GetAPIVersion() == "batch/v1" {
		kind = cronJobs
		template := map[string]any{"spec": job.Object["spec"]}
		if len(metadata) > 0 {
			template["metadata"] = metadata
		}
		spec["jobTemplate"] = template
		spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"] = int64(at.history), int64(at.history)
	} else {
		if at.deadline != "" {
			spec["deadline"] = at.deadline
		}
		spec["historyLimit"] = int64(at.history)
		workload := map[string]any{"spec": job.Object["spec"]}
		if len(metadata) > 0 {
			workload["metadata"] = metadata
		}
		spec["template"] = map[string]any{"apiVersion": job.GetAPIVersion(), "kind": job.GetKind(), "workload": workload}
	}
	// The cron itself is no job: the queue label is for the jobs it creates.
	cron := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	cron.SetGroupVersionKind(kind)
	cron.SetNamespace(job.GetNamespace())
	cron.SetName(job.GetName())
	return cron
}

// crons of a namespace, of both kinds.
func crons(ctx context.Context, c *cluster.Client, namespace string) ([]Cron, error) {
	var all []Cron
	for _, kind := range cronKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, list, client.InNamespace(namespace)); ignoreAbsent(err) != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, readCron(&list.Items[i]))
		}
	}
	return all, nil
}

func findCron(ctx context.Context, c *cluster.Client, name string) (*Cron, error) {
	for _, kind := range cronKinds {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, object)
		if err == nil {
			cron := readCron(object)
			return &cron, nil
		}
		if !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("there is no cron %q in namespace %q: see 'cron list', or 'cron list -A'", name, c.Namespace)
}

func readCron(object *unstructured.Unstructured) Cron {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(object.Object, path...)
		return s
	}
	out := Cron{
		Name: object.GetName(), Namespace: object.GetNamespace(), Type: "Job", Schedule: text("spec", "schedule"),
		Concurrency: text("spec", "concurrencyPolicy"), Deadline: text("spec", "deadline"), Last: text("status", "lastScheduleTime"),
		Created: object.GetCreationTimestamp().UTC().Format(time.RFC3339), History: []Past{}, object: object,
	}
	out.Suspend, _, _ = unstructured.NestedBool(object.Object, "spec", "suspend")
	if object.GetKind() == kubedl.Kind {
		out.Type = text("spec", "template", "kind")
	}
	history, _, _ := unstructured.NestedSlice(object.Object, "status", "history")
	for _, item := range history {
		m, _ := item.(map[string]any)
		at := func(path ...string) string { s, _, _ := unstructured.NestedString(m, path...); return s }
		out.History = append(out.History, Past{Name: at("object", "name"), Status: at("status"), Kind: at("object", "kind"), Created: at("created"), Finished: at("finished")})
	}
	return out
}

func cronListCommand(flags *cluster.Flags) *cobra.Command {
	var all bool
	cmd := cluster.List[Cron]{
		What: "crons", Name: func(c *Cron) string { return "cron/" + c.Name },
		Read: func(ctx context.Context, c *cluster.Client) ([]Cron, error) {
			if all {
				return crons(ctx, c, "")
			}
			return crons(ctx, c, c.Namespace)
		},
		Print: func(s output.Writer, list []Cron, wide bool) { cronTable(list, all).Print(s, wide) },
	}.Make(&cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List what is submitted by a schedule", Example: "  elastic cron list -A"}, flags)
	allNamespaces(cmd, &all)
	return cmd
}

// allNamespaces adds the flag by both of arena's names.
func allNamespaces(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "of all namespaces")
	cmd.Flags().BoolVar(all, "allNamespaces", false, "the same as --all-namespaces")
	_ = cmd.Flags().MarkHidden("allNamespaces")
}

func cronTable(list []Cron, all bool) *output.Table {
	t := &output.Table{Columns: []output.Column{
		{Name: "NAME", Cut: true}, {Name: "TYPE"}, {Name: "SCHEDULE"}, {Name: "SUSPEND"}, {Name: "DEADLINE"}, {Name: "CONCURRENCYPOLICY"},
	}}
	if all {
		t.Columns = append([]output.Column{{Name: "NAMESPACE", Cut: true}}, t.Columns...)
	}
	for _, c := range list {
		cells := []any{c.Name, c.Type, c.Schedule, c.Suspend, c.Deadline, c.Concurrency}
		if all {
			cells = append([]any{c.Namespace}, cells...)
		}
		t.Add(cells...)
	}
	return t
}

func cronGetCommand(flags *cluster.Flags) *cobra.Command {
	var printer output.Printer
	cmd := &cobra.Command{
		Use: "get CRON", Short: "Show what is submitted by a schedule, and what came of it", Example: "  elastic cron get nightly", Args: cobra.ExactArgs(1),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			cron, err := findCron(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if cron.object.GetKind() == cronJobs.Kind {
				if cron.History, err = past(cmd.Context(), c, cron); err != nil {
					return err
				}
			}
			return printer.Print(cmd.OutOrStdout(), cron, []string{"cron/" + cron.Name}, func(s output.Writer, wide bool) { printCron(s, cron, wide) })
		}),
	}
	printer.AddTo(cmd)
	return cmd
}

// past are the jobs of a CronJob, which has no list of those that have ended.
func past(ctx context.Context, c *cluster.Client, cron *Cron) ([]Past, error) {
	found, err := List(ctx, c, c.Namespace, "job")
	if err != nil {
		return nil, err
	}
	list := []Past{}
	for _, job := range found {
		if !metav1.IsControlledBy(job.Object, cron.object) {
			continue
		}
		info, err := job.Describe(ctx, c, time.Now())
		if err != nil {
			return nil, err
		}
		finished, _, _ := unstructured.NestedString(job.Object.Object, "status", "completionTime")
		list = append(list, Past{Name: info.Name, Status: info.Status, Kind: job.Object.GetKind(), Created: info.Created.UTC().Format(time.RFC3339), Finished: finished})
	}
	return list, nil
}

func printCron(s output.Writer, c *Cron, wide bool) {
	for _, line := range [][2]any{
		{"Name", c.Name}, {"Namespace", c.Namespace}, {"Type", c.Type}, {"Schedule", c.Schedule}, {"Suspend", c.Suspend}, {"ConcurrencyPolicy", c.Concurrency},
		{"CreationTimestamp", c.Created}, {"LastScheduleTime", c.Last}, {"Deadline", c.Deadline},
	} {
		fmt.Fprintln(s, strings.TrimRight(fmt.Sprintf("%-20v%v", fmt.Sprint(line[0], ":"), line[1]), " "))
	}
	fmt.Fprintln(s, "\nHistory:")
	t := &output.Table{Rule: true, Columns: []output.Column{{Name: "NAME", Cut: true}, {Name: "STATUS", Paint: output.ByStatus}, {Name: "TYPE"}, {Name: "CREATETIME"}, {Name: "FINISHTIME"}}}
	for _, p := range c.History {
		t.Add(p.Name, p.Status, p.Kind, p.Created, p.Finished)
	}
	t.Print(s, wide)
}

func cronDeleteCommand(flags *cluster.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "delete CRON...", Short: "Submit it no more; the jobs it made go with it", Example: "  elastic cron delete nightly", Args: cobra.MinimumNArgs(1),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			for _, name := range args {
				cron, err := findCron(cmd.Context(), c, name)
				if err != nil {
					return err
				}
				if err := c.Delete(cmd.Context(), cron.object, client.PropagationPolicy("Background")); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "cron %s has deleted\n", name)
			}
			return nil
		}),
	}
}

func cronSuspendCommand(flags *cluster.Flags, use, short string, suspend bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " CRON", Short: short, Example: "  elastic cron " + use + " nightly", Args: cobra.ExactArgs(1),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			cron, err := findCron(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			before := cron.object.DeepCopy()
			if err := unstructured.SetNestedField(cron.object.Object, suspend, "spec", "suspend"); err != nil {
				return err
			}
			if err := c.Patch(cmd.Context(), cron.object, client.MergeFrom(before)); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "cron %s %s success\n", args[0], use)
			return nil
		}),
	}
}
