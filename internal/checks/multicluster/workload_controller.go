package multicluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// doWithin is how long one request to another cluster may take: what hangs must
// not keep the others from being served.
const requestTimeout = 10 * time.Second

// soon is when to look again at what will change without telling, and later at
// what may.
const (
	requeueSoon  = time.Second
	requeueLater = 10 * time.Second
)

// workloads runs workloads in other clusters.
type workloads struct {
	client   client.Client
	clusters *clusters
	copies   *remote.Adapters
	recorder events.EventRecorder
	now      func() time.Time
	settings
	// dispatched and admitted are told the ClusterQueue and the cluster.
	dispatched, admitted func(queue, cluster string)
}

// concerns says a workload may have something elsewhere, or is to have.
func concerns(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && (len(wl.Status.AdmissionChecks) > 0 || wl.Status.ClusterName != nil)
}

// Reconcile does what comes next for one workload.
func (w *workloads) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wl := &kueue.Workload{}
	err := w.client.Get(ctx, request.NamespacedName, wl)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, w.removeAll(ctx, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	s := situation{local: wl, now: w.now()}
	mine, err := checks.ForController(ctx, w.client, wl, kueue.MultiKueueControllerName)
	if err != nil {
		return ctrl.Result{}, err
	}
	config := &kueue.MultiKueueConfig{}
	if len(mine) > 0 {
		s.check = &mine[0].State
		if err := checks.Parameters(ctx, w.client, mine[0].Object, config); err != nil && !s.over() {
			return ctrl.Result{}, err // what runs must not be stopped for it
		}
	}
	kind, parts, why, err := w.job(ctx, wl)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why != "" && !s.over() && !workload.IsEvicted(wl) {
		return ctrl.Result{}, w.reject(ctx, &s, why)
	}
	if kind != nil && kind.SharesJob() {
		if s.siblings, err = w.siblings(ctx, request.NamespacedName, kind.GVK.GroupKind(), wl.OwnerReferences[0].Name); err != nil {
			return ctrl.Result{}, err
		}
	}
	if s.check == nil {
		kind = nil // its kind need not be watched anywhere
	}
	if s.remotes, err = w.readRemotes(ctx, client.ObjectKeyFromObject(wl), config.Spec.Clusters, kind); err != nil {
		return ctrl.Result{}, err
	}
	p := decide(s, w.settings)
	p.after = s.again(p.after)
	return w.result(w.carryOut(ctx, &s, p, kind, parts))
}

// again is when to look again at the latest: no cluster tells of its kinds.
func (s *situation) again(after time.Duration) time.Duration {
	for _, at := range s.remotes {
		switch {
		case at.unserved && !at.lost.IsZero() && !s.over():
			after = requeueSoon
		case at.unserved && after == 0:
			after = requeueLater
		}
	}
	return after
}

// job is what a workload's is made of, or why it cannot run elsewhere.
func (w *workloads) job(ctx context.Context, wl *kueue.Workload) (*remote.Adapter, []*unstructured.Unstructured, string, error) {
	kind, why := w.copies.For(wl)
	if kind == nil {
		return nil, nil, why, nil
	}
	parts, err := w.copies.JobObjects(ctx, wl, kind)
	for _, part := range parts {
		if missing := kind.WhyNotHandedOver(part); missing != "" {
			why = "The owner is not managed by Kueue: " + missing
		}
	}
	return kind, parts, why, err
}

// reject a workload that can run nowhere else.
func (w *workloads) reject(ctx context.Context, s *situation, why string) error {
	if s.check.State == kueue.CheckStateRejected {
		return nil // it is about to be evicted
	}
	return w.answer(ctx, s.local, s.state(kueue.CheckStateRejected, fmt.Sprintf("%s, Previously: %q", why, s.check.State)), "")
}

// result of what was done.
func (w *workloads) result(after time.Duration, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: requeueSoon}, nil // what the cache misses wakes us, this is the fallback
	}
	return ctrl.Result{RequeueAfter: after}, err
}

// clear removes what is left of a workload that is gone.
func (w *workloads) removeAll(ctx context.Context, key types.NamespacedName) error {
	places, err := w.readRemotes(ctx, key, nil, nil)
	if err != nil {
		return err
	}
	var errs []error
	for i := range places {
		errs = append(errs, w.remove(ctx, key, &places[i], nil))
	}
	return errors.Join(errs...)
}

