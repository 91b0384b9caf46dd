package multicluster

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// inCluster does something in a cluster, within the timeout of one request. A cluster that was lost
// meanwhile is skipped: its return requeues the workload.
func (w *workloads) inCluster(ctx context.Context, name string, do func(context.Context, *session) error) error {
	session, _ := w.clusters.at(name)
	if session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := do(ctx, session); err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	return nil
}

// remove removes a workload from a cluster: its job, and when nothing is left of that, its copy,
// which has the quota there.
func (w *workloads) remove(ctx context.Context, key types.NamespacedName, at *remoteState, kind *remote.Adapter) error {
	return w.inCluster(ctx, at.name, func(ctx context.Context, there *session) error {
		left, kinds := false, there.kindsOf(at.copy, kind)
		if at.shared {
			kinds = nil // it is removed with the last of its workloads
		}
		for _, gvk := range kinds {
			parts, err := there.jobsOf(ctx, key, gvk, at.copy)
			if err != nil && !apimeta.IsNoMatchError(err) {
				return err
			}
			for i := range parts {
				left = true
				if err := there.drop(ctx, &parts[i]); err != nil {
					return err
				}
			}
		}
		if left || at.copy == nil {
			return nil // its deletion requeues the workload
		}
		if err := workload.Delete(ctx, there, at.copy); err != nil {
			return err
		}
		there.mu.Lock()
		defer there.mu.Unlock()
		there.removed[at.copy.UID] = true
		return nil
	})
}

