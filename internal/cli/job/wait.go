package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

func waitCommand(flags *cluster.Flags) *cobra.Command {
	var typed, until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait JOB", Short: "Wait until a job has ended, or runs",
		Long: `Wait until a job has ended, with a line that shows its status: its reason
and its position in the queue, then its pods. The exit code is 1 if it failed.`,
		Example: "  elastic wait train\n  elastic wait train --for running --timeout 1h",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: Complete(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			goal := map[string]string{"running": Running, "finished": Succeeded}[strings.ToLower(until)]
			if goal == "" {
				return fmt.Errorf("--for %q is not known: running or finished", until)
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			cmd.SetContext(ctx)
			err = waitFor(cmd, c, args[0], typed, goal)
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("job %s is not %s after %s: see '%s explain %s'", args[0], until, timeout, cmd.Root().Name(), args[0])
			}
			return err
		},
	}
	AddType(cmd, &typed)
	cmd.Flags().StringVar(&until, "for", "finished", "what to wait for: running or finished")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after so long")
	return cmd
}

// waitFor shows a job's progress on one line until it has reached the goal.
func waitFor(cmd *cobra.Command, c *cluster.Client, name, typed, goal string) error {
	ctx := cmd.Context()
	s := output.To(cmd.ErrOrStderr())
	line := s.Line()
	defer line.End()
	for {
		job, err := Get(ctx, c, name, typed)
		if err != nil {
			return err
		}
		info, err := job.Describe(ctx, c, time.Now())
		if err != nil {
			return err
		}
		text := progressLine(s, &info)
		if info.Status == Queuing && job.Workload != nil {
			// Where the queue cannot be asked, the status still has the reason.
			if standing, err := Ask(ctx, c, job.Workload); err == nil {
				text += queuePosition(standing, time.Now())
			}
		}
		line.Show(text)
		switch {
		case info.Status == Failed && goal != Running:
			return fmt.Errorf("job %s failed: %s", name, orNA(info.Reason))
		case info.Status == Succeeded, info.Status == Failed, info.Status == goal && info.Up() >= info.Pods:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// progressLine is the status of a job, in one line. On a terminal it also shows the time.
func progressLine(s output.Writer, info *Info) string {
	text := info.Name + ": " + info.Status
	if s.Live {
		text += " " + info.duration()
	}
	switch info.Status {
	case Queuing:
		if info.Reason != "" {
			text += ", " + info.Reason
		}
	case Running, Pending:
		text += fmt.Sprintf(", %d of %d pods up", info.Up(), max(info.Pods, len(info.Instances)))
	}
	return text
}

// Ask gets the queue's explanation of a workload.
func Ask(ctx context.Context, c *cluster.Client, wl *kueue.Workload) (*v1alpha1.WorkloadStanding, error) {
	data, err := c.Core.CoreV1().RESTClient().Get().AbsPath("/apis", v1alpha1.Group, v1alpha1.Version,
		"namespaces", wl.Namespace, v1alpha1.Explanations, wl.Name).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	explanation := &v1alpha1.Explanation{}
	if err := json.Unmarshal(data, explanation); err != nil {
		return nil, err
	}
	return &explanation.WorkloadStanding, nil
}

// Plan asks the queue what would happen to a workload that does not exist yet.
func Plan(ctx context.Context, c *cluster.Client, wl *kueue.Workload) (*v1alpha1.Plan, error) {
	plan := &v1alpha1.Plan{Spec: v1alpha1.PlanSpec{Workload: wl.Spec}}
	plan.APIVersion, plan.Kind, plan.Name = v1alpha1.Group+"/"+v1alpha1.Version, "Plan", wl.Name
	plan.Annotations = wl.Annotations // what it comes after, and what its nodes may cost
	body, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	data, err := c.Core.CoreV1().RESTClient().Post().AbsPath("/apis", v1alpha1.Group, v1alpha1.Version, "namespaces", wl.Namespace, v1alpha1.Plans).
		SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, errors.New("this cluster's queue cannot be asked: elastic-queue is not installed, or older than this command")
	}
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.Plan{}
	if err := json.Unmarshal(data, answer); err != nil {
		return nil, err
	}
	if answer.Status == nil {
		return nil, errors.New("the queue's answer is empty")
	}
	return answer, nil
}

// queuePosition is the workload's position and when it should start.
func queuePosition(x *v1alpha1.WorkloadStanding, now time.Time) string {
	text := ""
	if x.Position > 0 {
		text = fmt.Sprintf(" [position %d", x.Position)
		if x.StartsAt != nil && x.StartsAt.After(now) {
			text += ", starts in about " + output.Duration(x.StartsAt.Sub(now).Round(time.Minute))
		}
		text += "]"
	}
	return text
}
