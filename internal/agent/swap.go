package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/slots"
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

// Reasons of the condition SwappedOut.
const (
	movedOut   = "MovedOut"
	movedIn    = "MovedIn"
	moveFailed = "CannotMove"
)

// again is when a move that was refused is tried once more: what stood in its way may have gone.
const again = 30 * time.Second

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
	move, status, reason := s.Shares.In, corev1.ConditionFalse, movedIn
	switch where := pod.Annotations[egpu.SwapAnnotation]; where {
	case "in":
	case "out":
		move, status, reason = s.Shares.Out, corev1.ConditionTrue, movedOut
	default:
		return ctrl.Result{}, s.report(ctx, pod, corev1.ConditionFalse, moveFailed, fmt.Sprintf("annotation %s is %q: write out or in", egpu.SwapAnnotation, where))
	}
	grants, err := s.Grants()
	if err != nil {
		return ctrl.Result{}, err
	}
	var bytes int64
	containers := 0
	for _, g := range grants {
		if g.UID != pod.UID {
			continue
		}
		if g.Backend != "gpushare" {
			return ctrl.Result{}, s.report(ctx, pod, corev1.ConditionFalse, moveFailed, fmt.Sprintf("container %s has its cards by %s: only shares by the library move", g.Container, g.Backend))
		}
		moved, err := move(ctx, g.ID)
		if err != nil {
			return ctrl.Result{RequeueAfter: again}, s.report(ctx, pod, corev1.ConditionFalse, moveFailed, fmt.Sprintf("container %s: %v", g.Container, err))
		}
		bytes += moved
		containers++
	}
	if containers == 0 {
		return ctrl.Result{RequeueAfter: again}, s.report(ctx, pod, corev1.ConditionFalse, moveFailed, "no container of it has a share here yet")
	}
	return ctrl.Result{}, s.report(ctx, pod, status, reason, fmt.Sprintf("%d MiB of %d containers", bytes>>20, containers))
}

// report in the pod's conditions, for whoever asked for it.
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
