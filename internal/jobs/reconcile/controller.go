package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// controller brings jobs and their workloads together. It knows no kind by name.
type controller struct {
	client   client.Client
	pods     client.Reader // of the pods of managed jobs
	filter   *managed.Filter
	recorder events.EventRecorder
	now      func() time.Time
	adapters *remote.Adapters
	builder  kinds.WorkloadBuilder
	identity string // of this process
	catchUp  catchUp
	elastic  *elasticPods // nil: pods of elastic jobs are not ungated

	noQueueLabels bool
	noPodsReady   bool
	waitsForPods  bool
	requeuePods   bool
	leaveOrphans  bool
	queued        func(kind string, after time.Duration)
	gateRemoved   func(gate string, wl *kueue.Workload, group bool)
}

// result turns the error of a step into a result: whether and when to try again.
func (c *controller) result(j GenericJob, err error) (ctrl.Result, error) {
	var unretryable *kinds.UnretryableError
	var conflict *kinds.PodSetConflictError
	var missing *kinds.MissingError
	var later *requeueError
	var incomplete *podgroups.IncompleteError
	switch {
	case errors.As(err, &later):
		return ctrl.Result{RequeueAfter: later.after}, nil // the awaited change triggers a reconciliation; this is the timeout
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil // the cache is behind; its next event triggers a reconciliation, this is the fallback
	case errors.As(err, &incomplete):
		c.recorder.Eventf(j.Meta(), nil, corev1.EventTypeWarning, "ErrWorkloadCompose", "Queue", "%v", err)
		return ctrl.Result{}, nil // until a pod comes
	case errors.As(err, &missing):
		c.recorder.Eventf(j.Meta(), nil, corev1.EventTypeWarning, "Misconfigured", "Queue", "%v", err)
		return ctrl.Result{}, err
	case errors.As(err, &unretryable), errors.As(err, &conflict):
		c.recorder.Eventf(j.Meta(), nil, corev1.EventTypeWarning, "Misconfigured", "Queue", "%v", err)
		return ctrl.Result{}, nil // until the job is changed
	}
	return ctrl.Result{}, err
}

// step does the one thing that comes next for a job in its state.
func (c *controller) step(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	end, err := j.Finished()
	if err != nil {
		return err
	}
	if wl == nil {
		return c.withoutWorkload(ctx, j, end)
	}
	switch {
	case end.Ended:
		return c.finish(ctx, j, wl, end)
	case workload.IsFinished(wl):
		return c.stopFinished(ctx, j, wl)
	case wl.DeletionTimestamp != nil:
		return c.stopDeleted(ctx, j, wl)
	}
	if onHold, err := c.followHold(ctx, j, wl); onHold || err != nil {
		return err
	}
	if reported, err := c.reportAbsentPods(ctx, j, wl); reported || err != nil {
		return err
	}
	if changed, err := c.updateWorkload(ctx, j, wl); changed || err != nil {
		return err
	}
	if c.waitsForPods && !workload.IsAdmitted(wl) {
		if err := c.report(ctx, wl, c.notStarted); err != nil {
			return err
		}
	}
	if waiting, err := c.follow(ctx, j, wl); waiting || err != nil {
		return err
	}
	return j.CleanUp(ctx, c.client, wl)
}

// follow does with a job what the queue decided about its workload; waiting says that its pods are still being
// swapped in.
func (c *controller) follow(ctx context.Context, j GenericJob, wl *kueue.Workload) (waiting bool, err error) {
	switch gated, runsElsewhere := staysGated(j, wl); {
	case workload.IsEvicted(wl) || !workload.IsAdmitted(wl):
		return false, c.suspendAndRelease(ctx, j, wl)
	case runsElsewhere: // the cluster that runs the job reports its progress
		return false, nil
	case !j.IsStarted() && !gated:
		return false, c.start(ctx, j, wl)
	}
	if waiting, err := c.swapIn(ctx, j, wl); waiting || err != nil {
		return waiting, err
	}
	return false, c.reportProgress(ctx, j, wl)
}

// finish records in the workload how its job ended.
func (c *controller) finish(ctx context.Context, j GenericJob, wl *kueue.Workload, end kinds.Outcome) error {
	err := c.report(ctx, wl, func(wl *kueue.Workload) bool { return workload.Finish(wl, end.Reason, end.Message, c.now()) })
	if err != nil {
		return err
	}
	if !workload.IsFinished(wl) {
		c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "FinishedWorkload", "Finish", "Workload '%s/%s' is declared finished", wl.Namespace, wl.Name)
	}
	return errors.Join(j.CleanUp(ctx, c.client, wl), c.releaseFinished(ctx, wl))
}