// drop deletes a part of a job. What belongs to it goes after it, as in Kueue: one that was evicted has stopped by then, and
// one whose original was deleted here goes as that did.
func (s *session) drop(ctx context.Context, part *unstructured.Unstructured) error {
	if part.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := part.GetUID()
	return client.IgnoreNotFound(s.Delete(ctx, part, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// create puts a copy of the workload into a cluster's queue.
func (w *workloads) create(ctx context.Context, wl *kueue.Workload, cluster string, gated bool, kind *remote.Adapter) error {
	return w.inCluster(ctx, cluster, func(ctx context.Context, there *session) error {
		copied := &kueue.Workload{Spec: *wl.Spec.DeepCopy()}
		copied.Namespace, copied.Name = wl.Namespace, wl.Name
		copied.Labels, copied.Annotations = map[string]string{}, map[string]string{}
		maps.Copy(copied.Labels, wl.Labels)
		maps.Copy(copied.Annotations, wl.Annotations)
		delete(copied.Labels, kueuelabels.JobUID)
		copied.Labels[kueue.MultiKueueOriginLabel] = w.origin
		if kind.SharesJob() {
			copied.Annotations[jobKindAnnotation], copied.Annotations[jobNameAnnotation] = kind.GVK.String(), wl.OwnerReferences[0].Name
		}
		copied.Spec.Active, copied.Spec.PreemptionGates = nil, nil // gates here are none there
		if gated {
			copied.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: kueuelabels.MultiKueueGate}}
		}
		err := there.Create(ctx, copied)
		if apierrors.IsAlreadyExists(err) {
			return nil // the informer has not delivered it yet
		}
		if err == nil {
			w.dispatched(queueOf(wl), cluster)
		}
		return err
	})
}

func queueOf(wl *kueue.Workload) string {
	if wl.Status.Admission == nil {
		return ""
	}
	return string(wl.Status.Admission.ClusterQueue)
}

// updatePriority copies the workload's priority to a copy.
func (w *workloads) updatePriority(ctx context.Context, s *situation, cluster string) error {
	return w.inCluster(ctx, cluster, func(ctx context.Context, there *session) error {
		was := s.remote(cluster).copy
		now := was.DeepCopy()
		now.Spec.Priority, now.Spec.PriorityClassRef = s.local.Spec.Priority, s.local.Spec.PriorityClassRef
		return there.Patch(ctx, now, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	})
}

// openGate lets a copy preempt others.
func (w *workloads) openGate(ctx context.Context, s *situation, cluster string) error {
	return w.inCluster(ctx, cluster, func(ctx context.Context, there *session) error {
		was := s.remote(cluster).copy
		now := was.DeepCopy()
		workload.OpenGate(now, kueuelabels.MultiKueueGate, s.now)
		return there.Status().Patch(ctx, now, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	})
}

// updateCounts gives a copy the numbers of pods that the workload has. The cluster may have done so itself, as its job
// shrank before.
func (w *workloads) updateCounts(ctx context.Context, s *situation, cluster string) error {
	return w.inCluster(ctx, cluster, func(ctx context.Context, there *session) error {
		was := s.remote(cluster).copy
		now := was.DeepCopy()
		for i := range now.Spec.PodSets {
			now.Spec.PodSets[i].Count = s.local.Spec.PodSets[i].Count
		}
		return there.Patch(ctx, now, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	})
}

// evictRemote has a cluster evict a copy, so that its job stops gracefully.
func (w *workloads) evictRemote(ctx context.Context, s *situation, cluster string) error {
	return w.inCluster(ctx, cluster, func(ctx context.Context, there *session) error {
		evicted := apimeta.FindStatusCondition(s.local.Status.Conditions, kueue.WorkloadEvicted)
		was := s.remote(cluster).copy
		now := was.DeepCopy()
		apimeta.SetStatusCondition(&now.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadDeactivationTarget, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedOnManagerCluster,
			Message: "Evicted on manager: " + evicted.Message, ObservedGeneration: was.Generation,
		})
		return there.Status().Patch(ctx, now, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	})
}

// sync copies the job's status back, and updates the remote job from the original; parts that do
// not exist are created if the job is to be started.
func (w *workloads) sync(ctx context.Context, wl *kueue.Workload, p plan, kind *remote.Adapter, parts []*unstructured.Unstructured) (waits bool, err error) {
	for _, part := range parts {
		if part.GetDeletionTimestamp() != nil {
			continue
		}
		err := w.inCluster(ctx, p.sync, func(ctx context.Context, there *session) error {
			copied := &unstructured.Unstructured{}
			copied.SetGroupVersionKind(kind.GVK)
			from := client.Reader(there)
			if p.finish != nil {
				from = there.direct // the informer of jobs may lag behind that of workloads
			}
			err := from.Get(ctx, client.ObjectKeyFromObject(part), copied)
			switch {
			case apierrors.IsNotFound(err) && p.start:
				return w.createJob(ctx, wl, kind, part, there)
			case err != nil:
				return client.IgnoreNotFound(err)
			case p.start && kind.IsElastic(part):
				if ours, err := kind.HandOn(ctx, there, part, copied, wl.Name, workload.Replaces(wl).Name, wl.Spec.PodSets); err != nil || !ours {
					waits = true
					return err
				}
			case !kind.IsCopy(copied, part, wl.Name):
				waits = true // an older one of the same name is being deleted
				return nil
			}
			later, err := kind.SyncStatus(ctx, w.client, part, copied)
			if waits = waits || later; err != nil || !w.forward || !p.start {
				return err
			}
			return kind.Forward(ctx, there, part, copied)
		})
		if err != nil {
			return false, err
		}
	}
	return waits, nil
}

// createJob makes a copy of a job beside the workload that was admitted.
func (w *workloads) createJob(ctx context.Context, wl *kueue.Workload, kind *remote.Adapter, part *unstructured.Unstructured, there *session) error {
	copied, err := kind.Copy(part, wl.Name, w.origin)
	if err == nil && kind.IsElastic(part) {
		err = kind.Object(copied).SetCounts(wl.Spec.PodSets) // the job here may have another size by now
	}
	if err != nil {
		return err
	}
	if err := there.Create(ctx, copied); !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := there.direct.Get(ctx, client.ObjectKeyFromObject(part), copied); err != nil {
		return client.IgnoreNotFound(err)
	}
	if copied.GetLabels()[kueue.MultiKueueOriginLabel] == w.origin {
		return nil // the informer has not delivered it yet
	}
	err = fmt.Errorf("there is a %s %s/%s already, which is not of origin %q: delete or rename one of the two",
		kind.GVK.Kind, part.GetNamespace(), part.GetName(), w.origin)
	w.recorder.Eventf(wl, nil, corev1.EventTypeWarning, "MultiKueue", "MultiKueue", "Cluster %s: %v", there.name, err)
	return err
}

// finish copies how the workload ended there.
func (w *workloads) finish(ctx context.Context, wl *kueue.Workload, end *metav1.Condition) error {
	done, end := wl.DeepCopy(), believed(end)
	if !workload.Finish(done, end.Reason, end.Message, w.now()) {
		return nil
	}
	return w.report(ctx, done)
}

// progress copies how far the workload has come there, where its job here cannot show it.
func (w *workloads) progress(ctx context.Context, wl, copied *kueue.Workload) error {
	reported := wl.DeepCopy()
	reported.Status.ReclaimablePods = reclaimable(wl, copied.Status.ReclaimablePods)
	changed := !equality.Semantic.DeepEqual(reported.Status.ReclaimablePods, wl.Status.ReclaimablePods)
	if ready := apimeta.FindStatusCondition(copied.Status.Conditions, kueue.WorkloadPodsReady); ready != nil {
		ready = believed(ready)
		changed = workload.PodsReady(reported, ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message, w.now()) || changed
	}
	if !changed {
		return nil
	}
	return w.report(ctx, reported)
}

// report writes the part of the status that the job owns.
func (w *workloads) report(ctx context.Context, wl *kueue.Workload) error {
	patch, err := workload.JobPatch(wl)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(w.client.Status().Patch(ctx, wl, client.RawPatch(types.ApplyYAMLPatchType, patch),
		client.FieldOwner(workload.JobManager), client.ForceOwnership))
}

// nominate writes which clusters may get a copy, and what the check says of that.
func (w *workloads) nominate(ctx context.Context, s *situation, p plan) error {
	nominated := s.local.DeepCopy()
	if p.nominate != nil {
		nominated.Status.NominatedClusterNames = p.nominate
	}
	if p.say != "" {
		state := *s.check.DeepCopy()
		state.Message = p.say
		nominated.Status.AdmissionChecks = checks.MergeStates(s.local, state)
	}
	return checks.ApplyStatus(ctx, w.client, nominated)
}

// answer writes the check's state, and with it which cluster was chosen, and what it costs there.
func (w *workloads) answer(ctx context.Context, s *situation, p plan) error {
	wl := s.local
	answered := wl.DeepCopy()
	answered.Status.AdmissionChecks = checks.MergeStates(wl, *p.answer)
	if p.choose != "" {
		answered.Status.ClusterName, answered.Status.NominatedClusterNames = &p.choose, nil
	}
	if p.answer.State == kueue.CheckStateReady {
		workload.PlacedElsewhere(answered)
		if err := w.noteCost(ctx, answered, s.remote(p.sync)); err != nil {
			return err
		}
	}
	err := checks.ApplyStatus(ctx, w.client, answered)
	if p.choose != "" && apierrors.IsInvalid(err) { // another dispatcher nominated, and what it wrote must go in the same request
		err = checks.WriteStatus(ctx, w.client, wl.DeepCopy(), map[string]any{
			"admissionChecks": checks.MergeStates(wl, *p.answer), "clusterName": p.choose, "nominatedClusterNames": nil, "admission": answered.Status.Admission,
		})
	}
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if p.choose != "" {
		w.admitted(queueOf(wl), p.choose)
	}
	kind := corev1.EventTypeNormal
	if p.warn {
		kind = corev1.EventTypeWarning
	}
	w.recorder.Eventf(wl, nil, kind, "MultiKueue", "MultiKueue", "%s", p.answer.Message)
	return nil
}

// noteCost notes what the nodes cost that a cluster bought for a workload, where its prices are known here.
func (w *workloads) noteCost(ctx context.Context, wl *kueue.Workload, at *remoteState) error {
	if w.dearest == nil || at == nil || at.copy == nil {
		return nil
	}
	most, err := w.dearest(ctx, at.name)
	if err != nil {
		return err
	}
	workload.NoteBoughtElsewhere(wl, at.copy, most, w.now())
	return nil
}
