package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// Swapper moves the card memory of pods to the host and back, when their annotation says so.
type Swapper struct {
	Client client.Client
	Grants func() ([]slots.Grant, error)
	Shares interface {
		Out(ctx context.Context, id string) (int64, error)
		In(ctx context.Context, id string) (int64, error)
	}
}

// allocationPoll is when the GPU objects are read again.
const allocationPoll = time.Second

// newProcessPoll is how often pods that are out are looked at for processes that have begun since.
const newProcessPoll = 5 * time.Second

// retryPeriod is when a move that was refused is tried once more: what stood in its way may have gone.
const retryPeriod = 30 * time.Second

// SetupWithManager watches the node's pods that have the annotation.
func (s *Swapper) SetupWithManager(mgr ctrl.Manager) error {
	asked := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetAnnotations()[egpu.SwapAnnotation] != "" })
	return ctrl.NewControllerManagedBy(mgr).Named("swapper").
		For(&corev1.Pod{}, builder.WithPredicates(asked, predicate.AnnotationChangedPredicate{})).
		Complete(s)
}

// Reconcile has a pod's memory where its annotation says. To move what is there already does nothing.
func (s *Swapper) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := s.Client.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	move, status, reason, failed := s.Shares.In, corev1.ConditionFalse, egpu.ReasonMovedIn, egpu.ReasonCannotMoveIn
	// Where it stays if it cannot be moved.
	stays := corev1.ConditionFalse
	if isOut(pod) {
		stays = corev1.ConditionTrue
	}
	switch where := pod.Annotations[egpu.SwapAnnotation]; where {
	case egpu.SwapIn:
	case egpu.SwapOut:
		move, status, reason, failed = s.Shares.Out, corev1.ConditionTrue, egpu.ReasonMovedOut, egpu.ReasonCannotMoveOut
	default:
		return ctrl.Result{}, s.report(ctx, pod, stays, egpu.ReasonCannotMoveOut, fmt.Sprintf("annotation %s is %q: write out or in", egpu.SwapAnnotation, where))
	}
	refuse := func(later time.Duration, format string, words ...any) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: later}, s.report(ctx, pod, stays, failed, fmt.Sprintf(format, words...))
	}
	mine, err := s.grantsOf(pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why := immovable(mine); why != "" {
		return refuse(retryPeriod, "%s", why)
	}
	if status == corev1.ConditionFalse && stays == corev1.ConditionTrue {
		known, full, err := s.canReturn(ctx, pod, mine)
		switch {
		case err != nil:
			return ctrl.Result{}, err
		case full != "":
			return refuse(retryPeriod, "%s", full)
		case !known:
			return ctrl.Result{RequeueAfter: allocationPoll}, nil
		}
	}
	var back func(context.Context, string) (int64, error)
	if status == corev1.ConditionTrue && stays == corev1.ConditionFalse {
		back = s.Shares.In // all of a pod is out, or nothing
	}
	bytes, err := moveAll(ctx, mine, move, back)
	if err != nil {
		return refuse(retryPeriod, "%v", err)
	}
	result := ctrl.Result{}
	if status == corev1.ConditionTrue {
		result.RequeueAfter = newProcessPoll
		if stays == corev1.ConditionTrue && bytes == 0 {
			return result, nil // nothing new was there
		}
	}
	return result, s.report(ctx, pod, status, reason, fmt.Sprintf("%d MiB of %d containers", bytes>>20, len(mine)))
}

// immovable says why what a pod has cannot be moved at all.
func immovable(grants []slots.Grant) string {
	if len(grants) == 0 {
		return "no container of it has a share here yet"
	}
	for _, g := range grants {
		if g.Backend != "gpushare" {
			return fmt.Sprintf("container %s has its cards by %s: only shares by the library move", g.Container, g.Backend)
		}
	}
	return ""
}

// moveAll containers' shares; if one cannot be moved those before it are moved back.
func moveAll(ctx context.Context, grants []slots.Grant, move, back func(context.Context, string) (int64, error)) (int64, error) {
	var bytes int64
	for i, g := range grants {
		moved, err := move(ctx, g.ID)
		if err == nil {
			bytes += moved
			continue
		}
		err = fmt.Errorf("container %s: %w", g.Container, err)
		for j := 0; j < i && back != nil; j++ {
			_, failed := back(ctx, grants[j].ID)
			err = errors.Join(err, failed)
		}
		return 0, err
	}
	return bytes, nil
}

func (s *Swapper) grantsOf(pod *corev1.Pod) ([]slots.Grant, error) {
	grants, err := s.Grants()
	return slices.DeleteFunc(grants, func(g slots.Grant) bool { return g.UID != pod.UID }), err
}

// isOut says the pod was last reported to be out.
func isOut(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == egpu.SwappedOut && c.Status == corev1.ConditionTrue
	})
}

// canReturn says whether the cards of a pod that is out have capacity for it. While it was out the scheduler could give
// that capacity to others. It enters the pod in the GPU objects again as soon as the pod is to come back; if a card is
// then allocated beyond what it has, the pod cannot return. Shares by claims stay allocated, and need no check.
func (s *Swapper) canReturn(ctx context.Context, pod *corev1.Pod, mine []slots.Grant) (known bool, full string, err error) {
	if asks, err := request.Pod(pod, nil); err != nil || len(asks.Containers) == 0 {
		return true, "", err
	}
	for _, g := range mine {
		for _, card := range g.Cards {
			gpu := &egpu.GPU{}
			if err := s.Client.Get(ctx, client.ObjectKey{Name: objectName(pod.Spec.NodeName, card.Index)}, gpu); err != nil {
				return false, "", err
			}
			record := gpu.Status.Allocated[pod.Namespace+"/"+pod.Name]
			if record == nil || record.UID != pod.UID {
				return false, "", nil
			}
			if record.Guessed {
				return true, fmt.Sprintf("card %d: the scheduler does not know that the pod had it", card.Index), nil
			}
			var core, memory int64
			for _, user := range gpu.Status.Allocated {
				for _, c := range user.Containers {
					core += c.Resource.Name(egpu.ResourceCore, resource.DecimalSI).Value()
					memory += c.Resource.Name(egpu.ResourceMemory, resource.DecimalSI).Value()
				}
			}
			if core > 100 || memory > gpu.Spec.Memory {
				return true, fmt.Sprintf("card %d was given to others meanwhile: with it, %d percent and %d of %d MiB are given out", card.Index, core, memory, gpu.Spec.Memory), nil
			}
		}
	}
	return true, "", nil
}

// report in the pod's conditions.
func (s *Swapper) report(ctx context.Context, pod *corev1.Pod, status corev1.ConditionStatus, reason, message string) error {
	changed := pod.DeepCopy()
	condition := corev1.PodCondition{Type: egpu.SwappedOut, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
	found := false
	for i := range changed.Status.Conditions {
		c := &changed.Status.Conditions[i]
		if c.Type != egpu.SwappedOut {
			continue
		}
		found = true
		if c.Status == status {
			condition.LastTransitionTime = c.LastTransitionTime
		}
		*c = condition
	}
	if !found {
		changed.Status.Conditions = append(changed.Status.Conditions, condition)
	}
	return s.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(pod))
}
