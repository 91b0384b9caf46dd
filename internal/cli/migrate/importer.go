package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/job"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// candidate is a job that may be imported.
type candidate struct {
	Namespace    string   `json:"namespace"`
	Job          string   `json:"job"`
	Outcome      string   `json:"result"`
	Queue        string   `json:"queue,omitempty"`
	ClusterQueue string   `json:"clusterQueue,omitempty"`
	Workload     string   `json:"workload,omitempty"`
	Uses         []string `json:"uses,omitempty"`
	Why          string   `json:"why,omitempty"`

	job       *job.Job
	workload  *kueue.Workload
	admission *admission.Admission
	checks    []kueue.AdmissionCheckState
}

// importer finds the jobs first, and then brings in those it can.
type importer struct {
	*cluster.Client
	mapping  *mapping
	counting *workload.ResourceTransformations

	localQueues map[types.NamespacedName]*kueue.LocalQueue
	queues      map[string]*kueue.ClusterQueue
	flavors     map[string]*kueue.ResourceFlavor
	nodes       map[string]map[string]string // a node's labels
	// extended resources that a DeviceClass stands behind.
	extended map[string]bool
	// formats of amounts that the queue counts devices in.
	formats map[string]resource.Format

	answers bool // the queue runs
	found   []*candidate
	notes   []string
}

// look finds what runs in no queue, and whether it can be imported.
func (im *importer) look(ctx context.Context, namespace string) error {
	if err := im.readQueues(ctx); err != nil {
		return err
	}
	known, err := job.List(ctx, im.Client, namespace, "")
	if err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := im.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	theirs := map[types.UID]bool{}
	for _, j := range known {
		for _, pod := range j.Pods {
			theirs[pod.UID] = true
		}
	}
	single, parts, err := alone(pods.Items, theirs)
	if err != nil {
		return err
	}
	for _, j := range append(known, single...) {
		if j.Object.GetLabels()[kinds.QueueNameLabel] != "" || j.Object.GetAnnotations()[kinds.QueueNameLabel] != "" || j.Object.GetDeletionTimestamp() != nil {
			continue
		}
		view, err := j.Kind.View(j.Object)
		if err != nil || view.Ended {
			continue
		}
		im.found = append(im.found, im.examine(ctx, j, view))
	}
	im.found = append(im.found, parts...)
	slices.SortFunc(im.found, func(a, b *candidate) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Job, b.Job))
	})
	im.weigh()
	return nil
}

