package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/job"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Command is "elastic explain".
func Command() *cobra.Command {
	flags := &cluster.Flags{}
	var typed string
	var printer output.Printer
	cmd := &cobra.Command{
		Use: "explain JOB", Aliases: []string{"why"}, Short: "Say why a job waits, and what would let it in",
		Example: "  elastic explain train\n  elastic explain train -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: job.Complete(flags),
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			answer, err := ask(cmd.Context(), c, args[0], typed)
			if err != nil {
				return err
			}
			return printer.Print(cmd.OutOrStdout(), answer, []string{answer.Job}, func(s output.Writer, _ bool) {
				Render(s, answer, time.Now())
			})
		}),
	}
	job.AddType(cmd, &typed)
	printer.AddTo(cmd)
	flags.AddTo(cmd)
	return cmd
}

// ask collects the queue's answer and what the job's pods meet.
func ask(ctx context.Context, c *cluster.Client, name, typed string) (*Answer, error) {
	found, err := job.Get(ctx, c, name, typed)
	if err != nil {
		return nil, err
	}
	info, err := found.Describe(ctx, c, time.Now())
	if err != nil {
		return nil, err
	}
	return About(ctx, c, found, &info)
}

// About a job that was found: what the queue says of it, and what its pods meet.
func About(ctx context.Context, c *cluster.Client, found *job.Job, info *job.Info) (*Answer, error) {
	answer := &Answer{Job: info.Type + "/" + info.Name, Namespace: info.Namespace, Status: info.Status}
	if info.Status == job.Failed {
		answer.Failure = info.Reason
	}
	if len(info.Instances) > 0 {
		answer.Pods = fmt.Sprintf("%d of %d up", info.Up(), max(info.Pods, len(info.Instances)))
	}
	if events, err := found.Events(ctx, c); err == nil {
		answer.Warnings = warnings(events, found.Workload)
	}
	answer.RemoteCards = remoteCards(ctx, c, found)
	if found.Workload == nil {
		if info.Queue != "" {
			answer.Standing = &v1alpha1.WorkloadStanding{State: "Unknown", LocalQueue: info.Queue}
		}
		return answer, nil
	}
	answer.Workload = found.Workload.Name
	answer.Elastic = elasticity(ctx, c, found)
	var err error
	if answer.Standing, err = job.Ask(ctx, c, found.Workload); err != nil {
		answer.Note = fmt.Sprintf("the queue could not be asked (%v); this is what it wrote last", err)
		answer.Standing = fromStatus(found.Workload)
	}
	return answer, nil
}

// elasticity says how many pods a job has of those that it may have, and why not more; "" for one that cannot grow, or
// whose workloads may not be read.
func elasticity(ctx context.Context, c *cluster.Client, found *job.Job) string {
	if !apimeta.IsStatusConditionTrue(found.Workload.Status.Conditions, kueue.WorkloadAdmitted) {
		return ""
	}
	object := found.Kind.Object(found.Object)
	pods := object.PodRange()
	list := &kueue.WorkloadList{}
	if pods == nil || c.List(ctx, list, client.InNamespace(found.Workload.Namespace)) != nil {
		return ""
	}
	has, why := pods.Least, ""
	for i := range list.Items {
		wl := &list.Items[i]
		waits := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		switch {
		case wl.Annotations[queuepolicy.ExtraOfAnnotation] != found.Workload.Name || waits == nil:
		case waits.Status == metav1.ConditionTrue:
			has += wl.Spec.PodSets[0].Count
		case why == "":
			why = "; more when quota is idle: " + waits.Message
		}
	}
	return fmt.Sprintf("%d pods of %s, of %d to %d", has, pods.Set, pods.Least, pods.Most) + why
}

// fromStatus is what the workload's own status says.
func fromStatus(wl *kueue.Workload) *v1alpha1.WorkloadStanding {
	x := &v1alpha1.WorkloadStanding{State: "Pending", LocalQueue: string(wl.Spec.QueueName)}
	if a := wl.Status.Admission; a != nil {
		x.ClusterQueue, x.State = string(a.ClusterQueue), "QuotaReserved"
	}
	switch {
	case apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished):
		x.State = "Finished"
	case apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted):
		x.State = "Admitted"
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
		x.Reason, x.Message = c.Reason, c.Message
	}
	for _, check := range wl.Status.AdmissionChecks {
		x.Checks = append(x.Checks, v1alpha1.Check{Name: string(check.Name), State: string(check.State), Message: check.Message})
	}
	return x
}

