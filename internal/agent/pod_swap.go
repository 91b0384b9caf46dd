package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/panics"
)

// Swapper moves the card memory of pods to the host and back, when their annotation says so.
type Swapper struct {
	Client client.Client
	Grants func() ([]slots.Grant, error)
	Shares interface {
		Out(ctx context.Context, s *share.Share) (int64, error)
		In(ctx context.Context, s *share.Share) (int64, error)
	}
	// OnCard lists what the driver sees of a pod's processes on a card. That they are out is their own word, and the
	// cards of a pod that is out are given to others.
	OnCard func(ctx context.Context, uid types.UID, uuid string) ([]discovery.Process, error)
	// Unexplained is how much of a card's memory (MiB) is in use that the driver sees no process use: a descriptor may hold
	// on to it. nil where nothing says.
	Unexplained func(ctx context.Context, uuid string) (int64, error)
	// LookEvery is the time between two looks at it.
	LookEvery time.Duration
	// Server is the pod that has what a container has on a card of another node; that node's agent moves it.
	Server func(ctx context.Context, to *share.Remote) (*corev1.Pod, error)
	// Events of pods that a defect concerns; may be nil.
	Events events.EventRecorder
}

// allocationPoll is when the GPU objects are read again.
const allocationPoll = time.Second

// newProcessPoll is how often pods that are out are looked at for processes that have begun since.
const newProcessPoll = 5 * time.Second

// retryPeriod is when a move that was refused is tried once more: what stood in its way may have gone.
const retryPeriod = 30 * time.Second

// movesAtOnce is more than a kubelet runs pods (110): one whose processes take their time keeps no other waiting.
const movesAtOnce = 128

// What may be left on a card of a process that is out, and of all of a container's: its context, which stays. The
// largest that was measured is 524 MiB (H200).
const (
	contextMB = 1024
	// leftShare of a share's memory may be contexts, where that is more than one.
	leftShare = 4
)

// SetupWithManager watches the node's pods that have the annotation.
func (s *Swapper) SetupWithManager(mgr ctrl.Manager) error {
	asked := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetAnnotations()[egpu.SwapAnnotation] != "" })
	return ctrl.NewControllerManagedBy(mgr).Named("swapper").
		For(&corev1.Pod{}, builder.WithPredicates(asked, predicate.AnnotationChangedPredicate{})).
		Watches(&egpu.GPU{}, handler.EnqueueRequestsFromMapFunc(s.returning)).
		WithOptions(controller.Options{MaxConcurrentReconciles: movesAtOnce}).
		Complete(s)
}

// returning are the pods that a card's record lets in: they wait until the scheduler has entered them.
func (s *Swapper) returning(ctx context.Context, obj client.Object) []ctrl.Request {
	gpu, ok := obj.(*egpu.GPU)
	if !ok {
		return nil
	}
	var requests []ctrl.Request
	for _, record := range gpu.Status.Allocated {
		key := client.ObjectKey{Namespace: record.Namespace, Name: record.Pod}
		pod := &corev1.Pod{}
		if s.Client.Get(ctx, key, pod) == nil && pod.Annotations[egpu.SwapAnnotation] == egpu.SwapIn && reported(pod) == corev1.ConditionTrue {
			requests = append(requests, ctrl.Request{NamespacedName: key})
		}
	}
	return requests
}

// Reconcile has a pod's memory where its annotation says. A defect concerns the one pod, which stays where it is until
// its annotation changes.
func (s *Swapper) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := s.Client.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var result ctrl.Result
	err := panics.Contain(ctrl.LoggerFrom(ctx), "swap", request.String(), func() (err error) {
		result, err = s.move(ctx, pod)
		return err
	})
	if !panics.Is(err) {
		return result, err
	}
	reason := egpu.ReasonCannotMoveOut
	if pod.Annotations[egpu.SwapAnnotation] == egpu.SwapIn {
		reason = egpu.ReasonCannotMoveIn
	}
	if s.Events != nil {
		s.Events.Eventf(pod, nil, corev1.EventTypeWarning, setAside, "Swap", "%v", err)
	}
	return ctrl.Result{}, s.report(ctx, pod, reported(pod), reason, err.Error())
}