func (im *importer) readQueues(ctx context.Context) error {
	localQueues, queues, flavors, nodes := &kueue.LocalQueueList{}, &kueue.ClusterQueueList{}, &kueue.ResourceFlavorList{}, &corev1.NodeList{}
	for _, list := range []client.ObjectList{localQueues, queues, flavors, nodes} {
		if err := im.List(ctx, list); err != nil {
			return err
		}
	}
	im.localQueues, im.queues = map[types.NamespacedName]*kueue.LocalQueue{}, map[string]*kueue.ClusterQueue{}
	im.flavors, im.nodes = map[string]*kueue.ResourceFlavor{}, map[string]map[string]string{}
	for i := range localQueues.Items {
		im.localQueues[client.ObjectKeyFromObject(&localQueues.Items[i])] = &localQueues.Items[i]
	}
	for i := range queues.Items {
		im.queues[queues.Items[i].Name] = &queues.Items[i]
	}
	for i := range flavors.Items {
		im.flavors[flavors.Items[i].Name] = &flavors.Items[i]
	}
	for i := range nodes.Items {
		im.nodes[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	return im.readClasses(ctx)
}

// readClasses of devices, where there are any.
func (im *importer) readClasses(ctx context.Context) error {
	im.extended, im.formats = map[string]bool{}, map[string]resource.Format{}
	classes := &resourceapi.DeviceClassList{}
	if err := im.List(ctx, classes); err != nil && !apimeta.IsNoMatchError(err) {
		return err
	}
	for i := range classes.Items {
		if name := classes.Items[i].Spec.ExtendedResourceName; name != nil {
			im.extended[*name] = true
		}
	}
	return nil
}

// alone are the running pods that no job has made, and the makers of others.
func alone(pods []corev1.Pod, theirs map[types.UID]bool) (single []*job.Job, parts []*candidate, err error) {
	rows := kinds.Table()
	row := rows[slices.IndexFunc(rows, func(k *kinds.Kind) bool { return k.Name == "pod" })]
	seen := map[types.UID]bool{}
	for i := range pods {
		pod := &pods[i]
		if theirs[pod.UID] || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.Labels[kinds.QueueNameLabel] != "" {
			continue
		}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			if !seen[owner.UID] {
				seen[owner.UID] = true
				parts = append(parts, &candidate{
					Namespace: pod.Namespace, Job: strings.ToLower(owner.Kind) + "/" + owner.Name, Outcome: skipped,
					Why: "its pods are replaced by it: put the label " + kinds.QueueNameLabel + " on what makes them",
				})
			}
			continue
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			return nil, nil, err
		}
		u := &unstructured.Unstructured{Object: object}
		u.SetGroupVersionKind(row.GVK)
		single = append(single, &job.Job{Kind: row, Object: u, Pods: []*corev1.Pod{pod}})
	}
	return single, parts, nil
}

// examine says whether a job can be imported, and as what.
func (im *importer) examine(ctx context.Context, j *job.Job, view kinds.View) *candidate {
	f := &candidate{Namespace: j.Object.GetNamespace(), Job: strings.ToLower(j.Kind.GVK.Kind) + "/" + j.Object.GetName(), Outcome: problem, job: j}
	wl, err := j.Kind.BuildWorkload(ctx, im, j.Object)
	if err != nil {
		f.Why = err.Error()
		return f
	}
	r := im.mapping.find(j.Object.GetLabels(), wl.Spec.PodSets[0].Template.Spec.PriorityClassName)
	switch {
	case r == nil:
		f.Outcome, f.Why = skipped, "no rule is for it"
		return f
	case r.Skip:
		f.Outcome, f.Why = skipped, "a rule says so"
		return f
	}
	f.Queue, f.Workload, f.workload = r.ToLocalQueue, wl.Name, wl
	wl.Spec.QueueName = kueue.LocalQueueName(r.ToLocalQueue)
	localQueue := im.localQueues[types.NamespacedName{Namespace: f.Namespace, Name: f.Queue}]
	if localQueue == nil {
		f.Why = fmt.Sprintf("there is no LocalQueue %s in %s", f.Queue, f.Namespace)
		return f
	}
	f.ClusterQueue = string(localQueue.Spec.ClusterQueue)
	cq := im.queues[f.ClusterQueue]
	if cq == nil {
		f.Why = fmt.Sprintf("there is no ClusterQueue %s", f.ClusterQueue)
		return f
	}
	if view.Suspended {
		f.Outcome, f.Why = skipped, "it is suspended: with the label "+kinds.QueueNameLabel+" it would wait in the queue"
		return f
	}
	sets, err := im.count(ctx, wl)
	if err == nil {
		err = im.assign(f, sets, cq)
	}
	if err != nil {
		f.Why = err.Error()
		return f
	}
	f.Outcome = fits
	return f
}

// count what a job's pods take of quota. How devices count only the queue
// knows, so it is asked.
func (im *importer) count(ctx context.Context, wl *kueue.Workload) ([]admission.PodSet, error) {
	sets := workload.ForEngine(wl, im.counting).PodSets
	if !workload.UsesResourceClaims(wl) && !slices.ContainsFunc(sets, im.mayHaveDevices) {
		return sets, nil
	}
	plan, err := job.Plan(ctx, im.Client, wl)
	if err != nil {
		return nil, fmt.Errorf("its pods have devices, which the queue must count: %w", err)
	}
	if status := plan.Status; status.State == string(admission.StateHeldBack) && len(status.Devices) == 0 {
		return nil, errors.New(status.Message)
	}
	return sets, im.addDevices(sets, plan.Status.Devices)
}

// mayHaveDevices says that a class stands behind a resource of the pods.
func (im *importer) mayHaveDevices(set admission.PodSet) bool {
	for name := range set.Requests {
		if im.extended[name] || strings.HasPrefix(name, resourceapi.ResourceDeviceClassPrefix) {
			return true
		}
	}
	return false
}

// addDevices to what pods take, as the queue counts them.
func (im *importer) addDevices(sets []admission.PodSet, devices []v1alpha1.Device) error {
	for i := range sets {
		requests := maps.Clone(sets[i].Requests)
		mine := func(d v1alpha1.Device) bool { return d.PodSet == sets[i].Name }
		for _, d := range devices {
			if mine(d) {
				delete(requests, d.Instead)
			}
		}
		for _, d := range devices {
			amount, err := resource.ParseQuantity(d.Amount)
			if err != nil {
				return fmt.Errorf("the queue counts %q of %s: %w", d.Amount, d.Resource, err)
			}
			if mine(d) {
				im.formats[d.Resource] = amount.Format
				requests[d.Resource] += workload.Amount(corev1.ResourceName(d.Resource), amount)
			}
		}
		sets[i].Requests = requests
	}
	return nil
}

func (im *importer) quantity(name string, amount int64) string {
	q := workload.Quantity(corev1.ResourceName(name), amount)
	if format, known := im.formats[name]; known {
		q.Format = format
	}
	return q.String()
}

// assign counts a job in a queue's quota, in the flavors of the nodes it is on.
func (im *importer) assign(f *candidate, sets []admission.PodSet, cq *kueue.ClusterQueue) error {
	f.admission = &admission.Admission{Queue: cq.Name}
	uses := map[string]int64{}
	for _, set := range sets {
		got := admission.PodSetAssignment{Name: set.Name, Count: set.Count, Flavors: map[string]string{}, Usage: admission.Requests{}}
		asked := maps.Clone(set.Requests)
		if covers(cq, corev1.ResourcePods) {
			asked[admission.Pods] = 1
		}
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			amount := asked[name]
			if amount == 0 {
				continue
			}
			flavor, err := im.flavorFor(f, cq, corev1.ResourceName(name))
			if err != nil {
				return err
			}
			got.Flavors[name], got.Usage[name] = flavor, amount*int64(set.Count)
			uses[name+" of "+flavor] += amount * int64(set.Count)
		}
		f.admission.PodSets = append(f.admission.PodSets, got)
	}
	for _, key := range slices.Sorted(maps.Keys(uses)) {
		name, _, _ := strings.Cut(key, " ")
		f.Uses = append(f.Uses, im.quantity(name, uses[key])+" "+key)
	}
	if s := cq.Spec.AdmissionChecksStrategy; s != nil {
		for _, check := range s.AdmissionChecks {
			f.checks = append(f.checks, kueue.AdmissionCheckState{Name: check.Name, State: kueue.CheckStateReady, Message: "Imported", LastTransitionTime: metav1.Now()})
		}
	}
	return nil
}