// warnings are the newest of each kind, without those of the queue itself.
func warnings(events []corev1.Event, wl *kueue.Workload) []string {
	const most = 5
	latest := map[string]corev1.Event{}
	for _, e := range events {
		if e.Type != corev1.EventTypeWarning || wl != nil && e.InvolvedObject.UID == wl.UID {
			continue
		}
		if old, seen := latest[e.Reason]; !seen || When(&old).Before(When(&e)) {
			latest[e.Reason] = e
		}
	}
	var list []corev1.Event
	for _, e := range latest {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b corev1.Event) int { return When(&b).Compare(When(&a)) })
	var out []string
	for _, e := range list[:min(most, len(list))] {
		out = append(out, fmt.Sprintf("%s/%s: %s: %s", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Reason, strings.TrimSpace(e.Message)))
	}
	return out
}

// When an event last happened.
func When(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}

// PlanCommand is "elastic plan".
func PlanCommand() *cobra.Command {
	flags := &cluster.Flags{}
	var files []string
	var queue string
	var printer output.Printer
	cmd := &cobra.Command{
		Use: "plan -f FILE", Short: "Say whether a job would start now, where, and which jobs it would preempt",
		Long: `Say whether a job would start now, where, on which flavor and cards, which jobs it
would preempt, and when it would start otherwise. Nothing is created. For a job
written with flags: submit --check.`,
		Example: "  elastic plan -f job.yaml\n  elastic plan -f job.yaml --queue main -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return errors.New("give the job's manifest with -f")
			}
			objects, err := job.ReadFiles(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			if err := job.Settle(c, objects, queue); err != nil {
				return err
			}
			return Plan(cmd, c, &printer, objects)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest of the job; - for standard input (repeatable)")
	cmd.Flags().StringVar(&queue, "queue", "", "the queue it would wait in, where the manifest names none")
	printer.AddTo(cmd)
	flags.AddTo(cmd)
	return cmd
}

// Plan asks the queue about jobs that are not there, and prints its answers.
func Plan(cmd *cobra.Command, c *cluster.Client, printer *output.Printer, objects []*unstructured.Unstructured) error {
	asked := 0
	for _, object := range objects {
		name, plan, err := Consider(cmd.Context(), c, object)
		if err != nil {
			return err
		}
		if plan == nil {
			continue // what goes with the job
		}
		if asked++; asked > 1 && printer.Format == "" {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		err = printer.Print(cmd.OutOrStdout(), map[string]any{"job": name, "plan": plan}, []string{name}, func(s output.Writer, _ bool) {
			RenderPlan(s, name, plan, time.Now())
		})
		if err != nil {
			return err
		}
	}
	if asked == 0 {
		return errors.New("there is no job in it that the queue knows: docs/job-kinds.md lists the kinds")
	}
	return nil
}

// Consider asks the queue about an object that is not there; the answer is nil where it is no job.
func Consider(ctx context.Context, c *cluster.Client, object *unstructured.Unstructured) (name string, plan *v1alpha1.PlanStatus, err error) {
	kind, err := job.KindOf(ctx, c, object)
	if err != nil || kind == nil {
		return "", nil, err
	}
	name = strings.ToLower(object.GetKind()) + "/" + object.GetName()
	wl, err := kind.PreviewWorkload(ctx, c, checked(ctx, c, object))
	if err != nil {
		return name, nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	answer, err := job.Plan(ctx, c, wl)
	if err != nil {
		return name, nil, fmt.Errorf("asking the queue about %s: %w", name, err)
	}
	return name, answer.Status, nil
}

// checked is the object as the API server would make it, or as it is where the
// server does not say: its defaults are part of what is asked for.
func checked(ctx context.Context, c *cluster.Client, object *unstructured.Unstructured) *unstructured.Unstructured {
	try := object.DeepCopy()
	if err := c.Create(ctx, try, client.DryRunAll); err != nil {
		return object
	}
	return try
}