// way of a pod's memory: out to the host, or in.
type way struct {
	where          string
	move, back     func(context.Context, *share.Share) (int64, error) // back is nil for a move that is not undone
	status         corev1.ConditionStatus
	reason, failed string
}

// wayOf a pod is what its annotation says; false if that is neither.
func (s *Swapper) wayOf(pod *corev1.Pod) (way, bool) {
	switch where := pod.Annotations[egpu.SwapAnnotation]; where {
	case egpu.SwapIn:
		return way{where, s.Shares.In, nil, corev1.ConditionFalse, egpu.ReasonMovedIn, egpu.ReasonCannotMoveIn}, true
	case egpu.SwapOut:
		w := way{where, s.Shares.Out, nil, corev1.ConditionTrue, egpu.ReasonMovedOut, egpu.ReasonCannotMoveOut}
		if reported(pod) == corev1.ConditionFalse {
			w.back = s.Shares.In // all of a pod is out, or nothing
		}
		return w, true
	}
	return way{}, false
}

// outcome of a move.
type outcome struct {
	moved   []string
	bytes   int64
	waits   bool   // it is not known yet
	silent  error  // some processes did not answer, and are to be asked again
	refused string // why it was not moved
	onCard  bool   // and that it has the card, whatever was reported before
}

// move a pod's memory to where its annotation says. To move what is there already does nothing.
func (s *Swapper) move(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	stays := reported(pod) // where it is if it cannot be moved
	w, known := s.wayOf(pod)
	if !known {
		return ctrl.Result{}, s.report(ctx, pod, stays, egpu.ReasonCannotMoveOut, fmt.Sprintf("annotation %s is %q: write out or in", egpu.SwapAnnotation, pod.Annotations[egpu.SwapAnnotation]))
	}
	mine, err := s.grantsOf(pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	here, far := hereAndFar(mine)
	o := outcome{refused: immovable(mine)}
	if o.refused == "" {
		o, err = s.moveServers(ctx, far, &w)
	}
	if err == nil && o.refused == "" && !o.waits {
		err = s.moveHere(ctx, pod, here, &w, &o)
	}
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case o.refused != "" && o.onCard:
		return ctrl.Result{RequeueAfter: retryPeriod}, s.report(ctx, pod, corev1.ConditionFalse, w.failed, o.refused)
	case o.refused != "":
		return ctrl.Result{RequeueAfter: retryPeriod}, s.report(ctx, pod, stays, w.failed, o.refused)
	case o.waits:
		return ctrl.Result{RequeueAfter: allocationPoll}, nil
	}
	result := ctrl.Result{}
	if o.silent != nil {
		result.RequeueAfter = newProcessPoll
	}
	if w.status == corev1.ConditionTrue {
		result.RequeueAfter = newProcessPoll
		if len(here) == 0 {
			result.RequeueAfter = retryPeriod // new processes are for its servers' agents to find
		}
		if said := egpu.SwapCondition(pod); stays == corev1.ConditionTrue && o.bytes == 0 && said.Reason == w.reason {
			return result, nil // nothing new was there
		}
	}
	return result, s.report(ctx, pod, w.status, w.reason, strings.Join(o.moved, "; "))
}

// moveHere moves what a pod has of this node's cards.
func (s *Swapper) moveHere(ctx context.Context, pod *corev1.Pod, mine []slots.Grant, w *way, o *outcome) error {
	if w.status == corev1.ConditionFalse && reported(pod) == corev1.ConditionTrue {
		known, full, err := s.canReturn(ctx, pod, mine)
		if o.refused, o.waits = full, !known; err != nil || full != "" || !known {
			return err
		}
	}
	before, err := s.unexplained(ctx, mine)
	if err != nil {
		return err
	}
	var bytes int64
	if bytes, o.silent, err = moveAll(ctx, mine, w.move, w.back); err != nil {
		o.refused = err.Error()
		return nil
	}
	if w.status == corev1.ConditionTrue {
		if err := errors.Join(s.confirmOut(ctx, mine), s.confirmFree(ctx, mine, before)); err != nil {
			o.refused, o.onCard = errors.Join(err, moveBack(ctx, mine, w.back)).Error(), true
			return nil
		}
	}
	if o.bytes = bytes; len(mine) > 0 {
		o.moved = append([]string{fmt.Sprintf("%d MiB of %d containers", bytes>>20, len(mine))}, o.moved...)
	}
	if o.silent != nil {
		o.moved = append(o.moved, o.silent.Error())
	}
	return nil
}

