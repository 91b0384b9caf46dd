package resourcequota

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ControllerName is what an AdmissionCheck says to have this one.
const ControllerName = "elasticai.io/resource-quota"

// The backoff before another try doubles from the first pause to the longest, in seconds.
const (
	firstPause   = 5
	longestPause = 300
)

// Setup adds the check's controllers to the manager.
func Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("resource-quota-checks").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(checks.HasController(ControllerName))).
		Complete(&activity{mgr.GetClient()})
	if err != nil {
		return err
	}
	waits := predicate.NewPredicateFuncs(func(obj client.Object) bool { return checks.IsWaiting(obj.(*kueue.Workload)) })
	// One at a time: what is granted to one workload is not free for the next.
	return ctrl.NewControllerManagedBy(mgr).Named("resource-quota").
		For(&kueue.Workload{}, builder.WithPredicates(waits)).
		Complete(&workloads{client: mgr.GetClient(), reader: mgr.GetAPIReader(), now: time.Now, granted: map[types.UID]*kueue.Workload{}})
}

// activity makes the admission checks of this controller active.
type activity struct{ client client.Client }

// Reconcile makes one check active.
func (a *activity) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	check := &kueue.AdmissionCheck{}
	if err := a.client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, checks.WriteActive(ctx, a.client, check, checks.Active())
}

// workloads sets the check's state for workloads that wait.
type workloads struct {
	client client.Client
	reader client.Reader // uncached: quotas are few, and must be current
	now    func() time.Time
	// granted are workloads whose check was set to ready, until the cache shows it.
	granted map[types.UID]*kueue.Workload
}

// Reconcile sets the state of one workload's check.
func (c *workloads) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, request.NamespacedName, wl); err != nil || !checks.IsWaiting(wl) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	mine, err := checks.ForController(ctx, c.client, wl, ControllerName)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, check := range mine {
		if check.State.State != kueue.CheckStatePending {
			continue
		}
		refusal, err := c.refusalReason(ctx, wl)
		if err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, client.IgnoreNotFound(c.answer(ctx, wl, check.State, refusal))
	}
	return ctrl.Result{}, nil
}

// refusalReason says why not all pods of a workload could be created; "" if they could.
func (c *workloads) refusalReason(ctx context.Context, wl *kueue.Workload) (string, error) {
	quotas := &corev1.ResourceQuotaList{}
	if err := c.reader.List(ctx, quotas, client.InNamespace(wl.Namespace)); err != nil {
		return "", err
	}
	if len(quotas.Items) == 0 {
		return "", nil
	}
	others := &kueue.WorkloadList{}
	if err := c.client.List(ctx, others, client.InNamespace(wl.Namespace)); err != nil {
		return "", err
	}
	existing := &corev1.PodList{}
	if err := c.reader.List(ctx, existing, client.InNamespace(wl.Namespace)); err != nil {
		return "", err
	}
	var taken []pods
	for i := range others.Items {
		other := &others.Items[i]
		if other.UID != wl.UID && c.isGranted(other) {
			taken = append(taken, podsToCreate(other, existing.Items)...)
		}
	}
	return insufficientQuota(quotas.Items, taken, podsToCreate(wl, nil)), nil
}

// isGranted says that another workload's check is ready, so that its pods will be created.
func (c *workloads) isGranted(wl *kueue.Workload) bool {
	over := !workload.HasReservation(wl) || workload.IsFinished(wl)
	if written := c.granted[wl.UID]; written != nil {
		if written.ResourceVersion == wl.ResourceVersion {
			return true // the cache does not show the new state yet
		}
		delete(c.granted, wl.UID)
	}
	if over {
		return false
	}
	if workload.IsAdmitted(wl) {
		return true
	}
	for _, check := range wl.Status.AdmissionChecks {
		if check.State == kueue.CheckStateReady && check.Message == readyMessage {
			return true
		}
	}
	return false
}

// podsToCreate are a workload's pods that do not exist yet.
func podsToCreate(wl *kueue.Workload, existing []corev1.Pod) []pods {
	created := map[string]int64{}
	for i := range existing {
		if existing[i].Annotations[kueue.WorkloadAnnotation] == wl.Name {
			created[existing[i].Labels[kueuelabels.PodSet]]++
		}
	}
	var out []pods
	for _, assigned := range wl.Status.Admission.PodSetAssignments {
		left := int64(ptr.Deref(assigned.Count, 0)) - created[string(assigned.Name)]
		for i := range wl.Spec.PodSets {
			if wl.Spec.PodSets[i].Name == assigned.Name && left > 0 {
				out = append(out, pods{&wl.Spec.PodSets[i].Template.Spec, left})
			}
		}
	}
	return out
}

// readyMessage marks checks that this controller set to ready. It is compared with stored statuses,
// so its text must not change.
const readyMessage = "The namespace's ResourceQuotas have room for all pods"

// answer writes the state, on the version of the workload it was found for.
func (c *workloads) answer(ctx context.Context, wl *kueue.Workload, state kueue.AdmissionCheckState, refusal string) error {
	next := kueue.AdmissionCheckState{
		Name: state.Name, State: kueue.CheckStateReady, Message: readyMessage,
		LastTransitionTime: metav1.NewTime(c.now()), RetryCount: state.RetryCount,
	}
	if refusal != "" {
		pause := min(int32(firstPause)<<min(ptr.Deref(state.RetryCount, 0), 10), longestPause)
		next.State, next.Message, next.RequeueAfterSeconds = kueue.CheckStateRetry, refusal, &pause
	}
	if err := checks.WriteStates(ctx, c.client, wl.DeepCopy(), next); err != nil {
		return err
	}
	if refusal == "" {
		c.granted[wl.UID] = wl
	}
	return nil
}
