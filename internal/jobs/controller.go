package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// controller brings jobs and their workloads together. It knows no kind.
type controller struct {
	client   client.Client
	pods     client.Reader // of pods that wait or waited in a queue, grow or are swapped
	scope    *scope
	recorder events.EventRecorder
	now      func() time.Time
	copies   *Copies

	copyLabels    []string
	noQueueLabels bool
	noSliceLayers bool
	requeuePods   bool
	queued        func(kind string, after time.Duration)
}

// objects reconciles the jobs of one row that have a suspend flag.
type objects struct {
	*controller
	kind *Kind
}

// Reconcile brings one job and its workload together.
func (c *objects) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(c.kind.GVK)
	err := c.client.Get(ctx, request.NamespacedName, obj)
	if apierrors.IsNotFound(err) {
		return c.forget(ctx, request.Namespace, ownerKey(c.kind.GVK.GroupKind(), request.Name))
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	managed, err := c.scope.manages(ctx, c.kind, obj)
	if err == nil && !managed && queueName(obj) == "" && (object{obj, c.kind}).held() {
		// It was taken out of its queue: what waits there for it would wait for nobody.
		return c.forget(ctx, request.Namespace, ownerKey(c.kind.GVK.GroupKind(), request.Name))
	}
	if err != nil || !managed {
		return ctrl.Result{}, err
	}
	wls, err := c.workloadsOf(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	j := object{obj, c.kind}
	if obj.GetDeletionTimestamp() != nil {
		return c.result(j, c.leave(ctx, wls))
	}
	wl, err := c.current(ctx, j, wls)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wl == nil && prebuilt(obj) {
		return c.result(j, c.adopt(ctx, j))
	}
	c.copies.tell(c.kind, wl)
	if err = c.step(ctx, j, wl); err == nil {
		err = c.letGrow(ctx, j, wl)
	}
	return c.result(j, err)
}

// result turns what a step met into what is to be done about it.
func (c *controller) result(j job, err error) (ctrl.Result, error) {
	var misfit *misfitError
	var conflict *conflictError
	var later *laterError
	switch {
	case errors.As(err, &later):
		return ctrl.Result{RequeueAfter: later.after}, nil // what it waits for wakes us, this is the end of patience
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil // the cache is behind; what it misses wakes us, this is the fallback
	case errors.As(err, &misfit), errors.As(err, &conflict):
		c.recorder.Eventf(j.meta(), nil, corev1.EventTypeWarning, "Misconfigured", "Queue", "%v", err)
		return ctrl.Result{}, nil // changing the job wakes us
	}
	return ctrl.Result{}, err
}

// forget deletes the workload of a job that is gone, rather than leave its
// quota taken until the garbage collector comes by. One that the job has left
// behind (an orphan) is not the job's any more, though the cache may yet say so.
func (c *controller) forget(ctx context.Context, namespace, owner string) (ctrl.Result, error) {
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{ownerNameIndex: owner}); err != nil {
		return ctrl.Result{}, err
	}
	for i := range list.Items {
		wl := &list.Items[i]
		err := c.client.Delete(ctx, wl.DeepCopy(), client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if err := workload.LetGo(ctx, c.client, wl); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

func (c *controller) drop(ctx context.Context, wl *kueue.Workload) error {
	return workload.Remove(ctx, c.client, wl)
}

// abandon lets go of the workloads of a kind that is no longer queued: nobody
// will when its jobs have stopped.
func (c *controller) abandon(ctx context.Context, kind *Kind) error {
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner == nil || owner.Kind != kind.GVK.Kind || owner.APIVersion != kind.GVK.GroupVersion().String() {
			continue
		}
		if err := workload.LetGo(ctx, c.client, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// step does the one thing that comes next for a job in its state.
func (c *controller) step(ctx context.Context, j job, wl *kueue.Workload) error {
	end, err := j.finished()
	if err != nil {
		return err
	}
	if wl == nil {
		return c.begin(ctx, j, end)
	}
	switch {
	case end.ended:
		err := c.report(ctx, wl, func(wl *kueue.Workload) bool { return workload.Finish(wl, end.reason, end.message, c.now()) })
		if err != nil {
			return err
		}
		return errors.Join(j.settle(ctx, c.client, wl), c.letGo(ctx, wl))
	case workload.IsFinished(wl):
		return c.outlived(ctx, j, wl)
	case wl.DeletionTimestamp != nil:
		return c.part(ctx, j, wl)
	}
	if changed, err := c.follow(ctx, j, wl); changed || err != nil {
		return err
	}
	switch gated, mute := staysGated(j, wl); {
	case workload.IsEvicted(wl) || !workload.IsAdmitted(wl):
		err = c.hold(ctx, j, wl)
	case mute: // who runs it tells how it goes
	case !j.started() && !gated:
		err = c.start(ctx, j, wl)
	default:
		if waiting, err := c.swapIn(ctx, j, wl); waiting || err != nil {
			return err
		}
		err = c.reportProgress(ctx, j, wl)
	}
	if err != nil {
		return err
	}
	return j.settle(ctx, c.client, wl)
}

// begin does what comes first for a job that has no workload.
func (c *controller) begin(ctx context.Context, j job, end outcome) error {
	switch {
	case end.ended:
		return j.settle(ctx, c.client, nil)
	case !j.held():
		return c.stop(ctx, j, "it was started without being admitted")
	case sentHere(j):
		return c.await(ctx, j)
	}
	return c.create(ctx, j)
}

// outlived stops a job whose workload was finished by someone else.
func (c *controller) outlived(ctx context.Context, j job, wl *kueue.Workload) error {
	if j.held() {
		return c.letGo(ctx, wl)
	}
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return c.stop(ctx, j, finished.Message)
}

// letGo takes the finalizer off a workload that is seen to be finished; one that
// was just written as such wakes us.
func (c *controller) letGo(ctx context.Context, wl *kueue.Workload) error {
	if !workload.IsFinished(wl) {
		return nil
	}
	return workload.LetGo(ctx, c.client, wl)
}

// part stops a job whose workload was deleted. It holds its quota until none of
// the job's pods is left; then the job asks for another.
func (c *controller) part(ctx context.Context, j job, wl *kueue.Workload) error {
	if !j.held() {
		return c.stop(ctx, j, "Workload is deleted")
	}
	if sentAway(wl) {
		return nil // until it has stopped there
	}
	active, err := j.active()
	if err != nil || active {
		return err
	}
	if err := j.restore(ctx, c.client, wl); err != nil {
		return err
	}
	return workload.LetGo(ctx, c.client, wl)
}

// leave lets go of the workloads of a job that is being deleted: it may wait for
// them to be gone.
func (c *controller) leave(ctx context.Context, wls []kueue.Workload) error {
	for i := range wls {
		if wls[i].DeletionTimestamp == nil {
			continue
		}
		if err := workload.LetGo(ctx, c.client, &wls[i]); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps a job that may not run stopped, and gives its quota back once
// none of its pods is left.
func (c *controller) hold(ctx context.Context, j job, wl *kueue.Workload) error {
	if swapped, err := c.swapOut(ctx, j, wl); swapped || err != nil {
		return err
	}
	if !j.held() {
		why := "its workload is not admitted"
		if evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); evicted != nil && evicted.Status == metav1.ConditionTrue {
			why = evicted.Message
		}
		return c.stop(ctx, j, why)
	}
	return c.giveBack(ctx, j, wl, false)
}

// giveBack returns an evicted workload's quota once none of the job's pods is left.
func (c *controller) giveBack(ctx context.Context, j job, wl *kueue.Workload, forGood bool) error {
	if !workload.IsEvicted(wl) || !workload.HasReservation(wl) || sentAway(wl) {
		return nil // what runs elsewhere keeps its quota until it has stopped there
	}
	active, err := j.active()
	if err != nil || active {
		return err
	}
	if err := j.restore(ctx, c.client, wl); err != nil {
		return err
	}
	if workload.HadPodsReady(wl) { // that is over; hearing of it, we go on
		return c.report(ctx, wl, c.notStarted)
	}
	return c.release(ctx, wl, forGood)
}

// follow takes changes of a job over into its workload, and reports whether it
// changed that.
func (c *controller) follow(ctx context.Context, j job, wl *kueue.Workload) (bool, error) {
	wanted := wl.DeepCopy()
	if err := c.prioritize(ctx, j, wanted); err != nil {
		return false, err
	}
	if !workload.HasReservation(wl) {
		wanted.Spec.QueueName = queueName(j.meta())
		if changed, err := c.reshape(ctx, j, wanted); changed || err != nil {
			return changed, err
		}
	} else if changed, err := c.resize(ctx, j, wl); changed || err != nil {
		return changed, err
	}
	if equality.Semantic.DeepEqual(wanted.Spec, wl.Spec) {
		return false, nil
	}
	return true, c.client.Update(ctx, wanted)
}

// reshape takes over what a waiting job asks for. A prebuilt workload cannot
// follow: it is finished instead, which the result reports.
func (c *controller) reshape(ctx context.Context, j job, wl *kueue.Workload) (bool, error) {
	if unchanging(j) || !j.held() {
		return false, nil
	}
	sets, err := c.podSets(ctx, j)
	if err != nil || same(sets, wl.Spec.PodSets) {
		return false, err
	}
	if prebuilt(j.meta()) {
		return true, c.outOfSync(ctx, wl)
	}
	wl.Spec.PodSets = sets
	return false, nil
}

func (c *controller) outOfSync(ctx context.Context, wl *kueue.Workload) error {
	return c.report(ctx, wl, func(wl *kueue.Workload) bool {
		return workload.Finish(wl, kueue.WorkloadFinishedReasonOutOfSync, "The prebuilt workload is out of sync with its job", c.now())
	})
}

func (c *controller) create(ctx context.Context, j job) error {
	wl, err := c.build(ctx, j, j.workloadName())
	if err != nil {
		return err
	}
	if err := c.client.Create(ctx, wl); err != nil {
		return err
	}
	if c.queued != nil {
		c.queued(j.row().GVK.Kind, c.now().Sub(j.meta().GetCreationTimestamp().Time))
	}
	c.recorder.Eventf(j.meta(), wl, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", wl.Namespace, wl.Name)
	return nil
}

// build makes the workload that describes a job.
func (c *controller) build(ctx context.Context, j job, name string) (*kueue.Workload, error) {
	sets, err := c.podSets(ctx, j)
	if err != nil {
		return nil, err
	}
	obj := j.meta()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: name},
		Spec:       kueue.WorkloadSpec{QueueName: queueName(obj), PodSets: sets},
	}
	j.own(wl)
	workload.Keep(wl)
	c.inheritLabels(obj, wl)
	for key, value := range obj.GetAnnotations() {
		if strings.HasPrefix(key, ProvReqPrefix) || key == ElasticAnnotation && elastic(j) {
			setAnnotation(wl, key, value)
		}
	}
	if text := obj.GetLabels()[MaxExecTimeLabel]; text != "" {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, &misfitError{fmt.Errorf("label %s: %q is not a number of seconds", MaxExecTimeLabel, text)}
		}
		wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(seconds))
	}
	return wl, c.prioritize(ctx, j, wl)
}

// inheritLabels copies those of the job's labels that people want to find
// workloads by.
func (c *controller) inheritLabels(obj client.Object, wl *kueue.Workload) {
	for _, key := range c.copyLabels {
		if value, has := obj.GetLabels()[key]; has {
			if wl.Labels == nil {
				wl.Labels = map[string]string{}
			}
			wl.Labels[key] = value
		}
	}
}

// prioritize gives the workload its priority: of the WorkloadPriorityClass the
// job names, else of its pods' PriorityClass. The latter stays as it was.
func (c *controller) prioritize(ctx context.Context, j job, wl *kueue.Workload) error {
	if name := j.meta().GetLabels()[PriorityClassLabel]; name != "" {
		if wl.Spec.PriorityClassRef != nil && wl.Spec.PriorityClassRef.Name == name && wl.Spec.Priority != nil {
			return nil
		}
		class := &kueue.WorkloadPriorityClass{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
			return fmt.Errorf("WorkloadPriorityClass %s of the job: %w", name, err)
		}
		wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
		wl.Spec.Priority = ptr.To(class.Value)
		return nil
	}
	if wl.Spec.Priority != nil {
		return nil
	}
	name, err := podPriorityClass(j, wl.Spec.PodSets)
	if err != nil || name == "" {
		wl.Spec.Priority = ptr.To(int32(0))
		return err
	}
	class := &schedulingv1.PriorityClass{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
		return fmt.Errorf("PriorityClass %s of the job's pods: %w", name, err)
	}
	wl.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(name)
	wl.Spec.Priority = ptr.To(class.Value)
	return nil
}

func podPriorityClass(j job, sets []kueue.PodSet) (string, error) {
	if o, ok := j.(object); ok {
		name, err := o.kind.priorityClass.text(o.vars())
		if name != "" || err != nil {
			return name, err
		}
	}
	for _, set := range sets {
		if name := set.Template.Spec.PriorityClassName; name != "" {
			return name, nil
		}
	}
	return "", nil
}

func (c *controller) start(ctx context.Context, j job, wl *kueue.Workload) error {
	additions, err := c.additions(ctx, wl)
	if err != nil {
		return err
	}
	if elastic(j) {
		gateGrowth(j, additions)
	}
	if swaps(j) {
		if ready, err := c.restartable(ctx, j, wl); !ready || err != nil {
			return err
		}
		markSwapped(j, additions)
	}
	if err := j.start(ctx, c.client, wl, additions); err != nil {
		return err
	}
	c.recorder.Eventf(j.meta(), wl, corev1.EventTypeNormal, "Started", "Start", "Admitted by clusterQueue %s", wl.Status.Admission.ClusterQueue)
	return nil
}

// additions collects what the admission adds to each pod set: the flavors'
// labels and tolerations, what admission checks ask for, and by which names
// the pods are found again.
func (c *controller) additions(ctx context.Context, wl *kueue.Workload) ([]podSetInfo, error) {
	admission := wl.Status.Admission
	if len(admission.PodSetAssignments) != len(wl.Spec.PodSets) {
		return nil, fmt.Errorf("the admission has %d pod sets, the workload %d", len(admission.PodSetAssignments), len(wl.Spec.PodSets))
	}
	infos := make([]podSetInfo, len(admission.PodSetAssignments))
	for i, assigned := range admission.PodSetAssignments {
		info := &infos[i]
		if info.count = admittedCount(wl, i); sentAway(wl) {
			continue // its pods are made by another admission
		}
		info.labels = map[string]string{PodSetLabel: string(assigned.Name)}
		if !c.noQueueLabels {
			info.labels[ClusterQueueLabel], info.labels[LocalQueueLabel] = string(admission.ClusterQueue), string(wl.Spec.QueueName)
		}
		if wl.Labels[kueue.MultiKueueOriginLabel] != "" {
			info.labels[kueue.MultiKueueWorkerWorkloadPodLabel] = kueue.MultiKueueWorkerWorkloadPodValue
		}
		info.annotations = map[string]string{kueue.WorkloadAnnotation: wl.Name}
		var err error
		if info.nodeSelector, info.tolerations, err = workload.FlavorsIn(ctx, c.client).Steer(&assigned); err != nil {
			return nil, err
		}
		for _, check := range wl.Status.AdmissionChecks {
			if err := info.update(check.PodSetUpdates, assigned.Name); err != nil {
				return nil, fmt.Errorf("admission check %s: %w", check.Name, err)
			}
		}
		if assigned.TopologyAssignment != nil {
			info.gates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		}
	}
	return infos, nil
}

func (info *podSetInfo) update(updates []kueue.PodSetUpdate, name kueue.PodSetReference) error {
	for _, u := range updates {
		if u.Name != name {
			continue
		}
		if err := errors.Join(
			merge("label", &info.labels, u.Labels),
			merge("annotation", &info.annotations, u.Annotations),
			merge("node selector", &info.nodeSelector, u.NodeSelector),
		); err != nil {
			return err
		}
		info.tolerations = append(info.tolerations, u.Tolerations...)
	}
	return nil
}

func (c *controller) stop(ctx context.Context, j job, why string) error {
	if err := j.stop(ctx, c.client, why); err != nil {
		return err
	}
	c.recorder.Eventf(j.meta(), nil, corev1.EventTypeNormal, "Stopped", "Stop", "The job is stopped: %s", why)
	return nil
}

// release gives an evicted workload's quota back. It stands in line again, unless
// it leaves for good.
func (c *controller) release(ctx context.Context, wl *kueue.Workload, forGood bool) error {
	wl = wl.DeepCopy()
	changed := workload.Release(wl, "The job has stopped", c.now())
	if forGood {
		changed = workload.Depart(wl, c.now()) || changed
	}
	if !changed {
		return nil
	}
	data, err := workload.AdmissionPatch(wl)
	if err != nil {
		return err
	}
	return c.apply(ctx, wl, data, workload.AdmissionManager)
}

func (c *controller) apply(ctx context.Context, wl *kueue.Workload, data []byte, manager string) error {
	return c.client.Status().Patch(ctx, wl, client.RawPatch(types.ApplyYAMLPatchType, data),
		client.FieldOwner(manager), client.ForceOwnership)
}

// workloadsOf are the workloads a job owns, the oldest first.
func (c *controller) workloadsOf(ctx context.Context, obj client.Object) ([]kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := c.client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{ownerIndex: string(obj.GetUID())})
	slices.SortFunc(list.Items, func(a, b kueue.Workload) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return list.Items, err
}