func covers(cq *kueue.ClusterQueue, name corev1.ResourceName) bool {
	return slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool { return slices.Contains(g.CoveredResources, name) })
}

// flavorFor is the first flavor with the resource that stands for all nodes the
// job's pods are on.
func (im *importer) flavorFor(f *candidate, cq *kueue.ClusterQueue, name corev1.ResourceName) (string, error) {
	for _, group := range cq.Spec.ResourceGroups {
		if !slices.Contains(group.CoveredResources, name) {
			continue
		}
		for _, quota := range group.Flavors {
			flavor := im.flavors[string(quota.Name)]
			if flavor == nil || !im.standsFor(flavor, f.job.Pods) {
				continue
			}
			if flavor.Spec.TopologyName != nil {
				return "", fmt.Errorf("flavor %s places pods in a topology: a job that runs already has no place in it", flavor.Name)
			}
			return flavor.Name, nil
		}
		return "", fmt.Errorf("it runs on nodes that no flavor of ClusterQueue %s is for", cq.Name)
	}
	return "", fmt.Errorf("it asks for %s, which ClusterQueue %s does not give out", name, cq.Name)
}

func (im *importer) standsFor(flavor *kueue.ResourceFlavor, pods []*corev1.Pod) bool {
	for _, pod := range pods {
		for key, value := range flavor.Spec.NodeLabels {
			if pod.Spec.NodeName != "" && im.nodes[pod.Spec.NodeName][key] != value {
				return false
			}
		}
	}
	return true
}

// weigh notes the queues that would hold more than their own.
func (im *importer) weigh() {
	sums := map[[3]string]int64{}
	for _, f := range im.found {
		if f.Outcome != fits {
			continue
		}
		for _, set := range f.admission.PodSets {
			for name, amount := range set.Usage {
				sums[[3]string{f.ClusterQueue, set.Flavors[name], name}] += amount
			}
		}
	}
	for _, cq := range im.queues {
		for _, group := range cq.Spec.ResourceGroups {
			for _, flavor := range group.Flavors {
				for _, r := range flavor.Resources {
					more := sums[[3]string{cq.Name, string(flavor.Name), string(r.Name)}]
					total := more + held(cq, flavor.Name, r.Name)
					if own := workload.Amount(r.Name, r.NominalQuota); more > 0 && total > own {
						im.notes = append(im.notes, fmt.Sprintf("ClusterQueue %s: %s %s of %s will be in use, more than its own %s",
							cq.Name, im.quantity(string(r.Name), total), r.Name, flavor.Name, r.NominalQuota.String()))
					}
				}
			}
		}
	}
	slices.Sort(im.notes)
}

func held(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) int64 {
	for _, f := range cq.Status.FlavorsReservation {
		for _, r := range f.Resources {
			if f.Name == flavor && r.Name == name {
				return workload.Amount(name, r.Total)
			}
		}
	}
	return 0
}

