package provisioning

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// workloads creates and removes the requests of workloads with quota, and sets the states of their
// checks. It handles one workload at a time.
type workloads struct {
	client    client.Client
	recorder  events.EventRecorder
	now       func() time.Time
	tables    cloudoffers.Tables
	learns    bool        // whether the cluster has CloudOffers
	available func() bool // whether the cluster has ProvisioningRequests
	// cleanUp removes the requests of evicted workloads too, not only those of finished ones.
	cleanUp bool
	// made is when a workload's requests were created: the cache may not show them yet.
	made map[types.NamespacedName]map[string]time.Time
}

// cacheTimeout is how long the cache may take to show them.
const cacheTimeout = 10 * time.Second

// pendingCheck is a check of a workload, and what its state depends on.
type pendingCheck struct {
	state  kueue.AdmissionCheckState
	config *kueue.ProvisioningRequestConfigSpec // nil: the check is not active
	groups []group
	last   *ProvisioningRequest // the last attempt that counts; nil: none
}

// Reconcile handles one workload.
func (c *workloads) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, request.NamespacedName, wl); err != nil {
		delete(c.made, request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ended := workload.IsFinished(wl) || workload.IsEvicted(wl)
	if wl.DeletionTimestamp != nil || !workload.HasReservation(wl) && !ended {
		return ctrl.Result{}, nil // its requests are deleted with it
	}
	available := c.available()
	var owned []*ProvisioningRequest
	var err error
	if available {
		if owned, err = c.owned(ctx, wl); err != nil {
			return ctrl.Result{}, err
		}
	}
	if ended {
		delete(c.made, request.NamespacedName)
		if workload.IsFinished(wl) || c.cleanUp {
			err = c.remove(ctx, owned)
		}
		return ctrl.Result{}, err
	}
	pending, err := c.pendingChecks(ctx, wl, owned, available)
	if err != nil {
		return ctrl.Result{}, err
	}
	if again, err := c.learn(ctx, wl, pending); err != nil || again {
		return ctrl.Result{RequeueAfter: time.Second}, err
	}
	return c.writeStates(ctx, wl, owned, pending)
}

// owned are a workload's requests.
func (c *workloads) owned(ctx context.Context, wl *kueue.Workload) ([]*ProvisioningRequest, error) {
	list := &ProvisioningRequestList{}
	if err := c.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{ownerIndex: string(wl.UID)}); err != nil {
		return nil, err
	}
	var out []*ProvisioningRequest
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// pendingChecks are the workload's checks that belong to this controller.
func (c *workloads) pendingChecks(ctx context.Context, wl *kueue.Workload, owned []*ProvisioningRequest, available bool) ([]*pendingCheck, error) {
	mine, err := checks.ForController(ctx, c.client, wl, kueue.ProvisioningRequestControllerName)
	if err != nil {
		return nil, err
	}
	var out []*pendingCheck
	for _, check := range mine {
		pending := &pendingCheck{state: check.State}
		out = append(out, pending)
		if pending.config, err = c.config(ctx, check.Object, available); err != nil {
			return nil, err
		}
		if pending.config != nil {
			if pending.groups, err = podsToProvision(wl, pending.config, workload.FlavorsIn(ctx, c.client)); err != nil {
				return nil, err
			}
		}
		latest := int32(0)
		for _, request := range owned {
			attempt := attemptOf(request.Name, wl.Name, check.State.Name)
			if attempt > latest && (pending.ready() || len(pending.groups) > 0 && matchesConfig(request, wl, pending.config)) {
				latest, pending.last = attempt, request
			}
		}
	}
	return out, nil
}

// config is what a check asks for; nil if the check is not active.
func (c *workloads) config(ctx context.Context, check *kueue.AdmissionCheck, available bool) (*kueue.ProvisioningRequestConfigSpec, error) {
	config := &kueue.ProvisioningRequestConfig{}
	err := checks.Parameters(ctx, c.client, check, config)
	switch {
	case checks.IsBadParameters(err) || err == nil && !available:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &config.Spec, nil
}

func (r *pendingCheck) ready() bool { return r.state.State == kueue.CheckStateReady }

// answer is the state that the check is to have.
func (r *pendingCheck) answer(wl *kueue.Workload) kueue.AdmissionCheckState {
	next := *r.state.DeepCopy()
	switch {
	case r.config == nil:
		if !r.ready() {
			next.State, next.Message = kueue.CheckStatePending, inactiveMessage
		}
	case len(r.groups) == 0:
		if !r.ready() {
			next.State, next.Message, next.PodSetUpdates = kueue.CheckStateReady, notNeededMessage, nil
		}
	case r.last != nil:
		return checkStateFor(wl, next, r.config, r.last, r.groups)
	}
	return next
}

// writeStates writes the checks' states, deletes requests that are not needed any more, and creates
// new ones where no attempt is under way.
func (c *workloads) writeStates(ctx context.Context, wl *kueue.Workload, owned []*ProvisioningRequest, pending []*pendingCheck) (ctrl.Result, error) {
	var changed []kueue.AdmissionCheckState
	var transitions []string
	needed := map[string]bool{}
	for _, r := range pending {
		next := r.answer(wl)
		if next.State != r.state.State {
			next.LastTransitionTime = metav1.NewTime(c.now())
			transitions = append(transitions, transition(r.state, next))
		}
		if !equality.Semantic.DeepEqual(next, r.state) {
			changed = append(changed, next)
		}
		r.state = next
		if r.last != nil {
			needed[r.last.Name] = true
		}
	}
	if len(changed) > 0 {
		err := checks.WriteStates(ctx, c.client, wl, changed...)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil // the informer delivers the newer version
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	for _, text := range transitions {
		c.recorder.Eventf(wl, nil, corev1.EventTypeNormal, "AdmissionCheckUpdated", "AdmissionCheckUpdated", "%s", short(text))
	}
	var unused []*ProvisioningRequest
	for _, request := range owned {
		if !needed[request.Name] {
			unused = append(unused, request)
		}
	}
	if err := c.remove(ctx, unused); err != nil {
		return ctrl.Result{}, err
	}
	for _, r := range pending {
		if attempt := r.attempt(wl); attempt > 0 {
			if result, err := c.createRequest(ctx, wl, r, attempt); err != nil || !result.IsZero() {
				return result, err
			}
		}
	}
	return ctrl.Result{}, nil
}

// short limits a text to what an event may have.
func short(text string) string {
	const most = 1024
	if len(text) > most {
		return text[:most-3] + "..."
	}
	return text
}

func transition(was, is kueue.AdmissionCheckState) string {
	text := fmt.Sprintf("Admission check %s updated state from %s to %s", is.Name, was.State, is.State)
	if is.Message != "" {
		text += " with message: " + is.Message
	}
	return text
}

// attempt is the one to begin now; 0: none.
func (r *pendingCheck) attempt(wl *kueue.Workload) int32 {
	switch {
	case r.config == nil || len(r.groups) == 0 || r.state.State != kueue.CheckStatePending:
		return 0
	case r.last == nil:
		return ptr.Deref(r.state.RetryCount, 0) + 1
	case isOver(wl, r.last):
		return attemptOf(r.last.Name, wl.Name, r.state.Name) + 1
	}
	return 0
}

// createRequest makes a request. If that fails, the check's state says why.
func (c *workloads) createRequest(ctx context.Context, wl *kueue.Workload, r *pendingCheck, attempt int32) (ctrl.Result, error) {
	name := requestName(wl.Name, r.state.Name, attempt)
	key := client.ObjectKeyFromObject(wl)
	if at, known := c.made[key][name]; known && c.now().Sub(at) < cacheTimeout {
		return ctrl.Result{RequeueAfter: time.Second}, nil // its event comes first; this is the fallback
	}
	request, templates := build(wl, name, r.config, r.groups)
	for _, template := range templates {
		if err := c.put(ctx, template); err != nil {
			return ctrl.Result{}, c.failed(ctx, wl, r.state, fmt.Errorf("Error creating PodTemplate %q: %w", template.Name, err)) //nolint:staticcheck // Kueue's words
		}
	}
	err := c.client.Create(ctx, request)
	if apierrors.IsAlreadyExists(err) {
		seen := c.client.Get(ctx, client.ObjectKeyFromObject(request), &ProvisioningRequest{})
		if apierrors.IsNotFound(seen) {
			return ctrl.Result{RequeueAfter: time.Second}, nil // the previous leader made it, and the cache does not show it yet
		}
	}
	if err != nil {
		return ctrl.Result{}, c.failed(ctx, wl, r.state, fmt.Errorf("Error creating ProvisioningRequest %q: %w", name, err)) //nolint:staticcheck // Kueue's words
	}
	if c.made[key] == nil {
		c.made[key] = map[string]time.Time{}
	}
	c.made[key][name] = c.now()
	c.recorder.Eventf(wl, nil, corev1.EventTypeNormal, "ProvisioningRequestCreated", "Created", "Created ProvisioningRequest: %q", name)
	return ctrl.Result{}, nil
}

// put creates a template. One that exists was left by a try that ended before its request was made,
// and may differ.
func (c *workloads) put(ctx context.Context, template *corev1.PodTemplate) error {
	err := c.client.Create(ctx, template.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := c.client.Delete(ctx, template.DeepCopy()); client.IgnoreNotFound(err) != nil {
		return err
	}
	return c.client.Create(ctx, template)
}

// failed writes why a request could not be made; it is tried again.
func (c *workloads) failed(ctx context.Context, wl *kueue.Workload, state kueue.AdmissionCheckState, why error) error {
	c.recorder.Eventf(wl, nil, corev1.EventTypeWarning, "FailedCreate", "FailedCreate", "%s", short(why.Error()))
	if state.Message == why.Error() {
		return why
	}
	state.Message, state.LastTransitionTime = why.Error(), metav1.NewTime(c.now())
	if err := checks.WriteStates(ctx, c.client, wl, state); err != nil {
		return err
	}
	return why
}

// remove deletes requests, and then the templates they name. If a request was deleted already its
// name may have been used again, and the templates belong to the new one; templates left behind are
// deleted with the workload, or replaced when they are made again.
func (c *workloads) remove(ctx context.Context, requests []*ProvisioningRequest) error {
	for _, request := range requests {
		err := c.client.Delete(ctx, request, client.Preconditions{UID: &request.UID})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(request); owner != nil {
			delete(c.made[types.NamespacedName{Namespace: request.Namespace, Name: owner.Name}], request.Name) // the name may be used again
		}
		for _, set := range request.Spec.PodSets {
			template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: set.PodTemplateRef.Name}}
			if err := c.client.Delete(ctx, template); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}