// withoutWorkload does the first step for a job that has no workload.
func (c *controller) withoutWorkload(ctx context.Context, j GenericJob, end kinds.Outcome) error {
	switch {
	case end.Ended:
		return j.CleanUp(ctx, c.client, nil)
	case !j.IsSuspended():
		return c.stop(ctx, j, kinds.Stop{Reason: kinds.StopNoMatchingWorkload, Message: "Missing Workload; unable to restore pod templates"})
	case isCopy(j):
		return c.awaitPrebuilt(ctx, j)
	}
	return c.create(ctx, j)
}

// suspendAndRelease keeps a job stopped that may not run, and releases its quota once none of its
// pods is left.
func (c *controller) suspendAndRelease(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if swapped, err := c.swapOut(ctx, j, wl); swapped || err != nil {
		return err
	}
	if !j.IsSuspended() {
		if workload.IsEvicted(wl) {
			evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
			return c.stop(ctx, j, kinds.Stop{Reason: kinds.StopWorkloadEvicted + "DueTo" + evicted.Reason, Message: evicted.Message, Workload: wl})
		}
		if goesOn, err := c.runsOnReplaced(ctx, j, wl); goesOn || err != nil {
			return err
		}
		return c.stop(ctx, j, kinds.Stop{Reason: kinds.StopNotAdmitted, Message: "Not admitted by cluster queue", Workload: wl})
	}
	if workload.HasReservation(wl) && !workload.IsEvicted(wl) {
		c.sayChecks(j, wl)
	}
	return c.releaseWhenStopped(ctx, j, wl, false)
}

// sayChecks tells the job what its admission checks wait for.
func (c *controller) sayChecks(j GenericJob, wl *kueue.Workload) {
	var messages []string
	for _, check := range wl.Status.AdmissionChecks {
		if check.State == kueue.CheckStatePending && check.Message != "" {
			messages = append(messages, string(check.Name)+": "+check.Message)
		}
	}
	if len(messages) == 0 {
		return
	}
	for _, member := range j.Members() {
		c.recorder.Eventf(member, nil, corev1.EventTypeNormal, "UpdatedAdmissionCheck", "Check", "%s", eventNote(strings.Join(messages, "; ")))
	}
}

// releaseWhenStopped releases an evicted workload's quota once none of the job's pods is left.
func (c *controller) releaseWhenStopped(ctx context.Context, j GenericJob, wl *kueue.Workload, forGood bool) error {
	if !workload.IsEvicted(wl) || !workload.HasReservation(wl) || remote.Dispatched(wl) {
		return nil // a job in another cluster holds its quota until it has stopped there
	}
	active, err := j.IsActive()
	if err != nil || active {
		return err
	}
	if err := c.restore(ctx, j, wl); err != nil {
		return err
	}
	if workload.HadPodsReady(wl) { // the job is no longer ready; quota is released when that has been written
		return c.report(ctx, wl, c.notStarted)
	}
	next, err := c.nextSlice(ctx, j, wl)
	switch {
	case err != nil:
		return err
	case next != nil:
		return c.finishReplaced(ctx, wl, next) // which releases its quota, too
	}
	return c.releaseQuota(ctx, wl, forGood)
}

func (c *controller) start(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if gone, err := c.goneBefore(ctx, wl); gone || err != nil {
		return err // its deletion triggers a reconciliation
	}
	if next, err := c.nextSlice(ctx, j, wl); next != nil || err != nil {
		return err // it starts in its new size, as in Kueue
	}
	infos, err := c.podSetInfos(ctx, wl)
	if conflict := (&kinds.PodSetConflictError{}); errors.As(err, &conflict) {
		return c.finishFailedToStart(ctx, wl, err)
	}
	if err != nil {
		return err
	}
	if kinds.IsElastic(j) && !remote.Dispatched(wl) {
		gateElasticPods(wl, infos)
	}
	labelRanged(j, infos)
	if swapsOnPreemption(j) {
		if ready, err := c.restartable(ctx, j, wl); !ready || err != nil {
			return err
		}
		markSwappable(j, infos)
	}
	if err := j.Start(ctx, c.client, wl, infos); err != nil {
		if conflict := (&kinds.PodSetConflictError{}); errors.As(err, &conflict) {
			return c.finishFailedToStart(ctx, wl, err)
		}
		return err
	}
	c.recorder.Eventf(j.Meta(), wl, corev1.EventTypeNormal, "Started", "Start", "Admitted by clusterQueue %s", wl.Status.Admission.ClusterQueue)
	return nil
}

