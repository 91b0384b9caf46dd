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
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// requestTimeout bounds one request to another cluster: one that hangs must not hold up the others.
const requestTimeout = 10 * time.Second

// requeueSoon is for changes that will come without an event, requeueLater for those that may.
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
	// offers are what clusters cost; nil: that does not matter.
	offers func(context.Context) ([]cloud.ClusterOffer, error)
	// dearest is what the dearest node costs that a cluster may buy; nil: there are no CloudOffers.
	dearest  func(ctx context.Context, cluster string) (float64, error)
	runTimes checks.RunTimes
	settings
	// dispatched and admitted count copies, by ClusterQueue and cluster.
	dispatched, admitted func(queue, cluster string)
}

// concerns says that a workload has something in other clusters, or may have.
func concerns(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && (len(wl.Status.AdmissionChecks) > 0 || wl.Status.ClusterName != nil)
}

// undispatched says that no cluster was chosen yet for a workload with quota.
func undispatched(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && concerns(wl) && wl.Status.ClusterName == nil && stays(wl)
}

// Reconcile handles one workload.
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
			return ctrl.Result{}, err // running workloads must not be stopped for it
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
	if err := w.readSlices(ctx, &s, kind, parts); err != nil {
		return ctrl.Result{}, err
	}
	if s.check == nil {
		kind = nil // its kind need not be watched anywhere
	}
	if s.remotes, err = w.readRemotes(ctx, client.ObjectKeyFromObject(wl), config.Spec.Clusters, kind); err != nil {
		return ctrl.Result{}, err
	}
	if known, err := w.readCosts(ctx, &s); err != nil || !known {
		return ctrl.Result{RequeueAfter: time.Second}, err
	}
	p := decide(s, w.settings)
	p.after = s.again(p.after)
	return w.result(w.carryOut(ctx, &s, p, kind, parts))
}

// readCosts reads what the order of clusters depends on, for a workload that is to be sent to one. False: it is not known yet.
func (w *workloads) readCosts(ctx context.Context, s *situation) (known bool, err error) {
	if w.offers == nil || !undispatched(s.local) {
		return true, nil
	}
	if s.offers, err = w.offers(ctx); err != nil {
		return false, err
	}
	s.learnedRun, err = w.runTimes.LearnedRunTime(ctx, s.local)
	return err == nil, nil // the queue's loop will know it
}

// again is when to requeue at the latest: no event tells when a cluster starts to serve a kind.
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

// job is the workload's job with its parts, or why it cannot run in another cluster.
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

// reject a workload that cannot run in another cluster.
func (w *workloads) reject(ctx context.Context, s *situation, why string) error {
	if s.check.State == kueue.CheckStateRejected {
		return nil // it is about to be evicted
	}
	return w.answer(ctx, s, plan{answer: s.state(kueue.CheckStateRejected, fmt.Sprintf("%s, Previously: %q", why, s.check.State))})
}

// result of a reconciliation.
func (w *workloads) result(after time.Duration, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: requeueSoon}, nil // the newer version's event comes first; this is the fallback
	}
	return ctrl.Result{RequeueAfter: after}, err
}

// removeAll removes what is left of a workload that was deleted.
func (w *workloads) removeAll(ctx context.Context, key types.NamespacedName) error {
	remotes, err := w.readRemotes(ctx, key, nil, nil)
	if err != nil {
		return err
	}
	var errs []error
	for i := range remotes {
		errs = append(errs, w.remove(ctx, key, &remotes[i], nil))
	}
	return errors.Join(errs...)
}

