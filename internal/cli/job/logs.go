package job

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
)

// logging holds the flags of logs.
type logging struct {
	options             corev1.PodLogOptions
	instance, sinceTime string
	since               time.Duration
	tail                int64
	all                 bool
}

func logsCommand(flags *cluster.Flags) *cobra.Command {
	var typed string
	l := &logging{}
	cmd := &cobra.Command{
		Use: "logs JOB", Short: "Show what a job writes",
		Long: `Show what a job writes: its chief, or the first of its pods, unless -i names
another or --all asks for every one. With -f it waits for a job that is queued.`,
		Example: "  elastic logs -f train\n  elastic logs train -i train-worker-1 -t 100\n  elastic logs train --all",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: Complete(flags),
		RunE: withCluster(flags, func(cmd *cobra.Command, c *cluster.Client, args []string) error {
			if err := l.read(); err != nil {
				return err
			}
			return l.run(cmd, c, args[0], typed)
		}),
	}
	AddType(cmd, &typed)
	f := cmd.Flags()
	f.BoolVarP(&l.options.Follow, "follow", "f", false, "go on as it writes more")
	f.StringVarP(&l.instance, "instance", "i", "", "the pod, as 'get' names it")
	f.StringVarP(&l.options.Container, "container", "c", "", "the container")
	f.Int64VarP(&l.tail, "tail", "t", -1, "only so many lines from the end")
	f.DurationVar(&l.since, "since", 0, "only what is newer, as in 5m")
	f.StringVar(&l.sinceTime, "since-time", "", "only what is newer than a time (RFC 3339)")
	f.BoolVar(&l.options.Timestamps, "timestamps", false, "with the time of each line")
	f.BoolVar(&l.options.Previous, "previous", false, "of the container before its last restart")
	f.BoolVar(&l.all, "all", false, "of all pods, each line with its pod's name")
	return cmd
}

func (l *logging) read() error {
	if l.tail >= 0 {
		l.options.TailLines = &l.tail
	}
	if l.since > 0 {
		l.options.SinceSeconds = ptr.To(int64(l.since.Seconds()))
	}
	if l.sinceTime != "" {
		t, err := time.Parse(time.RFC3339, l.sinceTime)
		if err != nil {
			return fmt.Errorf("--since-time %q is no time: write it as %s", l.sinceTime, time.RFC3339)
		}
		l.options.SinceTime = &metav1.Time{Time: t}
	}
	return nil
}

func (l *logging) run(cmd *cobra.Command, c *cluster.Client, name, typed string) error {
	job, err := Get(cmd.Context(), c, name, typed)
	if err != nil {
		return err
	}
	pods, err := job.choose(l.instance, l.all)
	if errors.Is(err, errNoPods) && l.options.Follow && l.instance == "" {
		if err := waitFor(cmd, c, name, typed, Running); err != nil {
			return err
		}
		if job, err = Get(cmd.Context(), c, name, typed); err == nil {
			pods, err = job.choose("", l.all)
		}
	}
	if err != nil {
		return job.explainNoPods(cmd, err)
	}
	if l.options.Follow {
		for i, pod := range pods {
			if pods[i], err = started(cmd.Context(), c, pod); err != nil {
				return err
			}
		}
	}
	out := &lines{to: cmd.OutOrStdout()}
	if len(pods) == 1 {
		return l.copy(cmd.Context(), c, pods[0], "", out)
	}
	var group sync.WaitGroup
	failed := make([]error, len(pods))
	for i, pod := range pods {
		group.Go(func() { failed[i] = l.copy(cmd.Context(), c, pod, pod.Name+": ", out) })
	}
	group.Wait()
	return errors.Join(failed...)
}

var errNoPods = errors.New("it has no pods")

// explainNoPods says why there is nothing to read yet.
func (j *Job) explainNoPods(cmd *cobra.Command, err error) error {
	if !errors.Is(err, errNoPods) {
		return err
	}
	name, view := j.Object.GetName(), ""
	if info, err := j.Kind.View(j.Object); err == nil && info.Suspended {
		return fmt.Errorf("job %s has not started: see '%s explain %s'; 'logs -f' waits for it", name, cmd.Root().Name(), name)
	}
	return fmt.Errorf("job %s has no pods%s: see '%s get %s'", name, view, cmd.Root().Name(), name)
}

