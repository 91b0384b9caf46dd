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
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// workloads keeps the requests of workloads with quota, and answers for them. It
// looks at one after the other.
type workloads struct {
	client       client.Client
	recorder     events.EventRecorder
	now          func() time.Time
	availability *availability
	// cleanUp takes the requests of evicted workloads away, not only those of
	// finished ones.
	cleanUp bool
	// made is when a workload's requests were created: the cache may have yet to
	// see them.
	made map[types.NamespacedName]map[string]time.Time
}

// cachePatience is how long the cache may take.
const cacheTimeout = 10 * time.Second

// asked is a check of a workload, and how it is answered.
type pendingCheck struct {
	state  kueue.AdmissionCheckState
	config *kueue.ProvisioningRequestConfigSpec // nil: there is none
	groups []group
	last   *ProvisioningRequest // the last attempt that counts; nil: none
}

// Reconcile looks at one workload.
func (c *workloads) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, request.NamespacedName, wl); err != nil {
		delete(c.made, request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ended := workload.IsFinished(wl) || workload.IsEvicted(wl)
	if wl.DeletionTimestamp != nil || !workload.HasReservation(wl) && !ended {
		return ctrl.Result{}, nil // what a deleted workload owns goes with it
	}
	there := c.availability.available()
	var owned []*ProvisioningRequest
	var err error
	if there {
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
	rounds, err := c.pendingChecks(ctx, wl, owned, there)
	if err != nil {
		return ctrl.Result{}, err
	}
	return c.writeStates(ctx, wl, owned, rounds)
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

// rounds are the workload's checks that are ours.
func (c *workloads) pendingChecks(ctx context.Context, wl *kueue.Workload, owned []*ProvisioningRequest, there bool) ([]*pendingCheck, error) {
	mine, err := checks.ForController(ctx, c.client, wl, kueue.ProvisioningRequestControllerName)
	if err != nil {
		return nil, err
	}
	var out []*pendingCheck
	for _, check := range mine {
		round := &pendingCheck{state: check.State}
		out = append(out, round)
		if round.config, err = c.config(ctx, check.Object, there); err != nil {
			return nil, err
		}
		if round.config != nil {
			if round.groups, err = podsToProvision(wl, round.config, workload.FlavorsIn(ctx, c.client)); err != nil {
				return nil, err
			}
		}
		latest := int32(0)
		for _, request := range owned {
			attempt := attemptOf(request.Name, wl.Name, check.State.Name)
			if attempt > latest && (round.ready() || len(round.groups) > 0 && matchesConfig(request, wl, round.config)) {
				latest, round.last = attempt, request
			}
		}
	}
	return out, nil
}

// config is what a check asks for; nil where it does not work, as it says itself.
func (c *workloads) config(ctx context.Context, check *kueue.AdmissionCheck, there bool) (*kueue.ProvisioningRequestConfigSpec, error) {
	config := &kueue.ProvisioningRequestConfig{}
	err := checks.Parameters(ctx, c.client, check, config)
	switch {
	case checks.IsBadParameters(err) || err == nil && !there:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &config.Spec, nil
}

func (r *pendingCheck) ready() bool { return r.state.State == kueue.CheckStateReady }

// answer is what the check's state is to be.
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

// settle writes the answers, takes away what nobody needs, and asks anew where
// there is nothing to wait for.
func (c *workloads) writeStates(ctx context.Context, wl *kueue.Workload, owned []*ProvisioningRequest, rounds []*pendingCheck) (ctrl.Result, error) {
	var changed []kueue.AdmissionCheckState
	var told []string
	needed := map[string]bool{}
	for _, r := range rounds {
		next := r.answer(wl)
		if next.State != r.state.State {
			next.LastTransitionTime = metav1.NewTime(c.now())
			told = append(told, transition(r.state, next))
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
			return ctrl.Result{}, nil // what is newer is on its way to us
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	for _, text := range told {
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
	for _, r := range rounds {
		if attempt := r.attempt(wl); attempt > 0 {
			if result, err := c.createRequest(ctx, wl, r, attempt); err != nil || !result.IsZero() {
				return result, err
			}
		}
	}
	return ctrl.Result{}, nil
}

// short keeps a text within what an event may say.
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

// ask makes a request. What stands in its way is said in the check's state.
func (c *workloads) createRequest(ctx context.Context, wl *kueue.Workload, r *pendingCheck, attempt int32) (ctrl.Result, error) {
	name := requestName(wl.Name, r.state.Name, attempt)
	key := client.ObjectKeyFromObject(wl)
	if at, known := c.made[key][name]; known && c.now().Sub(at) < cacheTimeout {
		return ctrl.Result{RequeueAfter: time.Second}, nil // its arrival wakes us; this is the fallback
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
			return ctrl.Result{RequeueAfter: time.Second}, nil // the one before us made it, and we have yet to see it
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

// put creates a template. One that is there was left by a try that ended before
// its request was made, and may say something else.
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

// failed tells why a request could not be made; it is tried again.
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

// remove deletes requests, and then the templates they name. One that is gone
// left its name to another, whose templates these are now; templates that are
// left behind go with the workload, or when they are made again.
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
			delete(c.made[types.NamespacedName{Namespace: request.Namespace, Name: owner.Name}], request.Name) // the name may be due again
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
