package jobs

import (
	"context"
	"crypto/sha1" //nolint:gosec // a short, stable name, not a secret
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Indexes that find the workload of a job: by the job's UID while it is there,
// by its kind and name when it is gone.
const (
	ownerIndex     = "metadata.ownerReferences.uid"
	ownerNameIndex = "metadata.ownerReferences.name"
)

// controller reconciles the jobs of one row.
type controller struct {
	client   client.Client
	kind     *Kind
	recorder events.EventRecorder
	options  Options
	now      func() time.Time
}

// Options of the job controllers.
type Options struct {
	// ManageJobsWithoutQueueName also takes jobs that name no queue.
	ManageJobsWithoutQueueName bool
}

// Setup adds a controller per kind, and the webhook, to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := indexOwners(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	table := Table()
	for i := range table {
		c := &controller{
			client: mgr.GetClient(), kind: &table[i], options: options, now: time.Now,
			recorder: mgr.GetEventRecorder("elastic-queue-" + strings.ToLower(table[i].GVK.Kind)),
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(table[i].GVK)
		err := ctrl.NewControllerManagedBy(mgr).Named(table[i].Name).For(object).Owns(&kueue.Workload{}).Complete(c)
		if err != nil {
			return fmt.Errorf("setting up %s: %w", table[i].Name, err)
		}
	}
	mgr.GetWebhookServer().Register(WebhookPath, newWebhook(table, options))
	return nil
}

func indexOwners(ctx context.Context, indexer client.FieldIndexer) error {
	for field, value := range map[string]func(*metav1.OwnerReference) string{
		ownerIndex: func(owner *metav1.OwnerReference) string { return string(owner.UID) },
		ownerNameIndex: func(owner *metav1.OwnerReference) string {
			return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind().String() + "/" + owner.Name
		},
	} {
		err := indexer.IndexField(ctx, &kueue.Workload{}, field, func(obj client.Object) []string {
			if owner := metav1.GetControllerOf(obj); owner != nil {
				return []string{value(owner)}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Reconcile brings one job and its workload together.
func (c *controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(c.kind.GVK)
	err := c.client.Get(ctx, request.NamespacedName, object)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, c.forget(ctx, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	j := job{object, c.kind}
	if !c.options.manages(j) || object.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	wl, err := c.workloadOf(ctx, j)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = c.step(ctx, j, wl)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // the cache is behind; what it misses wakes us, this is the fallback
	}
	return ctrl.Result{}, err
}

// forget deletes the workload of a job that is gone, rather than leave its
// quota taken until the garbage collector comes by.
func (c *controller) forget(ctx context.Context, name types.NamespacedName) error {
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list, client.InNamespace(name.Namespace), client.MatchingFields{ownerNameIndex: c.ownerName(name.Name)}); err != nil {
		return err
	}
	for i := range list.Items {
		if err := c.client.Delete(ctx, &list.Items[i], client.Preconditions{UID: &list.Items[i].UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (c *controller) ownerName(job string) string { return c.kind.GVK.GroupKind().String() + "/" + job }

// step does the one thing that comes next for a job in its state.
func (c *controller) step(ctx context.Context, j job, wl *kueue.Workload) error {
	ended, reason, message := j.finished()
	switch {
	case wl == nil && ended:
		return nil
	case wl == nil && !j.suspended():
		return c.stop(ctx, j, "it was started without being admitted")
	case wl == nil:
		return c.create(ctx, j)
	case ended:
		return c.report(ctx, wl, func(wl *kueue.Workload) bool { return workload.Finish(wl, reason, message, c.now()) })
	case workload.IsFinished(wl):
		return nil
	case workload.IsEvicted(wl) || !workload.IsAdmitted(wl):
		return c.hold(ctx, j, wl)
	case j.suspended():
		return c.start(ctx, j, wl)
	}
	return c.report(ctx, wl, func(wl *kueue.Workload) bool { return c.reportReadiness(j, wl) })
}

// hold keeps a job that may not run stopped, and gives its quota back once
// none of its pods is left.
func (c *controller) hold(ctx context.Context, j job, wl *kueue.Workload) error {
	if !j.suspended() {
		return c.stop(ctx, j, "its workload is not admitted")
	}
	if j.active() > 0 {
		return nil
	}
	if workload.IsEvicted(wl) && workload.HasReservation(wl) {
		return c.release(ctx, wl)
	}
	if workload.HasReservation(wl) {
		return nil
	}
	return c.follow(ctx, j, wl)
}

// follow takes changes of a waiting job over into its workload, after the
// templates are as the user wrote them.
func (c *controller) follow(ctx context.Context, j job, wl *kueue.Workload) error {
	sets, err := j.podSets()
	if err != nil {
		return c.misfit(j, err)
	}
	if wl.Spec.QueueName != j.queueName() {
		wl = wl.DeepCopy()
		wl.Spec.QueueName = j.queueName()
		return c.client.Update(ctx, wl)
	}
	if equality.Semantic.DeepEqual(sets, wl.Spec.PodSets) {
		return nil
	}
	if condition := metav1.GetControllerOf(wl); condition != nil && wasStarted(wl) {
		return c.restore(ctx, j, wl)
	}
	wl = wl.DeepCopy()
	wl.Spec.PodSets = sets
	return c.client.Update(ctx, wl)
}

// wasStarted says the templates may still carry what an admission added.
func wasStarted(wl *kueue.Workload) bool {
	for _, condition := range wl.Status.Conditions {
		if condition.Type == kueue.WorkloadAdmitted {
			return true
		}
	}
	return false
}

func (c *controller) restore(ctx context.Context, j job, wl *kueue.Workload) error {
	restored := job{j.DeepCopy(), j.kind}
	if err := restored.inject(wl.Spec.PodSets, nil); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(restored.Object, j.Object) {
		return nil
	}
	return c.patch(ctx, j, restored)
}

func (c *controller) create(ctx context.Context, j job) error {
	sets, err := j.podSets()
	if err != nil {
		return c.misfit(j, err)
	}
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       j.GetNamespace(),
			Name:            workloadName(j),
			Labels:          map[string]string{JobUIDLabel: string(j.GetUID())},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, c.kind.GVK)},
		},
		Spec: kueue.WorkloadSpec{QueueName: j.queueName(), PodSets: sets},
	}
	if err := c.prioritize(ctx, j, wl); err != nil {
		return err
	}
	if err := c.client.Create(ctx, wl); err != nil {
		return err
	}
	c.recorder.Eventf(j, wl, corev1.EventTypeNormal, "CreatedWorkload", "Create", "Created Workload: %s/%s", wl.Namespace, wl.Name)
	return nil
}

// prioritize gives the workload its priority: of the WorkloadPriorityClass the
// job names, else of its pods' PriorityClass.
func (c *controller) prioritize(ctx context.Context, j job, wl *kueue.Workload) error {
	if name := j.GetLabels()[PriorityClassLabel]; name != "" {
		class := &kueue.WorkloadPriorityClass{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
			return fmt.Errorf("WorkloadPriorityClass %s of the job: %w", name, err)
		}
		wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
		wl.Spec.Priority = ptr.To(class.Value)
		return nil
	}
	for _, set := range wl.Spec.PodSets {
		if name := set.Template.Spec.PriorityClassName; name != "" {
			class := &schedulingv1.PriorityClass{}
			if err := c.client.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
				return fmt.Errorf("PriorityClass %s of the job's pods: %w", name, err)
			}
			wl.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(name)
			wl.Spec.Priority = ptr.To(class.Value)
			return nil
		}
	}
	wl.Spec.Priority = ptr.To(int32(0))
	return nil
}

func (c *controller) start(ctx context.Context, j job, wl *kueue.Workload) error {
	infos, err := c.podSetInfos(ctx, wl)
	if err != nil {
		return err
	}
	started := job{j.DeepCopy(), j.kind}
	if err := started.inject(wl.Spec.PodSets, infos); err != nil {
		return err
	}
	if err := started.setSuspended(false); err != nil {
		return err
	}
	if err := c.patch(ctx, j, started); err != nil {
		return err
	}
	c.recorder.Eventf(j, wl, corev1.EventTypeNormal, "Started", "Start", "Admitted by clusterQueue %s", wl.Status.Admission.ClusterQueue)
	return nil
}

// podSetInfos collects what the assigned flavors add to each pod set.
func (c *controller) podSetInfos(ctx context.Context, wl *kueue.Workload) ([]podSetInfo, error) {
	infos := make([]podSetInfo, len(wl.Status.Admission.PodSetAssignments))
	for i, assigned := range wl.Status.Admission.PodSetAssignments {
		infos[i].nodeSelector = map[string]string{}
		seen := map[kueue.ResourceFlavorReference]bool{}
		for _, name := range assigned.Flavors {
			if seen[name] {
				continue
			}
			seen[name] = true
			flavor := &kueue.ResourceFlavor{}
			if err := c.client.Get(ctx, types.NamespacedName{Name: string(name)}, flavor); err != nil {
				return nil, fmt.Errorf("flavor %s of the admission: %w", name, err)
			}
			for key, value := range flavor.Spec.NodeLabels {
				infos[i].nodeSelector[key] = value
			}
			infos[i].tolerations = append(infos[i].tolerations, flavor.Spec.Tolerations...)
		}
	}
	return infos, nil
}

func (c *controller) stop(ctx context.Context, j job, why string) error {
	stopped := job{j.DeepCopy(), j.kind}
	if err := stopped.setSuspended(true); err != nil {
		return err
	}
	if err := c.patch(ctx, j, stopped); err != nil {
		return err
	}
	c.recorder.Eventf(j, nil, corev1.EventTypeNormal, "Stopped", "Stop", "The job is suspended: %s", why)
	return nil
}

// patch writes the difference, against the version it was computed from.
func (c *controller) patch(ctx context.Context, from, to job) error {
	base := client.MergeFromWithOptions(from.Unstructured, client.MergeFromWithOptimisticLock{})
	return c.client.Patch(ctx, to.Unstructured, base)
}

// misfit tells the user that the job cannot be understood. Trying again does
// not help; changing the job wakes us.
func (c *controller) misfit(j job, err error) error {
	c.recorder.Eventf(j, nil, corev1.EventTypeWarning, "Misconfigured", "Queue", "%v", err)
	return nil
}

func (c *controller) reportReadiness(j job, wl *kueue.Workload) bool {
	if j.podsReady(wl.Spec.PodSets) {
		return workload.PodsReady(wl, true, kueue.WorkloadStarted, "All pods reached readiness and the workload is running", c.now())
	}
	reason := kueue.WorkloadWaitForStart
	if workload.HadPodsReady(wl) {
		reason = kueue.WorkloadWaitForRecovery
	}
	return workload.PodsReady(wl, false, reason, "Not all pods are ready or succeeded", c.now())
}

// report writes what the job says of itself, if that is news.
func (c *controller) report(ctx context.Context, wl *kueue.Workload, change func(*kueue.Workload) bool) error {
	wl = wl.DeepCopy()
	if !change(wl) {
		return nil
	}
	data, err := workload.JobPatch(wl)
	if err != nil {
		return err
	}
	return c.apply(ctx, wl, data, workload.JobManager)
}

// release gives an evicted workload's quota back.
func (c *controller) release(ctx context.Context, wl *kueue.Workload) error {
	wl = wl.DeepCopy()
	if !workload.Release(wl, "The job has stopped", c.now()) {
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

func (c *controller) workloadOf(ctx context.Context, j job) (*kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := c.client.List(ctx, list, client.InNamespace(j.GetNamespace()), client.MatchingFields{ownerIndex: string(j.GetUID())})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// workloadName is readable and the same at every attempt, so that a workload
// is never made twice.
func workloadName(j job) string {
	kind := strings.ToLower(j.kind.GVK.Kind)
	sum := sha1.Sum([]byte(strings.Join([]string{j.kind.GVK.Group, kind, j.GetName(), string(j.GetUID())}, "\n"))) //nolint:gosec // see the import
	prefix := kind + "-" + j.GetName()
	const most = 63 - 6
	if len(prefix) > most {
		prefix = prefix[:most]
	}
	return prefix + "-" + hex.EncodeToString(sum[:])[:5]
}
