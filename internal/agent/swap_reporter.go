package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// swapReportPeriod is how often pods that are to be swapped are asked whether they could be.
const swapReportPeriod = 10 * time.Second

// SwapReporter says of pods that are swapped when they are preempted whether that would work, before it is tried: in the
// condition Swappable. Who chooses what becomes of a preempted job reads it. It says so of servers, too: what their users, on
// other nodes, have here is theirs.
type SwapReporter struct {
	Client    client.Client
	Grants    func() ([]slots.Grant, error)
	Processes func(ctx context.Context, s *share.Share) ([]gpushare.Process, error)
	// Server is the pod that has what a container has on a card of another node.
	Server func(ctx context.Context, to *share.Remote) (*corev1.Pod, error)
	Log    logr.Logger
}

// Start reports until ctx ends.
func (r *SwapReporter) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.Report(ctx); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "reporting which pods could be swapped")
		}
	}, swapReportPeriod)
	return nil
}

// Report on all pods once. One whose processes do not answer, or whose object is not to be had, is left as it is.
func (r *SwapReporter) Report(ctx context.Context) error {
	grants, err := r.Grants()
	if err != nil {
		return err
	}
	of := map[types.UID][]slots.Grant{}
	for _, g := range grants {
		if g.UID != "" && g.Pod.Name != "" {
			of[g.UID] = append(of[g.UID], g)
		}
	}
	var failed error
	for uid, mine := range of {
		err := panics.Contain(r.Log, "swappable", mine[0].Pod.String(), func() error { return r.report(ctx, uid, mine) })
		if err != nil && !panics.Is(err) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (r *SwapReporter) report(ctx context.Context, uid types.UID, mine []slots.Grant) error {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, mine[0].Pod, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	asked := pod.Annotations[egpu.OnPreemptionAnnotation] == egpu.OnPreemptionSwap || mine[0].Serves != ""
	if pod.UID != uid || !asked || pod.Annotations[egpu.SwapAnnotation] != "" {
		return nil
	}
	why, known := r.immovable(ctx, mine)
	if !known {
		return nil
	}
	now := corev1.PodCondition{Type: egpu.Swappable, Status: corev1.ConditionTrue, Reason: egpu.ReasonMovable, LastTransitionTime: metav1.Now()}
	if why != "" {
		now.Status, now.Reason, now.Message = corev1.ConditionFalse, egpu.ReasonImmovable, why
	}
	return r.write(ctx, pod, now)
}

// immovable says why one of a pod's containers could not be moved; known is false where one does not answer, or has
// nothing on a card yet. A server that has nothing there any more is movable: what it says is of who uses it next.
func (r *SwapReporter) immovable(ctx context.Context, mine []slots.Grant) (why string, known bool) {
	if why := immovable(mine); why != "" {
		return why, true
	}
	for i := range mine {
		if mine[i].Remote != nil {
			why, said := r.serverImmovable(ctx, &mine[i])
			if why != "" || !said {
				return why, said
			}
			known = true
			continue
		}
		processes, err := r.Processes(ctx, &mine[i].Share)
		if err != nil {
			return "", false
		}
		for _, p := range processes {
			switch {
			case p.Silent:
				return "", false
			case p.Immovable != "":
				return fmt.Sprintf("container %s: process %d: %s", mine[i].Container, p.PID, p.Immovable), true
			}
			known = true
		}
	}
	return "", known || mine[0].Serves != ""
}

// write the condition, if it says something new.
func (r *SwapReporter) write(ctx context.Context, pod *corev1.Pod, now corev1.PodCondition) error {
	changed := pod.DeepCopy()
	for i := range changed.Status.Conditions {
		was := &changed.Status.Conditions[i]
		if was.Type != now.Type {
			continue
		}
		if was.Status == now.Status && was.Reason == now.Reason && was.Message == now.Message {
			return nil
		}
		if was.Status == now.Status {
			now.LastTransitionTime = was.LastTransitionTime
		}
		*was = now
		return client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(pod)))
	}
	changed.Status.Conditions = append(changed.Status.Conditions, now)
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(pod)))
}