// immovable says why what a pod has cannot be moved at all.
func immovable(grants []slots.Grant) string {
	if len(grants) == 0 {
		return "no container of it has a share here yet"
	}
	for _, g := range grants {
		if g.Backend != "gpushare" && g.Remote == nil {
			return fmt.Sprintf("container %s has its cards by %s: only shares by the library move", g.Container, g.Backend)
		}
	}
	return ""
}

// moveAll containers' shares; if one cannot be moved those before it are moved back. Who does not answer keeps no other from it.
func moveAll(ctx context.Context, grants []slots.Grant, move, back func(context.Context, *share.Share) (int64, error)) (bytes int64, silent, err error) {
	for i := range grants {
		moved, err := move(ctx, &grants[i].Share)
		if errors.Is(err, gpushare.ErrUnanswered) {
			silent, err = errors.Join(silent, fmt.Errorf("container %s: %w", grants[i].Container, err)), nil
		}
		if err != nil {
			return 0, nil, errors.Join(fmt.Errorf("container %s: %w", grants[i].Container, err), moveBack(ctx, grants[:i], back))
		}
		bytes += moved
	}
	return bytes, silent, nil
}

// moveBack what was moved; nil is for a move that is not undone.
func moveBack(ctx context.Context, grants []slots.Grant, back func(context.Context, *share.Share) (int64, error)) error {
	var failed error
	for i := 0; i < len(grants) && back != nil; i++ {
		_, err := back(ctx, &grants[i].Share)
		failed = errors.Join(failed, err)
	}
	return failed
}

// confirmOut asks the driver whether containers that say they are out have left their cards.
func (s *Swapper) confirmOut(ctx context.Context, grants []slots.Grant) error {
	for i := range grants {
		g := &grants[i]
		for _, card := range g.Cards {
			processes, err := s.OnCard(ctx, g.UID, card.UUID)
			if err != nil {
				return fmt.Errorf("container %s says that it is out, which cannot be checked: %w", g.Container, err)
			}
			var all int64
			for _, p := range processes {
				all += p.MemoryMB
				if p.MemoryMB > contextMB {
					return fmt.Errorf("container %s says that it is out, and the driver sees %d MiB of process %d on card %d", g.Container, p.MemoryMB, p.PID, card.Index)
				}
			}
			if all > max(contextMB, card.MemoryMB/leftShare) {
				return fmt.Errorf("container %s says that it is out, and the driver sees %d MiB of %d processes on card %d", g.Container, all, len(processes), card.Index)
			}
		}
	}
	return nil
}

// unexplained memory of the cards of containers, by UUID.
func (s *Swapper) unexplained(ctx context.Context, grants []slots.Grant) (map[string]int64, error) {
	all := map[string]int64{}
	for i := range grants {
		for _, card := range grants[i].Cards {
			if _, known := all[card.UUID]; known || s.Unexplained == nil {
				continue
			}
			rest, err := s.Unexplained(ctx, card.UUID)
			if err != nil {
				return nil, fmt.Errorf("what is in use on card %d cannot be read: %w", card.Index, err)
			}
			all[card.UUID] = rest
		}
	}
	return all, nil
}

// looksAtRest are how often memory that no process has is looked at before it is believed, and restLook the time between two looks: a
// neighbour may give some away as a descriptor at this moment, and that must not keep others on the card.
const (
	looksAtRest = 5
	restLook    = time.Second
)

// confirmFree asks the driver whether what left a card is free there. Memory that was given away as a descriptor stays while
// that is open, and no process is seen to have it.
func (s *Swapper) confirmFree(ctx context.Context, grants []slots.Grant, before map[string]int64) error {
	var found error
	for look := range looksAtRest {
		if look > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(found, ctx.Err())
			case <-time.After(s.LookEvery):
			}
		}
		after, err := s.unexplained(ctx, grants)
		if err != nil {
			return err
		}
		found = nil
		for i := range grants {
			for _, card := range grants[i].Cards {
				if more := after[card.UUID] - before[card.UUID]; more > contextMB {
					found = fmt.Errorf("container %s says that it is out, and %d MiB more are in use on card %d that no process is seen to have: a descriptor holds on to them, its own or a neighbour's", grants[i].Container, more, card.Index)
				}
			}
		}
		if found == nil {
			return nil
		}
	}
	return found
}

