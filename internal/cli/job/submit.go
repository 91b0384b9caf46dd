package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// sending is how a submission is sent.
type sending struct {
	flags  *cluster.Flags
	dryRun bool
	check  bool
	wait   bool
	after  []string
	output output.Printer
	// afterEach is, for jobs of an array, what those of the same index come after.
	afterEach []string
	// plan reports whether jobs would start now, instead of sending them.
	plan func(cmd *cobra.Command, c *cluster.Client, printer *output.Printer, objects []*unstructured.Unstructured) error
}

func (s *sending) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.dryRun, "dry-run", false, "only print what would be created; it is checked by the server where there is one")
	cmd.Flags().BoolVar(&s.check, "check", false, "only say whether it would start now, where, and which workloads it would preempt")
	cmd.Flags().BoolVarP(&s.wait, "wait", "w", false, "wait until it has ended, with a live status line")
	cmd.Flags().StringArrayVar(&s.after, "after", nil, "start after JOB has succeeded, \"any JOB\" has ended, \"notok JOB\" has failed (repeatable)")
	s.output.AddTo(cmd, "yaml", "json", "name")
}

func submitCommand(flags *cluster.Flags, plan planner) *cobra.Command {
	var files []string
	var queue string
	send := &sending{flags: flags, plan: plan}
	cmd := &cobra.Command{
		Use:   "submit KIND --name NAME [flags] COMMAND | submit -f FILE",
		Short: "Submit a job",
		Long: `Submit a job: write it with flags, or give any manifest with -f. What follows the
flags is the command, run by --shell in every pod that runs one.`,
		Example: `  # One pod with a card, in the queue "main"
  elastic submit job --name train --image example.com/train:1 --gpus 1 --queue main "python train.py"

  # TensorFlow with two workers and a parameter server; only show the manifest
  elastic submit tfjob --name mnist --image example.com/tf:2 --workers 2 --ps 1 --gpus 1 --queue main --dry-run -o yaml "python mnist.py"

  # Would it start now?
  elastic submit pytorchjob --name big --image example.com/torch:2 --workers 8 --gpus 8 --queue main --check "torchrun train.py"

  # After another job has succeeded, and a third has ended
  elastic submit job --name test --image example.com/train:1 --queue main --after train --after "any clean" "python test.py"

  # An array of ten jobs, each after the same index of another array
  elastic submit job --name eval --array 0-9 --image example.com/eval:1 --queue main --after-each train 'python eval.py $ELASTIC_ARRAY_INDEX'

  # Anything else
  elastic submit -f job.yaml --queue main`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("kind %q is not known: give one of %s, or a manifest with -f", args[0], strings.Join(formNames(), ", "))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return cmd.Help()
			}
			objects, err := ReadFiles(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			return send.files(cmd, objects, queue)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifest to submit; - for standard input (repeatable)")
	cmd.Flags().StringVar(&queue, "queue", "", "the queue it waits in, where the manifest names none")
	send.addFlags(cmd)
	for i := range forms {
		cmd.AddCommand(formCommand(&forms[i], &sending{flags: flags, plan: plan}))
	}
	return cmd
}

func formNames() []string {
	var names []string
	for i := range forms {
		names = append(names, forms[i].names[0])
	}
	return names
}

func formCommand(f *form, send *sending) *cobra.Command {
	s := &submission{}
	cmd := &cobra.Command{
		Use: f.names[0] + " --name NAME [flags] COMMAND", Aliases: f.names[1:], Short: "Submit " + f.short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.container != "" {
				_ = cmd.Help()
				return errNoCommand
			}
			if err := s.read(f, args); err != nil {
				return err
			}
			return send.form(cmd, f, s)
		},
	}
	s.addFlags(f, cmd.Flags())
	send.addFlags(cmd)
	cmd.Flags().StringVar(&s.indexes, "array", "", "submit a job for each index, as in 0-9 or 1,3,7-8: NAME-0 and so on, with its index in "+arrayIndexVariable)
	cmd.Flags().StringArrayVar(&send.afterEach, "after-each", nil, "with --array, start each index after the same index of the array or indexed Job JOB has succeeded; as --after otherwise (repeatable)")
	return cmd
}