// choose the pods to read from.
func (j *Job) choose(instance string, all bool) ([]*corev1.Pod, error) {
	switch {
	case len(j.Pods) == 0:
		return nil, errNoPods
	case instance == "" && all:
		return j.Pods, nil
	case instance == "":
		return j.Pods[:1], nil
	}
	for _, pod := range j.Pods {
		if pod.Name == instance {
			return []*corev1.Pod{pod}, nil
		}
	}
	return nil, fmt.Errorf("job %s has no pod %q: 'get' lists its instances", j.Object.GetName(), instance)
}

// started waits until a pod has a container that runs or ran.
func started(ctx context.Context, c *cluster.Client, pod *corev1.Pod) (*corev1.Pod, error) {
	for {
		if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
			return pod, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		now := &corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return nil, err
		}
		pod = now
	}
}

// lines writes what several pods print in whole lines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *logging) copy(ctx context.Context, c *cluster.Client, pod *corev1.Pod, prefix string, out *lines) error {
	options := l.options
	options.Container = cmp.Or(options.Container, pod.Annotations["kubectl.kubernetes.io/default-container"], pod.Spec.Containers[0].Name)
	stream, err := c.Core.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("reading the log of %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }()
	reader := bufio.NewReader(stream)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			out.mu.Lock()
			_, werr := io.WriteString(out.to, prefix+line)
			out.mu.Unlock()
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the log of %s: %w", pod.Name, err)
		}
	}
}

func attachCommand(flags *cluster.Flags) *cobra.Command {
	var typed, instance, container string
	cmd := &cobra.Command{
		Use: "attach JOB [COMMAND...]", Short: "Enter a job's container",
		Long: `Run a command, a shell if none is given, in a running container of a job: its
chief, or the first of its pods, unless -i names another; and end with its exit code.`,
		Example: "  elastic attach train\n  elastic attach train -i train-worker-1 -- nvidia-smi",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: Complete(flags),
		RunE: withJob(flags, &typed, func(cmd *cobra.Command, c *cluster.Client, job *Job, command []string) error {
			pods, err := job.choose(instance, false)
			if err != nil {
				return job.explainNoPods(cmd, err)
			}
			if len(command) == 0 {
				command = []string{"sh"}
			}
			return enter(cmd, c, pods[0], cmp.Or(container, pods[0].Spec.Containers[0].Name), command)
		}),
	}
	AddType(cmd, &typed)
	cmd.Flags().StringVarP(&instance, "instance", "i", "", "the pod, as 'get' names it")
	cmd.Flags().StringVarP(&container, "container", "c", "", "the container")
	return cmd
}

// enter runs a command in a container, on this terminal if it is one.
func enter(cmd *cobra.Command, c *cluster.Client, pod *corev1.Pod, container string, command []string) error {
	stdin, isFile := cmd.InOrStdin().(*os.File)
	tty := isFile && term.IsTerminal(int(stdin.Fd()))
	request := c.Core.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: command, Stdin: true, Stdout: true, Stderr: !tty, TTY: tty,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.REST, "GET", request.URL().String())
	if err != nil {
		return err
	}
	if tty {
		before, err := term.MakeRaw(int(stdin.Fd()))
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(int(stdin.Fd()), before) }()
	}
	options := remotecommand.StreamOptions{Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Tty: tty}
	if !tty {
		options.Stderr = cmd.ErrOrStderr()
	}
	err = executor.StreamWithContext(cmd.Context(), options)
	if end := (exec.CodeExitError{}); errors.As(err, &end) {
		return &ExitError{Job: pod.Name, Code: end.Code, Command: command[0]}
	}
	if err != nil {
		return fmt.Errorf("entering %s of %s: %w", container, pod.Name, err)
	}
	return nil
}