// look at a workload in all clusters. In one that does not serve its kind of job
// it cannot be run.
func (w *workloads) readRemotes(ctx context.Context, key types.NamespacedName, configured []string, kind *remote.Adapter) ([]remoteState, error) {
	var places []remoteState
	for _, name := range configured {
		places = append(places, remoteState{name: name, configured: true})
	}
	sessions := w.clusters.sessions()
	for _, name := range slices.Sorted(maps.Keys(sessions)) {
		if !slices.Contains(configured, name) {
			places = append(places, remoteState{name: name})
		}
	}
	for i := range places {
		p := &places[i]
		session, lost := w.clusters.at(p.name)
		if session == nil {
			p.lost = lost
			continue
		}
		var err error
		if p.copy, err = session.copyOf(ctx, key); err != nil {
			return nil, err
		}
		for _, gvk := range session.kindsOf(p.copy, kind) {
			parts, err := session.jobsOf(ctx, key, gvk, p.copy)
			switch {
			case apimeta.IsNoMatchError(err):
				p.unserved, p.configured = p.configured, false
			case errors.Is(err, errNotSeen):
				p.lost, p.unserved = w.now(), true // nothing is known of it for now
			case err != nil:
				return nil, err
			}
			p.job = p.job || len(parts) > 0
		}
		if p.shared, err = w.shared(ctx, key, p); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// kin are the other workloads of a job.
func (w *workloads) siblings(ctx context.Context, key types.NamespacedName, kind schema.GroupKind, name string) ([]kueue.Workload, error) {
	all, err := w.copies.WorkloadsOf(ctx, key.Namespace, kind, name)
	return slices.DeleteFunc(all, func(other kueue.Workload) bool { return other.Name == key.Name }), err
}

// shared says the job of a copy is that of other workloads, too, which run in its
// cluster.
func (w *workloads) shared(ctx context.Context, key types.NamespacedName, p *remoteState) (bool, error) {
	job, name := sharedJob(p.copy)
	if name == "" {
		return false, nil
	}
	kin, err := w.siblings(ctx, key, job.GroupKind(), name)
	return slices.ContainsFunc(kin, func(other kueue.Workload) bool {
		return stays(&other) && ptr.Deref(other.Status.ClusterName, "") == p.name
	}), err
}

// Where several workloads have one job, their copies say which: Kueue's
// annotations.
const (
	jobKindAnnotation = "kueue.x-k8s.io/job-owner-gvk"
	jobNameAnnotation = "kueue.x-k8s.io/job-owner-name"
)

// sharedJob is the job that a copy may share with others; "" if it does not.
func sharedJob(copied *kueue.Workload) (schema.GroupVersionKind, string) {
	if copied == nil {
		return schema.GroupVersionKind{}, ""
	}
	version, kind, _ := strings.Cut(copied.Annotations[jobKindAnnotation], ", Kind=")
	return schema.FromAPIVersionAndKind(version, kind), copied.Annotations[jobNameAnnotation]
}

// kindsOf are the kinds of jobs a copy may be of: that of the original, or, where
// that is gone, of the copy's owner and all that were sent there.
func (s *session) kindsOf(copied *kueue.Workload, kind *remote.Adapter) []schema.GroupVersionKind {
	if kind != nil {
		return []schema.GroupVersionKind{kind.GVK}
	}
	s.watching.Lock()
	kinds := slices.Collect(maps.Keys(s.watched))
	s.watching.Unlock()
	kinds = slices.DeleteFunc(kinds, func(gvk schema.GroupVersionKind) bool { return gvk == workloadKind })
	gvk, name := sharedJob(copied)
	if name == "" && copied != nil && len(copied.OwnerReferences) > 0 {
		gvk = schema.FromAPIVersionAndKind(copied.OwnerReferences[0].APIVersion, copied.OwnerReferences[0].Kind)
	}
	if !gvk.Empty() && !slices.Contains(kinds, gvk) {
		kinds = append(kinds, gvk)
	}
	return kinds
}

// do what was decided. What fails in one cluster keeps nothing from being done
// in another.
func (w *workloads) carryOut(ctx context.Context, s *situation, p plan, kind *remote.Adapter, parts []*unstructured.Unstructured) (time.Duration, error) {
	key := client.ObjectKeyFromObject(s.local)
	var errs []error
	for _, name := range p.remove {
		errs = append(errs, w.remove(ctx, key, s.remote(name), kind))
	}
	if p.stop != "" {
		errs = append(errs, w.evictRemote(ctx, s, p.stop))
	}
	if p.nominate != nil {
		// Nobody may be chosen who is not seen to be nominated: what comes next comes when it is.
		return p.after, errors.Join(append(errs, checks.WriteStatus(ctx, w.client, s.local, map[string]any{"nominatedClusterNames": p.nominate}))...)
	}
	for _, name := range p.create {
		errs = append(errs, w.create(ctx, s.local, name, kind))
	}
	for _, name := range p.follow {
		errs = append(errs, w.updatePriority(ctx, s, name))
	}
	if p.sync != "" {
		waits, err := w.sync(ctx, s.local, p, kind, parts)
		if err != nil {
			return 0, errors.Join(append(errs, err)...) // it is not to be taken for running, or ended
		}
		if waits {
			p.after = requeueSoon // starting it here is not told to us
		}
		if p.start && p.answer == nil && kind.HasLocalStatus() {
			errs = append(errs, w.progress(ctx, s.local, s.remote(p.sync).copy))
		}
	}
	switch {
	case p.finish != nil:
		errs = append(errs, w.finish(ctx, s.local, p.finish))
	case p.clear:
		errs = append(errs, checks.WriteStatus(ctx, w.client, s.local, map[string]any{"clusterName": nil, "nominatedClusterNames": nil}))
	case p.answer != nil:
		errs = append(errs, w.answer(ctx, s.local, p.answer, p.choose))
	}
	return p.after, errors.Join(errs...)
}
