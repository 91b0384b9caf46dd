package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Allocator gives cards: the shell of the placement engine.
type Allocator interface {
	// Reserve cards for an ElasticGPU until it is seen; a *placement.Refusal says why there are none.
	Reserve(ctx context.Context, name string, cards placement.CardRequest, policy string, remote bool) (placement.Assignment, error)
	Unreserve(ctx context.Context, name string)
	Nodes
	// Leads says whether this replica leads and its cache is complete.
	Leads() bool
}

// usesClaim is the index of pods by the claims they use.
const usesClaim = "elasticgpu.io/uses-claim"

// tryAgain is when a claim that found no cards looks again; cards come free in many ways.
const tryAgain = 2 * time.Second

// Setup adds the controllers of claims and of ElasticGPUs to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, allocator Allocator, servers Servers, recorder events.EventRecorder, workers int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, usesClaim, claimsUsed)
	if err != nil {
		return err
	}
	c := &claimController{Client: mgr.GetClient(), direct: mgr.GetAPIReader(), allocator: allocator}
	options := controller.Options{MaxConcurrentReconciles: workers}
	err = ctrl.NewControllerManagedBy(mgr).Named("elasticgpuclaims").For(&egpu.ElasticGPUClaim{}).
		Watches(&egpu.ElasticGPU{}, handler.EnqueueRequestsFromMapFunc(c.claimsOfDevice)).
		Watches(&egpu.ElasticGPUClass{}, handler.EnqueueRequestsFromMapFunc(c.claimsOfClass)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(claimsOfPod)).
		WithOptions(options).Complete(reconcile.Func(c.Reconcile))
	if err != nil {
		return err
	}
	d := &deviceController{Client: mgr.GetClient(), direct: mgr.GetAPIReader(), servers: servers, events: recorder}
	return ctrl.NewControllerManagedBy(mgr).Named("elasticgpus").For(&egpu.ElasticGPU{}).Owns(&corev1.Pod{}).
		Watches(&egpu.ElasticGPUClaim{}, handler.EnqueueRequestsFromMapFunc(deviceOfClaim)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(d.devicesOfPod), builder.WithPredicates(moves)).
		WithOptions(options).Complete(reconcile.Func(d.Reconcile))
}

// claimsUsed by a pod, for the index.
func claimsUsed(object client.Object) []string {
	var names []string
	for _, use := range request.Uses(object.(*corev1.Pod)) {
		names = append(names, use.Claim)
	}
	return names
}