// finishFailedToStart finishes the workload of a job that contradicts its admission: another try would
// end the same way.
func (c *controller) finishFailedToStart(ctx context.Context, wl *kueue.Workload, why error) error {
	return c.report(ctx, wl, func(wl *kueue.Workload) bool { return workload.Finish(wl, "FailedToStart", why.Error(), c.now()) })
}

// eventNote fits a message into an event.
func eventNote(message string) string {
	const most = 1024
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-4], "") + " ..."
}

// podSetInfos collects what the admission adds to each pod set: the node labels and tolerations of
// its flavors, the updates of admission checks, and the labels by which the pods are found.
func (c *controller) podSetInfos(ctx context.Context, wl *kueue.Workload) ([]kinds.PodSetInfo, error) {
	admission := wl.Status.Admission
	if len(admission.PodSetAssignments) != len(wl.Spec.PodSets) {
		return nil, fmt.Errorf("the admission has %d pod sets, the workload %d", len(admission.PodSetAssignments), len(wl.Spec.PodSets))
	}
	admissionChecks, err := c.admissionChecks(ctx, wl)
	if err != nil {
		return nil, err
	}
	infos := make([]kinds.PodSetInfo, len(admission.PodSetAssignments))
	for i, assigned := range admission.PodSetAssignments {
		info := &infos[i]
		if info.Count = kinds.AdmittedCount(wl, i); remote.Dispatched(wl) {
			continue // the admission in the other cluster applies to its pods
		}
		info.Labels = map[string]string{kinds.PodSetLabel: string(assigned.Name)}
		if !c.noQueueLabels {
			info.Labels[kinds.ClusterQueueLabel], info.Labels[kinds.LocalQueueLabel] = string(admission.ClusterQueue), string(wl.Spec.QueueName)
		}
		if wl.Labels[kueue.MultiKueueOriginLabel] != "" {
			info.Labels[kueue.MultiKueueWorkerWorkloadPodLabel] = kueue.MultiKueueWorkerWorkloadPodValue
		}
		info.Annotations = map[string]string{kueue.WorkloadAnnotation: wl.Name}
		if info.NodeSelector, info.Tolerations, err = workload.FlavorsIn(ctx, c.client).NodeSelection(wl, &assigned); err != nil {
			return nil, err
		}
		for _, check := range admissionChecks {
			if err := info.AddUpdates(check.PodSetUpdates, assigned.Name); err != nil {
				return nil, fmt.Errorf("admission check %s: %w", check.Name, err)
			}
		}
		if assigned.TopologyAssignment != nil {
			if !asksForTopology(wl.Spec.PodSets[i].TopologyRequest) { // its flavor has one all the same
				info.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation] = "true"
			}
			info.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		}
		info.AvoidNodes(workload.AvoidNodes(wl))
	}
	return infos, nil
}

// admissionChecks are those that a workload has passed, or the variant that it is admitted as.
func (c *controller) admissionChecks(ctx context.Context, wl *kueue.Workload) ([]kueue.AdmissionCheckState, error) {
	if wl.Labels[kueuelabels.ConcurrentAdmissionParent] != "true" || len(wl.Status.AdmissionChecks) > 0 {
		return wl.Status.AdmissionChecks, nil
	}
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{kinds.OwnerUIDIndex: string(wl.UID)}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if v := &list.Items[i]; !workload.IsExtra(v) && workload.IsAdmitted(v) && equality.Semantic.DeepEqual(v.Status.Admission, wl.Status.Admission) {
			return v.Status.AdmissionChecks, nil
		}
	}
	return nil, nil
}

func asksForTopology(request *kueue.PodSetTopologyRequest) bool {
	return request != nil && (request.Required != nil || request.Preferred != nil || request.Unconstrained != nil)
}

func (c *controller) stop(ctx context.Context, j GenericJob, why kinds.Stop) error {
	stopped, err := j.Stop(ctx, c.client, why)
	if err != nil {
		return err
	}
	for _, obj := range stopped {
		c.recorder.Eventf(obj, nil, corev1.EventTypeNormal, "Stopped", "Stop", "%s", eventNote(why.Message))
	}
	return nil
}