func (s *Swapper) grantsOf(pod *corev1.Pod) ([]slots.Grant, error) {
	grants, err := s.Grants()
	return slices.DeleteFunc(grants, func(g slots.Grant) bool { return g.UID != pod.UID }), err
}

// reported is where the pod was last reported to be.
func reported(pod *corev1.Pod) corev1.ConditionStatus {
	if c := egpu.SwapCondition(pod); c != nil && c.Status == corev1.ConditionTrue {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// canReturn says whether the cards of a pod that is out have capacity for it. While it was out the scheduler could give
// that capacity to others. It enters the pod, or the ElasticGPU that it has by a claim, in the GPU objects again as soon as
// the pod is to come back; if a card is then allocated beyond what it has, the pod cannot return. Shares by
// ResourceClaims stay allocated, and need no check.
func (s *Swapper) canReturn(ctx context.Context, pod *corev1.Pod, mine []slots.Grant) (known bool, full string, err error) {
	asks, err := request.Pod(pod, nil)
	if err != nil {
		return false, "", err
	}
	for _, g := range mine {
		if g.Claim != nil || g.Device == "" && len(asks.Containers) == 0 {
			continue // not from the scheduler
		}
		for _, card := range g.Cards {
			gpu := &egpu.GPU{}
			if err := s.Client.Get(ctx, client.ObjectKey{Name: objectName(pod.Spec.NodeName, card.Index)}, gpu); err != nil {
				return false, "", err
			}
			record := recordOf(gpu, pod, &g)
			if record == nil {
				return false, "", nil
			}
			if record.Guessed {
				return true, fmt.Sprintf("card %d: the scheduler does not know that the pod had it", card.Index), nil
			}
			core, memory := given(gpu, func(*egpu.PodResource) bool { return true })
			if core > 100 || memory > gpu.Spec.Memory {
				if core, memory := given(gpu, func(r *egpu.PodResource) bool { return !s.leaves(ctx, r) }); core <= 100 && memory <= gpu.Spec.Memory {
					return false, "", nil
				}
				return true, fmt.Sprintf("card %d was given to others meanwhile: with it, %d percent and %d of %d MiB are given out", card.Index, core, memory, gpu.Spec.Memory), nil
			}
		}
	}
	return true, "", nil
}

// given is what those of whom counts says so have of a card, as the scheduler recorded it.
func given(gpu *egpu.GPU, counts func(*egpu.PodResource) bool) (core, memory int64) {
	for _, user := range gpu.Status.Allocated {
		if !counts(user) {
			continue
		}
		for _, c := range user.Containers {
			core += c.Resource.Name(egpu.ResourceCore, resource.DecimalSI).Value()
			memory += c.Resource.Name(egpu.ResourceMemory, resource.DecimalSI).Value()
		}
	}
	return core, memory
}

// leaves says that a pod which the scheduler has recorded on a card is about to end, or gone: quota is given back when a job is
// deleted, and its pods may take a moment longer.
func (s *Swapper) leaves(ctx context.Context, r *egpu.PodResource) bool {
	if r.Pod == "" || r.Namespace == egpu.DeviceNamespace {
		return false
	}
	pod := &corev1.Pod{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Pod}, pod)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return pod.UID != r.UID || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// recordOf what a pod has of a card, by itself or by its ElasticGPU, which says that it is this pod's by the claim that it
// was made for; nil if the scheduler has recorded none.
func recordOf(gpu *egpu.GPU, pod *corev1.Pod, g *slots.Grant) *egpu.PodResource {
	if g.Device != "" {
		return gpu.Status.Allocated[egpu.DeviceNamespace+"/"+g.Device]
	}
	if record := gpu.Status.Allocated[pod.Namespace+"/"+pod.Name]; record != nil && record.UID == pod.UID {
		return record
	}
	return nil
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