// readRemotes reads the state of a workload in all clusters. A cluster that does not serve its kind
// of job cannot run it.
func (w *workloads) readRemotes(ctx context.Context, key types.NamespacedName, configured []string, kind *remote.Adapter) ([]remoteState, error) {
	var remotes []remoteState
	for _, name := range configured {
		remotes = append(remotes, remoteState{name: name, configured: true})
	}
	sessions := w.clusters.sessions()
	for _, name := range slices.Sorted(maps.Keys(sessions)) {
		if !slices.Contains(configured, name) {
			remotes = append(remotes, remoteState{name: name})
		}
	}
	for i := range remotes {
		p := &remotes[i]
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
				p.lost, p.unserved = w.now(), true // its state is not known yet
			case err != nil:
				return nil, err
			}
			p.job = p.job || len(parts) > 0
		}
		if p.shared, err = w.shared(ctx, key, p); err != nil {
			return nil, err
		}
	}
	return remotes, nil
}

// siblings are the other workloads of a job.
func (w *workloads) siblings(ctx context.Context, key types.NamespacedName, kind schema.GroupKind, name string) ([]kueue.Workload, error) {
	all, err := w.copies.WorkloadsOf(ctx, key.Namespace, kind, name)
	return slices.DeleteFunc(all, func(other kueue.Workload) bool { return other.Name == key.Name }), err
}

// readSlices finds the workload that an elastic job's workload replaces, and whether one is about to replace it.
func (w *workloads) readSlices(ctx context.Context, s *situation, kind *remote.Adapter, parts []*unstructured.Unstructured) error {
	if kind == nil || len(parts) != 1 || !kind.IsElastic(parts[0]) {
		return nil
	}
	s.elastic = true
	all, err := w.siblings(ctx, client.ObjectKeyFromObject(s.local), kind.GVK.GroupKind(), parts[0].GetName())
	for _, other := range all {
		s.next = s.next || workload.Replaces(&other) == workload.KeyOf(s.local) && stays(&other)
		if workload.Replaces(s.local) == workload.KeyOf(&other) {
			s.siblings = append(s.siblings, other)
		}
	}
	return err
}

// shared says that the job of a copy is also that of other workloads, which run in its cluster.
func (w *workloads) shared(ctx context.Context, key types.NamespacedName, p *remoteState) (bool, error) {
	job, name := sharedJob(p.copy)
	if name == "" {
		return false, nil
	}
	siblings, err := w.siblings(ctx, key, job.GroupKind(), name)
	return slices.ContainsFunc(siblings, func(other kueue.Workload) bool {
		return stays(&other) && ptr.Deref(other.Status.ClusterName, "") == p.name
	}), err
}

// Kueue's annotations of copies that share one job with other workloads.
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

// kindsOf are the kinds of jobs a copy may have: that of the original, or, if that no longer
// exists, of the copy's owner and all that were created there.
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

// carryOut does what was decided. A failure in one cluster does not hold up the others.
func (w *workloads) carryOut(ctx context.Context, s *situation, p plan, kind *remote.Adapter, parts []*unstructured.Unstructured) (time.Duration, error) {
	key := client.ObjectKeyFromObject(s.local)
	var errs []error
	for _, name := range p.remove {
		errs = append(errs, w.remove(ctx, key, s.remote(name), kind))
	}
	if p.stop != "" {
		errs = append(errs, w.evictRemote(ctx, s, p.stop))
	}
	if p.nominate != nil || p.say != "" {
		// Only clusters whose nomination is stored may be chosen, so the rest waits until it is.
		return p.after, errors.Join(append(errs, w.nominate(ctx, s, p))...)
	}
	for _, name := range p.create {
		errs = append(errs, w.create(ctx, s.local, name, p.gated, kind))
	}
	if p.open != "" {
		errs = append(errs, w.openGate(ctx, s, p.open))
	}
	for _, name := range p.follow {
		errs = append(errs, w.updatePriority(ctx, s, name))
	}
	if p.sync != "" {
		waits, err := w.sync(ctx, s.local, p, kind, parts)
		if err != nil {
			return 0, errors.Join(append(errs, err)...) // it must not be reported as running, or ended
		}
		if waits {
			p.after = requeueSoon // no event tells when it has started here
		}
		if p.resize != "" {
			errs = append(errs, w.updateCounts(ctx, s, p.resize))
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
		errs = append(errs, w.answer(ctx, s, p))
	}
	return p.after, errors.Join(errs...)
}
