package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Job is a job with its workload and its pods.
type Job struct {
	Kind     *kinds.Kind
	Object   *unstructured.Unstructured
	Workload *kueue.Workload // nil where it has none
	Pods     []*corev1.Pod
}

// at is how many requests a command has in flight.
const at = 16

// knownKinds are the kinds to look for: of one type as users name it, or all.
func knownKinds(ctx context.Context, c *cluster.Client, typed string) ([]*kinds.Kind, error) {
	all := slices.Clone(kinds.Table())
	declared := &jobsv1alpha1.JobKindList{}
	err := c.List(ctx, declared)
	// Who may not read declared kinds can still name one of the table.
	excused := apierrors.IsForbidden(err) && typed != "" && slices.ContainsFunc(all, func(kind *kinds.Kind) bool { return isType(kind, typed) })
	if err != nil && !absent(err) && !excused {
		return nil, fmt.Errorf("reading the declared kinds of jobs: %w", err)
	}
	for i := range declared.Items {
		// A kind that does not compile is not queued; its status has the reason.
		if kind, err := kinds.Compile(declared.Items[i].Name, declared.Items[i].Spec); err == nil {
			all = append(all, kind)
		}
	}
	if typed == "" {
		return all, nil
	}
	var chosen []*kinds.Kind
	for _, kind := range all {
		if isType(kind, typed) {
			chosen = append(chosen, kind)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("type %q is not known: give one of %s", typed, strings.Join(typeNames(all), ", "))
	}
	return chosen, nil
}

// KindOf is the row of an object; nil where the queue does not know its kind.
func KindOf(ctx context.Context, c *cluster.Client, object *unstructured.Unstructured) (*kinds.Kind, error) {
	all, err := knownKinds(ctx, c, "")
	if err != nil {
		return nil, err
	}
	for _, kind := range all {
		if kind.GVK == object.GroupVersionKind() {
			return kind, nil
		}
	}
	return nil, nil
}

// isType compares a kind with a type as users write it: tfjob, tf, tfjobs, TFJob.
func isType(kind *kinds.Kind, typed string) bool {
	typed = strings.ToLower(typed)
	if f := formNamed(typed); f != nil {
		return f.kind == strings.TrimSuffix(kind.Name, "-v1")
	}
	return typed == strings.ToLower(kind.GVK.Kind) || typed == kind.Spec.Resource || typed == kind.Name
}

func typeNames(all []*kinds.Kind) []string {
	var names []string
	for _, kind := range all {
		names = append(names, strings.ToLower(kind.GVK.Kind))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// absent: the object does not exist, or the cluster does not serve its kind.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err)
}

// List finds the jobs of a namespace; "" stands for all namespaces.
func List(ctx context.Context, c *cluster.Client, namespace, typed string) ([]*Job, error) {
	rows, err := knownKinds(ctx, c, typed)
	if err != nil {
		return nil, err
	}
	found := make([][]unstructured.Unstructured, len(rows))
	forbidden := make([]error, len(rows))
	pods, workloads := &corev1.PodList{}, &kueue.WorkloadList{}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(at)
	in := client.InNamespace(namespace)
	group.Go(func() error { return c.List(gctx, pods, in) })
	group.Go(func() error { return ignoreAbsent(c.List(gctx, workloads, in)) })
	for i, kind := range rows {
		group.Go(func() error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
			err := c.List(gctx, list, in)
			if apierrors.IsForbidden(err) {
				forbidden[i] = err
				return nil
			}
			found[i] = list.Items
			return ignoreAbsent(err)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	list := assemble(rows, found, pods.Items, workloads.Items)
	if len(list) == 0 {
		return nil, errors.Join(forbidden...)
	}
	return list, nil
}

func ignoreAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// assemble gives each job its workload and its pods. An object that another job created is part of
// that job. An object without a suspend flag is a job only where it names a queue.
func assemble(rows []*kinds.Kind, found [][]unstructured.Unstructured, pods []corev1.Pod, workloads []kueue.Workload) []*Job {
	var all []*Job
	byUID := map[types.UID]*Job{}
	seen := map[types.UID]bool{}
	for i, kind := range rows {
		for n := range found[i] {
			object := &found[i][n]
			if seen[object.GetUID()] {
				continue // its kind is served in two versions
			}
			seen[object.GetUID()] = true
			job := &Job{Kind: kind, Object: object}
			byUID[object.GetUID()] = job
			all = append(all, job)
		}
	}
	root := func(object metav1.Object) *Job {
		owner := metav1.GetControllerOf(object)
		var job *Job
		for owner != nil && byUID[owner.UID] != nil {
			job = byUID[owner.UID]
			owner = metav1.GetControllerOf(job.Object)
		}
		return job
	}
	for i := range pods {
		job := byUID[pods[i].UID]
		if above := root(&pods[i]); above != nil {
			job = above
		}
		if job != nil {
			job.Pods = append(job.Pods, &pods[i])
		}
	}
	for i := range workloads {
		for _, owner := range workloads[i].OwnerReferences {
			if job := byUID[owner.UID]; job != nil {
				job.take(&workloads[i])
			}
		}
	}
	all = slices.DeleteFunc(all, func(job *Job) bool {
		if root(job.Object) != nil {
			return true
		}
		return !job.Kind.Suspends() && queueOf(job.Object) == ""
	})
	for _, job := range all {
		slices.SortFunc(job.Pods, func(a, b *corev1.Pod) int {
			return cmp.Or(cmp.Compare(chiefRank(a), chiefRank(b)), strings.Compare(a.Name, b.Name))
		})
	}
	slices.SortFunc(all, func(a, b *Job) int {
		return cmp.Or(strings.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()),
			strings.Compare(a.Object.GetName(), b.Object.GetName()), strings.Compare(a.Kind.Name, b.Kind.Name))
	})
	return all
}

// take sets the job's workload to the newest: a job that grows has two.
func (j *Job) take(wl *kueue.Workload) {
	if j.Workload == nil || j.Workload.CreationTimestamp.Before(&wl.CreationTimestamp) {
		j.Workload = wl
	}
}

// queueOf is the queue a job names, in a label or, on old jobs, in an annotation.
func queueOf(object client.Object) string {
	return cmp.Or(object.GetLabels()[kinds.QueueNameLabel], object.GetAnnotations()[kinds.QueueNameLabel])
}

// Get finds one job by name. If there are several, the type must be given.
func Get(ctx context.Context, c *cluster.Client, name, typed string) (*Job, error) {
	job, err := find(ctx, c, name, typed)
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	between := []types.UID{job.Object.GetUID()}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.List(gctx, pods, client.InNamespace(c.Namespace)) })
	group.Go(func() (err error) { job.Workload, err = workloadOf(gctx, c, job); return err })
	group.Go(func() (err error) { between, err = made(gctx, c, job); return err })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		if pod.UID == job.Object.GetUID() || owner != nil && slices.Contains(between, owner.UID) {
			job.Pods = append(job.Pods, pod)
		}
	}
	slices.SortFunc(job.Pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(chiefRank(a), chiefRank(b)), strings.Compare(a.Name, b.Name))
	})
	return job, nil
}