// bring imports what fits. It can be run again after it was interrupted: the
// job's label, which hands it to the queue, is written last.
func (im *importer) bring(ctx context.Context, step func()) error {
	_, err := im.Core.CoreV1().RESTClient().Get().AbsPath("/apis", v1alpha1.Group, v1alpha1.Version).DoRaw(ctx)
	im.answers = err == nil
	for _, f := range im.found {
		if f.Outcome == fits {
			if err := im.take(ctx, f); err != nil {
				return fmt.Errorf("importing %s of %s: %w", f.Job, f.Namespace, err)
			}
			f.Outcome = imported
		}
		step()
	}
	return nil
}

func (im *importer) take(ctx context.Context, f *candidate) error {
	for _, pod := range f.job.Pods {
		if err := im.mark(ctx, pod, f.workload); err != nil {
			return err
		}
	}
	wl := f.workload.DeepCopy()
	if f.job.Object.GetKind() == "Pod" {
		// The queue lets go of the workloads of pods that are not its own yet.
		wl.OwnerReferences, wl.Labels = nil, nil
	}
	if err := im.Create(ctx, wl); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	// The queue may look at the workload before it is admitted, and write, too.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return im.admit(ctx, f) })
	if err != nil {
		return err
	}
	if err := im.settle(ctx, f); err != nil {
		return err
	}
	return im.hand(ctx, f)
}

// settle waits until the queue has seen the admission: a job that comes to it
// without one is stopped.
func (im *importer) settle(ctx context.Context, f *candidate) error {
	if !im.answers {
		return nil // it reads all there is before it acts
	}
	const limit = 30 * time.Second
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		standing, err := job.Ask(ctx, im.Client, f.workload)
		return err == nil && standing.State == "Admitted", nil
	})
	if err != nil {
		return fmt.Errorf("the queue does not count workload %s, so that the job was left alone: %w", f.Workload, err)
	}
	return nil
}

// hand gives the job to the queue.
func (im *importer) hand(ctx context.Context, f *candidate) error {
	object := f.job.Object.DeepCopy()
	before := object.DeepCopy()
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[kinds.QueueNameLabel] = f.Queue
	if object.GetKind() == "Pod" {
		labels[kinds.ManagedLabel] = "true"
		controllerutil.AddFinalizer(object, kinds.ManagedLabel)
	}
	object.SetLabels(labels)
	// Another replica of the queue may answer, which has yet to see the workload.
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsForbidden, func() error { return im.Patch(ctx, object.DeepCopy(), client.MergeFrom(before)) })
	if err != nil {
		return err
	}
	wl := &kueue.Workload{}
	if err := im.Get(ctx, client.ObjectKeyFromObject(f.workload), wl); err != nil || len(wl.OwnerReferences) > 0 {
		return err
	}
	was := wl.DeepCopy()
	wl.OwnerReferences, wl.Labels = f.workload.OwnerReferences, f.workload.Labels
	return im.Patch(ctx, wl, client.MergeFrom(was))
}

// mark a pod with its workload, as the start of a queued job would have.
func (im *importer) mark(ctx context.Context, pod *corev1.Pod, wl *kueue.Workload) error {
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, kueue.WorkloadAnnotation, wl.Name)
	if set := setOf(pod, wl.Spec.PodSets); set != "" {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, kinds.PodSetLabel, set)
	}
	err := im.Patch(ctx, pod, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil // it has ended
	}
	return err
}

// setOf is the pod set with the same containers.
func setOf(pod *corev1.Pod, sets []kueue.PodSet) string {
	shape := func(spec *corev1.PodSpec) string {
		text := ""
		for _, c := range spec.Containers {
			text += c.Name + " " + c.Image + " " + strings.Join(c.Args, " ") + "\n"
		}
		return text
	}
	for i := range sets {
		if len(sets) == 1 || shape(&sets[i].Template.Spec) == shape(&pod.Spec) {
			return string(sets[i].Name)
		}
	}
	return ""
}

// admit writes the admission, unless the queue itself was faster.
func (im *importer) admit(ctx context.Context, f *candidate) error {
	wl := &kueue.Workload{}
	if err := im.Get(ctx, client.ObjectKeyFromObject(f.workload), wl); err != nil {
		return err
	}
	if workload.IsAdmitted(wl) {
		return nil
	}
	wl.Status.Admission, wl.Status.AdmissionChecks = workload.ForStatus(f.admission), f.checks
	for _, name := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
			Type: name, Status: metav1.ConditionTrue, Reason: "Imported", Message: "Imported into ClusterQueue " + f.ClusterQueue,
			LastTransitionTime: metav1.NewTime(time.Now()), ObservedGeneration: wl.Generation,
		})
	}
	patch, err := workload.AdmissionPatch(wl)
	if err != nil {
		return err
	}
	return im.Status().Patch(ctx, wl, client.RawPatch(types.ApplyYAMLPatchType, patch), client.FieldOwner(workload.AdmissionManager), client.ForceOwnership)
}
