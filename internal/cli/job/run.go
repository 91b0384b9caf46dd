package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// ExitError is the end of a command that ran as a job, or in a pod of one, with its exit code.
type ExitError struct {
	Job     string // or pod
	Command string // in the pod; empty for the job itself
	Code    int
}

func (e *ExitError) Error() string {
	if e.Command != "" {
		return fmt.Sprintf("%s in %s ended with exit code %d", e.Command, e.Job, e.Code)
	}
	return fmt.Sprintf("job %s ended with exit code %d", e.Job, e.Code)
}

func runCommand(flags *cluster.Flags) *cobra.Command {
	f, s, remove := formNamed("job"), &submission{}, false
	cmd := &cobra.Command{
		Use: "run [flags] -- COMMAND...", Short: "Run a command as a job, and end with its exit code",
		Long: `Run a command as a job: wait for its turn with a live status line, show what it
writes, and end with its exit code. Ctrl-C deletes the job. One that is stopped
for another waits and begins again.`,
		Example: "  elastic run --image example.com/train:1 --gpus 0.5 --queue main -- python train.py --epochs 3",
		Args:    cobra.MinimumNArgs(1),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			if s.name == "" {
				s.name = "run-" + rand.String(5)
			}
			if s.workers != 1 {
				return errors.New("run has one pod: use submit for more workers")
			}
			if err := s.read(f, []string{shellWords(args)}); err != nil {
				return err
			}
			if err := s.findHost(cmd.Context(), c); err != nil {
				return err
			}
			objects, err := s.objects(f, c.Namespace)
			if err != nil {
				return err
			}
			if err := create(cmd, c, objects); err != nil {
				return err
			}
			err = follow(cmd, c, s.name)
			if remove || cmd.Context().Err() != nil {
				err = errors.Join(err, removeRun(c, objects[0]))
			}
			return err
		}),
	}
	s.addFlags(f, cmd.Flags())
	cmd.Flags().Lookup("name").Usage = "name of the job (default run- and five letters)"
	cmd.Flags().BoolVar(&remove, "rm", false, "delete the job when it has ended")
	return cmd
}

// shellWords is a command line whose words are the arguments; a single one is a line already.
func shellWords(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = arg
		if arg == "" || strings.ContainsAny(arg, " \t\n\"'`$&|;<>()*?[]#~%!\\{}") {
			words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// follow shows what a job writes until it has ended, in each of its pods if it is started again.
func follow(cmd *cobra.Command, c *cluster.Client, name string) error {
	l := &logging{options: corev1.PodLogOptions{Follow: true}}
	for {
		if err := l.run(cmd, c, name, "job"); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		ended, err := endOf(cmd.Context(), c, name)
		if ended || err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "job %s was stopped and waits: see '%s explain %s'\n", name, cmd.Root().Name(), name)
	}
}

// endOf waits until a job whose pod writes nothing more has ended, or has no pod any more: it was stopped.
func endOf(ctx context.Context, c *cluster.Client, name string) (bool, error) {
	for {
		job, err := Get(ctx, c, name, "job")
		if err != nil {
			return false, err
		}
		info, err := job.Describe(ctx, c, time.Now())
		switch {
		case err != nil:
			return false, err
		case info.Status == Succeeded:
			return true, nil
		case info.Status == Failed:
			if code := exitCode(job.Pods); code != 0 {
				return true, &ExitError{Job: name, Code: code}
			}
			return true, fmt.Errorf("job %s failed: %s", name, orNA(info.Reason))
		case len(job.Pods) == 0:
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// exitCode of the first container that failed; 0 if none says so.
func exitCode(pods []*corev1.Pod) int {
	for _, pod := range pods {
		for i := range pod.Status.ContainerStatuses {
			if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && end.ExitCode != 0 {
				return int(end.ExitCode)
			}
		}
	}
	return 0
}

// removeRun deletes the job, also after the command was interrupted.
func removeRun(c *cluster.Client, job *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.IgnoreNotFound(c.Delete(ctx, job, client.PropagationPolicy("Background")))
}
