package job

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

var elasticTraining = schema.GroupVersion{Group: "kai.alibabacloud.com", Version: "v1alpha1"}

func scaleInCommand(flags *cluster.Flags) *cobra.Command {
	return scaleCommand(flags, "scalein", "ScaleIn", "toDelete", "Take workers away from a job that runs", "to take away")
}

func scaleOutCommand(flags *cluster.Flags) *cobra.Command {
	return scaleCommand(flags, "scaleout", "ScaleOut", "toAdd", "Give workers to a job that runs", "to add")
}

func scaleCommand(flags *cluster.Flags, use, kind, field, short, count string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Long: short + `. Arena has it for the jobs of the et-operator only (etjob), which
this project does not bring: what is created is the object that operator
acts on, and new workers wait in the job's queue. Other jobs that Elastic queues grow and shrink by their own spec,
as in 'kubectl patch'; docs/job-kinds.md says which.`,
	}
	r := &rescaling{flags: flags, kind: kind, field: field, use: use}
	scale := &cobra.Command{
		Use: "etjob --name NAME [flags]", Aliases: []string{"et"}, Short: short + " of the et-operator", Example: "  elastic " + use + " etjob --name train --count 2", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.send(cmd) },
	}
	f := scale.Flags()
	f.StringVar(&r.name, "name", "", "name of the job (required)")
	f.IntVar(&r.count, "count", 1, "number of workers "+count)
	f.IntVar(&r.retry, "retry", 0, "how often to try again")
	f.DurationVarP(&r.timeout, "timeout", "t", time.Minute, "longest the script may take")
	f.StringVar(&r.script, "script", "", "what the job's launcher runs to take note")
	f.StringArrayVarP(&r.envs, "env", "e", nil, "environment variable of the script, NAME=VALUE (repeatable)")
	f.BoolVar(&r.dryRun, "dry-run", false, "only print what would be created")
	r.output.AddTo(scale, "yaml", "json", "name")
	cmd.AddCommand(scale)
	return cmd
}

// rescaling holds the flags of scalein and scaleout.
type rescaling struct {
	flags            *cluster.Flags
	use, kind, field string
	name, script     string
	count, retry     int
	timeout          time.Duration
	envs             []string
	dryRun           bool
	output           output.Printer
}

func (r *rescaling) send(cmd *cobra.Command) error {
	switch {
	case r.name == "":
		return errors.New("say which job with --name")
	case r.count < 1:
		return errors.New("--count is at least 1")
	}
	c, err := r.flags.Connect()
	if err != nil && !r.dryRun {
		return err
	}
	namespace := r.flags.Namespace
	if c != nil {
		namespace = c.Namespace
	}
	object := r.object(namespace, time.Now())
	if r.dryRun {
		show := &sending{output: r.output}
		return show.show(cmd.OutOrStdout(), []*unstructured.Unstructured{object})
	}
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(elasticTraining.WithKind("TrainingJob"))
	err = c.Get(cmd.Context(), client.ObjectKey{Namespace: namespace, Name: r.name}, job)
	if err == nil {
		err = c.Create(cmd.Context(), object)
	}
	switch {
	case absent(err):
		return fmt.Errorf("there is no etjob %q in namespace %q, or no et-operator in this cluster: %w", r.name, namespace, err)
	case err != nil:
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The %s job %s has been submitted successfully\n", r.use, object.GetName())
	return nil
}

func (r *rescaling) object(namespace string, now time.Time) *unstructured.Unstructured {
	spec := map[string]any{
		"selector": map[string]any{"name": r.name}, "script": r.script, "timeout": int64(r.timeout.Seconds()), r.field: map[string]any{"count": int64(r.count)},
	}
	if r.retry > 0 {
		spec["backoffLimit"] = int64(r.retry)
	}
	if env := (&submission{envs: r.envs}).environment(); len(env) > 0 {
		spec["env"] = env
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(elasticTraining.WithKind(r.kind))
	object.SetNamespace(namespace)
	object.SetName(fmt.Sprintf("%s-%d", r.name, now.Unix()))
	return object
}
