package reconcile

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// elasticPods watches the pods of elastic jobs. What they have in common is an annotation, so the pods of all
// started jobs are watched, with little of each, and only once there is an elastic job.
type elasticPods struct {
	cache   cache.Cache
	mu      sync.Mutex
	watched bool
	report  map[*kinds.Kind]func(client.Object) // by the kinds of jobs
}

// sliceIndex finds pods by the first slice of their job; jobIndex those of jobs that were started before
// pods had its name.
const (
	sliceIndex = "slice"
	jobIndex   = "job"
)

// newElasticPods prepares the watch.
func newElasticPods(mgr ctrl.Manager) (*elasticPods, error) {
	started, err := labels.NewRequirement(kinds.PodSetLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.NewSelector().Add(*started), DefaultTransform: withoutContainers,
	})
	if err != nil {
		return nil, err
	}
	return &elasticPods{cache: c, report: map[*kinds.Kind]func(client.Object){}}, mgr.Add(c)
}

func withoutContainers(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.ManagedFields = nil
		pod.Spec = corev1.PodSpec{SchedulingGates: pod.Spec.SchedulingGates, NodeSelector: pod.Spec.NodeSelector, NodeName: pod.Spec.NodeName, Affinity: pod.Spec.Affinity}
		pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
	}
	return obj, nil
}

// source are the requests for jobs of a kind when their pods change.
func (p *elasticPods) source(kind *kinds.Kind, jobs handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.report[kind] = func(pod client.Object) {
			for _, request := range jobs(ctx, pod) {
				queue.Add(request)
			}
		}
		context.AfterFunc(ctx, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.report, kind)
		})
		return nil
	})
}

// watch begins to watch, at the first elastic job.
func (p *elasticPods) watch(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched {
		return nil
	}
	for name, value := range map[string]func(client.Object) string{
		sliceIndex: func(pod client.Object) string { return pod.GetAnnotations()[kueue.WorkloadSliceNameAnnotation] },
		jobIndex:   func(pod client.Object) string { return pod.GetLabels()[kinds.JobUIDLabel] },
	} {
		err := p.cache.IndexField(ctx, &corev1.Pod{}, name, func(obj client.Object) []string {
			if v := value(obj); v != "" {
				return []string{v}
			}
			return nil
		})
		if err != nil && !strings.Contains(err.Error(), "conflict") { // an earlier try got so far
			return err
		}
	}
	informer, err := p.cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: p.changed, UpdateFunc: func(_, now any) { p.changed(now) }, DeleteFunc: p.changed,
	})
	p.watched = err == nil
	return err
}

// changed passes on what happens to pods of elastic jobs.
func (p *elasticPods) changed(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Annotations[kueue.WorkloadSliceNameAnnotation] == "" && pod.Labels[kinds.JobUIDLabel] == "" {
		return
	}
	p.mu.Lock()
	reports := slices.Collect(maps.Values(p.report))
	p.mu.Unlock()
	for _, report := range reports {
		report(pod)
	}
}

// of are the pods of a job.
func (p *elasticPods) of(ctx context.Context, job client.Object, slice string) ([]*corev1.Pod, error) {
	if err := p.watch(ctx); err != nil {
		return nil, err
	}
	seen := map[types.UID]bool{}
	var out []*corev1.Pod
	for index, value := range map[string]string{sliceIndex: slice, jobIndex: string(job.GetUID())} {
		list := &corev1.PodList{}
		if err := p.cache.List(ctx, list, client.InNamespace(job.GetNamespace()), client.MatchingFields{index: value}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; !seen[pod.UID] {
				seen[pod.UID] = true
				out = append(out, pod)
			}
		}
	}
	podgroups.SortOldestFirst(out)
	return out, nil
}

// ungateAdmitted removes the gate of as many pods of an elastic job as it has quota for, the oldest
// first.
func (c *objectReconciler) ungateAdmitted(ctx context.Context, j kinds.Object, wl *kueue.Workload) error {
	if !kinds.IsElastic(j) || j.HandedOver() || wl == nil || !workload.IsAdmitted(wl) || workload.IsEvicted(wl) || workload.IsFinished(wl) || c.elastic == nil {
		return nil
	}
	pods, err := c.elastic.of(ctx, j, sliceName(wl))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return podgroups.IsLive(pod) && podgroups.HasGate(pod, kueue.ElasticJobSchedulingGate)
	}) {
		return nil
	}
	if holds, err := c.stillHolds(ctx, wl); err != nil || !holds {
		return err
	}
	free := map[string]int32{}
	for i, set := range wl.Spec.PodSets {
		free[string(set.Name)] = kinds.AdmittedCount(wl, i)
	}
	role := func(pod *corev1.Pod) string { return pod.Labels[kinds.PodSetLabel] }
	for _, pod := range pods {
		if podgroups.IsLive(pod) && !podgroups.HasGate(pod, kueue.ElasticJobSchedulingGate) {
			free[role(pod)]--
		}
	}
	removed := func() {
		if c.gateRemoved != nil {
			c.gateRemoved(kueue.ElasticJobSchedulingGate, wl, false)
		}
	}
	return podgroups.Ungate(ctx, c.client, pods, podgroups.Ungating{Gate: kueue.ElasticJobSchedulingGate, Role: role, Free: free, Removed: removed}, func(pod *corev1.Pod) error {
		// Its template may be of an earlier slice, when less was reserved for others.
		if err := workload.ExcludeNodes(&pod.Spec, workload.AvoidNodes(wl)); err != nil {
			return &kinds.UnretryableError{Err: err}
		}
		return nil
	})
}

// stillHolds asks the API server whether a workload has its quota: the cache may not have seen that it is gone.
func (c *objectReconciler) stillHolds(ctx context.Context, wl *kueue.Workload) (bool, error) {
	list := &kueue.WorkloadList{}
	err := c.filter.Direct.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{"metadata.name": wl.Name})
	return slices.ContainsFunc(list.Items, func(is kueue.Workload) bool {
		return is.UID == wl.UID && workload.IsAdmitted(&is) && !workload.IsEvicted(&is) && !workload.IsFinished(&is)
	}), err
}

// jobOfElasticPod finds the job of a pod by its owner, or by its workload.
func (r *registry) jobOfElasticPod(kind *kinds.Kind) handler.MapFunc {
	is := func(owner *metav1.OwnerReference) bool {
		return owner != nil && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() == kind.GVK.GroupKind()
	}
	return func(ctx context.Context, pod client.Object) []reconcile.Request {
		owner := metav1.GetControllerOf(pod)
		for _, name := range []string{pod.GetAnnotations()[kueue.WorkloadAnnotation], pod.GetAnnotations()[kueue.WorkloadSliceNameAnnotation]} {
			wl := &kueue.Workload{}
			if is(owner) || name == "" || r.mgr.GetClient().Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}, wl) != nil {
				continue // its workload may be gone: the job's own events requeue it
			}
			owner = metav1.GetControllerOf(wl)
		}
		if !is(owner) {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}}}
	}
}