// form sends a job written from flags.
func (s *sending) form(cmd *cobra.Command, f *form, sub *submission) error {
	c, err := s.flags.Connect()
	if err != nil && !s.dryRun {
		return err
	}
	namespace := s.flags.Namespace // without a cluster a manifest can still be shown
	if c != nil {
		namespace = c.Namespace
	}
	if err := sub.findHost(cmd.Context(), c); err != nil {
		return err
	}
	switch {
	case sub.indexes != "":
		return s.array(cmd, c, f, sub, namespace)
	case len(s.afterEach) > 0:
		return errors.New("--after-each is for jobs of an array: give it with --array, or use --after")
	}
	objects, err := sub.objects(f, namespace)
	if err != nil {
		return err
	}
	if err := comeAfter(cmd.Context(), c, objects[:1], s.after); err != nil {
		return err
	}
	if s.dryRun {
		return s.show(cmd.OutOrStdout(), objects)
	}
	if s.check {
		return s.plan(cmd, c, &s.output, objects[:1])
	}
	if err := create(cmd, c, objects); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	name := cmd.Root().Name()
	if s.output.Format != "" {
		if err := s.show(out, objects[:1]); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "The Job %s has been submitted successfully\n", sub.name)
		fmt.Fprintf(out, "You can run `%s get %s --type %s` to check the job status\n", name, sub.name, f.names[0])
	}
	if s.wait {
		return waitFor(cmd, c, sub.name, f.names[0], Succeeded)
	}
	return nil
}

// create creates the job, and the objects that belong to it, owned by it.
func create(cmd *cobra.Command, c *cluster.Client, objects []*unstructured.Unstructured) error {
	job := objects[0]
	err := createAll(cmd.Context(), c, objects)
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("the job %s is already exist, please delete it first. use '%s delete %s'", job.GetName(), cmd.Root().Name(), job.GetName())
	case absent(err):
		return fmt.Errorf("this cluster does not know %s (%s): install its operator, or submit another kind: %w", job.GetKind(), job.GetAPIVersion(), err)
	}
	return err
}

// createAll creates the first object, and the others owned by it.
func createAll(ctx context.Context, c *cluster.Client, objects []*unstructured.Unstructured) error {
	first := objects[0]
	if err := c.Create(ctx, first); err != nil {
		return err
	}
	for _, object := range objects[1:] {
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: first.GetAPIVersion(), Kind: first.GetKind(), Name: first.GetName(), UID: first.GetUID(), Controller: ptr.To(false),
		}})
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s of it failed: %v", object.GetKind(), object.GetName(), err) //nolint:errorlint // callers must not take it for an error of the first object
		}
	}
	return nil
}

// files sends manifests as they are, in the queue given where they name none.
func (s *sending) files(cmd *cobra.Command, objects []*unstructured.Unstructured, queue string) error {
	c, err := s.flags.Connect()
	if err != nil && !s.dryRun {
		return err
	}
	if err := Settle(c, objects, queue); err != nil {
		return err
	}
	if err := comeAfter(cmd.Context(), c, objects, s.after); err != nil {
		return err
	}
	if s.dryRun {
		return s.show(cmd.OutOrStdout(), objects)
	}
	if s.check {
		return s.plan(cmd, c, &s.output, objects)
	}
	for _, object := range objects {
		if err := create(cmd, c, []*unstructured.Unstructured{object}); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s/%s created\n", strings.ToLower(object.GetKind()), object.GetName())
	}
	if s.wait {
		last := objects[len(objects)-1]
		return waitFor(cmd, c, last.GetName(), strings.ToLower(last.GetKind()), Succeeded)
	}
	return nil
}

// Settle puts objects without a queue into the given one, and objects without a namespace into the
// command's. Without a cluster the namespace is not known.
func Settle(c *cluster.Client, objects []*unstructured.Unstructured, queue string) error {
	for _, object := range objects {
		if queue != "" && queueOf(object) == "" {
			labels := object.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[kinds.QueueNameLabel] = queue
			object.SetLabels(labels)
		}
		if c != nil && object.GetNamespace() == "" {
			if err := inNamespace(c, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// inNamespace puts an object of a namespaced kind into the command's namespace.
func inNamespace(c *cluster.Client, object *unstructured.Unstructured) error {
	namespaced, err := c.IsObjectNamespaced(object)
	if err != nil {
		return fmt.Errorf("this cluster does not know %s (%s): %w", object.GetKind(), object.GetAPIVersion(), err)
	}
	if namespaced {
		object.SetNamespace(c.Namespace)
	}
	return nil
}

// show prints objects, as YAML by default.
func (s *sending) show(w io.Writer, objects []*unstructured.Unstructured) error {
	switch s.output.Format {
	case "json", "name":
		for _, object := range objects {
			name := strings.ToLower(object.GetKind()) + "/" + object.GetName()
			if err := s.output.Print(w, object.Object, []string{name}, nil); err != nil {
				return err
			}
		}
		return nil
	}
	for i, object := range objects {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// ReadFiles reads manifests; - is standard input.
func ReadFiles(stdin io.Reader, names []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, name := range names {
		var data []byte
		var err error
		if name == "-" {
			data, err = io.ReadAll(stdin)
		} else {
			data, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, err
		}
		objects, err := deploy.Decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s is no manifest: %w", name, err)
		}
		all = append(all, objects...)
	}
	if len(all) == 0 {
		return nil, errors.New("the manifest is empty")
	}
	return all, nil
}