// find reads the job's object only.
func find(ctx context.Context, c *cluster.Client, name, typed string) (*Job, error) {
	rows, err := knownKinds(ctx, c, typed)
	if err != nil {
		return nil, err
	}
	found := make([]*unstructured.Unstructured, len(rows))
	forbidden := make([]error, len(rows))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(at)
	for i, kind := range rows {
		group.Go(func() error {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(kind.GVK)
			err := c.Get(gctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, object)
			switch {
			case apierrors.IsForbidden(err):
				forbidden[i] = err
			case err == nil:
				found[i] = object
			case !absent(err):
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var matches []*Job
	for i, object := range found {
		if object == nil || slices.ContainsFunc(matches, func(m *Job) bool { return m.Object.GetUID() == object.GetUID() }) {
			continue
		}
		if typed == "" && partOfAnother(object) {
			continue
		}
		matches = append(matches, &Job{Kind: rows[i], Object: object})
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		if err := errors.Join(forbidden...); err != nil {
			return nil, err
		}
		return nil, &NotFoundError{Name: name, Namespace: c.Namespace}
	}
	var types []string
	for _, m := range matches {
		types = append(types, strings.ToLower(m.Kind.GVK.Kind))
	}
	return nil, fmt.Errorf("there are several jobs called %s: choose with --type %s", name, strings.Join(types, " or --type "))
}

// partOfAnother: another job created this one, as a JobSet creates a Job. A job that a cron created
// is its own.
func partOfAnother(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && !slices.ContainsFunc(cronKinds, func(cron schema.GroupVersionKind) bool { return cron.Kind == owner.Kind })
}

// NotFoundError: there is no such job.
type NotFoundError struct{ Name, Namespace string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no job %q in namespace %q: see 'list', or 'list -A' for all namespaces", e.Name, e.Namespace)
}

// workloadOf finds a job's workload by its usual name or by its owner.
func workloadOf(ctx context.Context, c *cluster.Client, job *Job) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: job.Kind.WorkloadName(job.Object)}, wl)
	if err == nil {
		return wl, nil
	}
	if !absent(err) {
		return nil, err
	}
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
		return nil, ignoreAbsent(err)
	}
	for i := range list.Items {
		for _, owner := range list.Items[i].OwnerReferences {
			if owner.UID == job.Object.GetUID() {
				job.take(&list.Items[i])
			}
		}
	}
	return job.Workload, nil
}

// made are the job and the objects it created that in turn create pods: the Jobs of a JobSet, the
// ReplicaSets of a Deployment, the cluster of a RayJob.
func made(ctx context.Context, c *cluster.Client, job *Job) ([]types.UID, error) {
	owners := []types.UID{job.Object.GetUID()}
	for _, step := range makers[job.Kind.Name] {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(step)
		if err := c.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return nil, ignoreAbsent(err)
		}
		for i := range list.Items {
			if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && slices.Contains(owners, owner.UID) {
				owners = append(owners, list.Items[i].UID)
			}
		}
	}
	return owners, nil
}