func requestFor(namespace, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

// claimsOfDevice: the one it is for; all that wait, if it is free.
func (c *claimController) claimsOfDevice(ctx context.Context, object client.Object) []reconcile.Request {
	device := object.(*egpu.ElasticGPU)
	if ref := device.Spec.ClaimRef; ref != nil {
		return requestFor(ref.Namespace, ref.Name)
	}
	return c.pending(ctx, func(claim *egpu.ElasticGPUClaim) bool {
		return claim.ClassName() == device.Spec.ElasticGPUClassName || claim.Spec.ElasticGPUName == device.Name
	})
}

func (c *claimController) claimsOfClass(ctx context.Context, object client.Object) []reconcile.Request {
	return c.pending(ctx, func(claim *egpu.ElasticGPUClaim) bool { return claim.ClassName() == object.GetName() })
}

func (c *claimController) pending(ctx context.Context, matches func(*egpu.ElasticGPUClaim) bool) []reconcile.Request {
	list := &egpu.ElasticGPUClaimList{}
	if err := c.List(ctx, list); err != nil {
		return nil // the cache is closing
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if claim := &list.Items[i]; claim.Status.Phase != egpu.ClaimBound && matches(claim) {
			requests = append(requests, requestFor(claim.Namespace, claim.Name)...)
		}
	}
	return requests
}

func claimsOfPod(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, use := range request.Uses(object.(*corev1.Pod)) {
		requests = append(requests, requestFor(object.GetNamespace(), use.Claim)...)
	}
	return requests
}

func deviceOfClaim(_ context.Context, object client.Object) []reconcile.Request {
	claim := object.(*egpu.ElasticGPUClaim)
	if claim.Spec.ElasticGPUName == "" {
		return nil
	}
	return requestFor("", claim.Spec.ElasticGPUName)
}

// claimController gives claims their ElasticGPUs.
type claimController struct {
	client.Client
	direct    client.Reader
	allocator Allocator
}

// waiting is what a claim waits for, for its status.
type waiting string

func (w waiting) Error() string { return string(w) }

// Reconcile brings one claim forward.
func (c *claimController) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	if !c.allocator.Leads() {
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	claim := &egpu.ElasticGPUClaim{}
	if err := c.Get(ctx, r.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp != nil {
		return reconcile.Result{}, ignoreOld(c.finalize(ctx, claim))
	}
	if err := c.complete(ctx, claim); err != nil {
		return reconcile.Result{}, ignoreOld(err)
	}
	again, err := c.serve(ctx, claim)
	var wait waiting
	switch {
	case err == nil:
		if claim.Status.Phase == egpu.ClaimBound {
			err = c.requeuePods(ctx, claim)
		}
	case errors.As(err, &wait):
		phase := egpu.ClaimPending
		if claim.Status.Phase == egpu.ClaimBound || claim.Status.Phase == egpu.ClaimLost {
			phase = egpu.ClaimLost
		}
		err = setClaim(ctx, c, claim, egpu.ElasticGPUClaimStatus{Phase: phase, Message: wait.Error()})
	}
	return reconcile.Result{RequeueAfter: again}, ignoreOld(err)
}

// ignoreOld: what we decided on has changed, and its event will bring us back.
func ignoreOld(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// complete puts the finalizer on a claim, and its class where it belongs.
func (c *claimController) complete(ctx context.Context, claim *egpu.ElasticGPUClaim) error {
	before := claim.DeepCopy()
	changed := controllerutil.AddFinalizer(claim, egpu.ClaimProtection)
	if name := claim.ClassName(); name != "" && claim.Spec.ElasticGPUClassName == nil {
		claim.Spec.ElasticGPUClassName = &name
		changed = true
	}
	if !changed {
		return nil
	}
	return c.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// finalize a claim that is to be deleted, unless pods use it.
func (c *claimController) finalize(ctx context.Context, claim *egpu.ElasticGPUClaim) error {
	if !controllerutil.ContainsFinalizer(claim, egpu.ClaimProtection) {
		return nil
	}
	// From the API server: a pod bound a moment ago must count.
	users, err := c.users(ctx, c.direct, claim)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		status := claim.Status
		status.Message = "it is deleted when no pod uses it any more: " + strings.Join(users, ", ")
		return setClaim(ctx, c, claim, status)
	}
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, egpu.ClaimProtection)
	return c.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// users of a claim: pods that have a node and have not finished.
func (c *claimController) users(ctx context.Context, reader client.Reader, claim *egpu.ElasticGPUClaim) ([]string, error) {
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.InNamespace(claim.Namespace)); err != nil {
		return nil, err
	}
	var names []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		uses := slices.ContainsFunc(request.Uses(pod), func(u request.Use) bool { return u.Claim == claim.Name })
		if uses && isUser(pod) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// serve finds or makes the claim's ElasticGPU. A waiting error says what is missing.
func (c *claimController) serve(ctx context.Context, claim *egpu.ElasticGPUClaim) (again time.Duration, err error) {
	if name := claim.Spec.ElasticGPUName; name != "" {
		return 0, c.serveNamed(ctx, claim, name)
	}
	class, err := c.class(ctx, claim)
	if err != nil {
		return 0, err
	}
	device, err := c.find(ctx, claim, class)
	if err != nil {
		return 0, err
	}
	if device != nil {
		return 0, bind(ctx, c, claim, device)
	}
	if class == nil {
		return 0, waiting("no ElasticGPU is free for it, and it names no class that could make one: write elasticGPUClassName")
	}
	if class.EGPUBindingMode == egpu.BindWaitForFirstConsumer {
		return 0, waiting("it waits for the first pod that uses it")
	}
	if !InTree(class.Provisioner) {
		before := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, egpu.ProvisionerAnnotation, class.Provisioner)
		if err := c.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
			return 0, err
		}
		return 0, waiting("it waits for " + class.Provisioner + " to make an ElasticGPU")
	}
	cards, err := Cards(claim, class)
	if err != nil {
		return 0, waiting(err.Error())
	}
	name := DeviceName(claim)
	levels, err := Levels(class)
	if err != nil {
		return 0, waiting(err.Error())
	}
	a, err := c.allocator.Reserve(ctx, name, cards, Policy(class), levels != nil)
	if err != nil {
		return tryAgain, waiting(err.Error())
	}
	if _, err := Provision(ctx, c, claim, class, a, c.allocator); err != nil {
		c.allocator.Unreserve(ctx, name)
		return 0, err
	}
	return 0, nil
}

func (c *claimController) serveNamed(ctx context.Context, claim *egpu.ElasticGPUClaim, name string) error {
	device := &egpu.ElasticGPU{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, device)
	if apierrors.IsNotFound(err) {
		err = c.direct.Get(ctx, client.ObjectKey{Name: name}, device) // it may be too new for the cache
	}
	switch {
	case apierrors.IsNotFound(err):
		return waiting("ElasticGPU " + name + " is gone")
	case err != nil:
		return err
	case device.DeletionTimestamp != nil:
		return waiting("ElasticGPU " + name + " is being deleted")
	}
	if err := mayHave(claim, device); err != nil {
		return waiting(err.Error())
	}
	return bind(ctx, c, claim, device)
}

// mayHave says why a claim does not get the ElasticGPU that its author names, or nil: another claim has it, or
// it is not what the claim asks for, and so not what is counted in quota. One that names the claim was meant for
// it by who made it.
func mayHave(claim *egpu.ElasticGPUClaim, device *egpu.ElasticGPU) error {
	if ref := device.Spec.ClaimRef; ref != nil {
		if !refersTo(ref, claim) {
			return fmt.Errorf("ElasticGPU %s belongs to claim %s/%s", device.Name, ref.Namespace, ref.Name)
		}
		return request.CheckClass(claim, device)
	}
	if device.Spec.ElasticGPUClassName != claim.ClassName() {
		return fmt.Errorf("ElasticGPU %s is of class %q, and the claim of class %q", device.Name, device.Spec.ElasticGPUClassName, claim.ClassName())
	}
	has, err := request.List(device.Spec.Capacity, request.Share)
	if err != nil {
		return fmt.Errorf("ElasticGPU %s: %w", device.Name, err)
	}
	asked, err := request.Claim(claim, request.Share)
	switch {
	case err != nil:
		return err
	case !suffices(has, asked):
		return fmt.Errorf("ElasticGPU %s has less than the claim asks for", device.Name)
	case !suffices(asked, has):
		return fmt.Errorf("ElasticGPU %s has more than the claim asks for: write its capacity into resources.requests, or leave elasticGPUName to be chosen", device.Name)
	}
	return nil
}

// refersTo: a reference without a UID was written by a person, and means any claim of that name.
func refersTo(ref *corev1.ObjectReference, claim *egpu.ElasticGPUClaim) bool {
	return ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

func (c *claimController) class(ctx context.Context, claim *egpu.ElasticGPUClaim) (*egpu.ElasticGPUClass, error) {
	name := claim.ClassName()
	if name == "" {
		return nil, nil
	}
	class := &egpu.ElasticGPUClass{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, waiting("there is no ElasticGPUClass " + name)
		}
		return nil, err
	}
	return class, nil
}

// find an ElasticGPU that was made for the claim or, unless the class waits for a node, the smallest
// free one of its class that will do.
func (c *claimController) find(ctx context.Context, claim *egpu.ElasticGPUClaim, class *egpu.ElasticGPUClass) (*egpu.ElasticGPU, error) {
	list := &egpu.ElasticGPUList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	free := class == nil || class.EGPUBindingMode != egpu.BindWaitForFirstConsumer
	asked, err := request.Claim(claim, request.Share)
	if err != nil {
		free = false
	}
	var best *egpu.ElasticGPU
	var bestHas placement.CardRequest
	for i := range list.Items {
		device := &list.Items[i]
		if ref := device.Spec.ClaimRef; ref != nil {
			if refersTo(ref, claim) && device.DeletionTimestamp == nil {
				return device, nil
			}
			continue
		}
		if !free || device.DeletionTimestamp != nil || device.Status.Phase != egpu.GPUAvailable || device.Spec.ElasticGPUClassName != claim.ClassName() {
			continue
		}
		has, err := request.List(device.Spec.Capacity, request.Share)
		if err != nil || !suffices(has, asked) {
			continue
		}
		if best == nil || smaller(has, bestHas) || !smaller(bestHas, has) && device.Name < best.Name {
			best, bestHas = device, has
		}
	}
	return best, nil
}

func suffices(has, asked placement.CardRequest) bool {
	return has.Exclusive == asked.Exclusive && has.Count >= asked.Count && has.Core >= asked.Core && has.Memory >= asked.Memory && has.TFLOPS >= asked.TFLOPS
}

func smaller(a, b placement.CardRequest) bool {
	for _, pair := range [][2]int64{{int64(a.Count), int64(b.Count)}, {a.Core, b.Core}, {a.Memory, b.Memory}, {int64(a.TFLOPS), int64(b.TFLOPS)}} {
		if pair[0] != pair[1] {
			return pair[0] < pair[1]
		}
	}
	return false
}

// ClaimsLabel changes on pods whose claims were served: kube-scheduler does not watch claims, and
// requeues a pod whose labels change.
const ClaimsLabel = "elasticgpu.io/claims"

func (c *claimController) requeuePods(ctx context.Context, claim *egpu.ElasticGPUClaim) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(claim.Namespace), client.MatchingFields{usesClaim: claim.Name}); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != "" || pod.Labels[ClaimsLabel] == claim.Spec.ElasticGPUName || pod.DeletionTimestamp != nil {
			continue
		}
		before := pod.DeepCopy()
		metav1.SetMetaDataLabel(&pod.ObjectMeta, ClaimsLabel, claim.Spec.ElasticGPUName)
		if err := c.Patch(ctx, pod, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
