package kinds

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// setPodSetInfos writes onto the templates what an admission adds; nil infos remove it again.
func (j Object) setPodSetInfos(wl *kueue.Workload, infos []PodSetInfo) error {
	if j.kind.codec != nil {
		return j.kind.codec.setPodSetInfos(j.Unstructured, wl.Spec.PodSets, infos)
	}
	places, err := j.PodSetSources()
	if err != nil {
		return err
	}
	r, checks := j.PodRange(), j.checkUpdates(wl)
	if err := j.noteCheckUpdates(infos); err != nil {
		return err
	}
	for _, p := range places {
		for i := range wl.Spec.PodSets {
			if string(wl.Spec.PodSets[i].Name) != p.Name {
				continue
			}
			template, err := p.PodTemplate()
			if err != nil {
				return err
			}
			count := wl.Spec.PodSets[i].Count
			partial := wl.Spec.PodSets[i].MinCount != nil || r.is(wl.Spec.PodSets[i].Name)
			if infos == nil {
				removePodSetInfo(template, &wl.Spec.PodSets[i].Template, checks)
			} else {
				if err := infos[i].MergeInto(&template.ObjectMeta, &template.Spec); err != nil {
					return err
				}
				if p.podSetRow.inject.affinity != nil {
					if err := workload.ExcludeNodes(&template.Spec, infos[i].avoidedNodes()); err != nil {
						return &UnretryableError{err}
					}
				}
				count = infos[i].Count
			}
			if partial { // otherwise the job's own count is the one it was admitted with, or grows into
				if err := p.setCountTo(count); err != nil {
					return err
				}
			}
			if err := p.inject(template); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j Object) Start(ctx context.Context, c client.Client, wl *kueue.Workload, infos []PodSetInfo) error {
	started := j.deepCopy()
	if err := started.setPodSetInfos(wl, infos); err != nil {
		return err
	}
	if j.kind.codec != nil && j.kind.codec.patchesWhileSuspended() {
		if err := j.patchTo(ctx, c, started); err != nil {
			return err
		}
		j, started = started, started.deepCopy()
	}
	if err := started.Suspend(false); err != nil {
		return err
	}
	return j.patchTo(ctx, c, started)
}

// Resize gives the running job other numbers of pods.
func (j Object) Resize(ctx context.Context, c client.Client, sets []kueue.PodSet) error {
	resized := j.deepCopy()
	if err := resized.SetCounts(sets); err != nil {
		return &UnretryableError{err}
	}
	return j.patchTo(ctx, c, resized)
}

// Stop suspends the job. What an admission added outside of its templates goes with that, as nobody would see
// later that it is there. What it added to templates goes with that, too, unless the API server refuses it.
func (j Object) Stop(ctx context.Context, c client.Client, why Stop) ([]client.Object, error) {
	stopped := j.deepCopy()
	if err := stopped.Suspend(true); err != nil {
		return nil, err
	}
	if why.Workload != nil && j.restoredOnStop() {
		restored := stopped.deepCopy()
		err := restored.setPodSetInfos(why.Workload, nil)
		if err == nil {
			err = j.patchTo(ctx, c, restored)
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return []client.Object{j.Unstructured}, err
		}
	}
	if codec := j.kind.codec; codec != nil && !codec.patchesWhileSuspended() {
		if err := codec.setPodSetInfos(stopped.Unstructured, nil, nil); err != nil {
			return nil, err
		}
	}
	return []client.Object{j.Unstructured}, j.patchTo(ctx, c, stopped)
}

// restoredOnStop: the kind's templates may change in the write that suspends it. Those of a Job may only afterwards.
func (j Object) restoredOnStop() bool { return j.kind.codec == nil && len(j.kind.clearOnStop) == 0 }

// Restore resets the templates to what the user wrote, and marks the job as stopped. The mark differs
// for each stop, so there is a write even if nothing else is to be reset: it fails if the job is not as
// we know it, and after it a start that is still on its way fails. So a job that looks stopped is.
func (j Object) Restore(ctx context.Context, c client.Client, wl *kueue.Workload, mark string) error {
	restored, err := j.restored(wl, mark)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(restored.Object, j.Object) {
		return nil
	}
	if len(j.kind.clearOnStop) > 0 {
		cleared := j.deepCopy()
		for _, p := range j.kind.clearOnStop {
			p.Remove(cleared.Object)
		}
		if !equality.Semantic.DeepEqual(cleared.Object, j.Object) {
			// The next patch must be against the resource version this one returns.
			if err := c.Status().Patch(ctx, cleared.Unstructured, OptimisticMerge(j.Unstructured)); err != nil {
				return err
			}
			if restored, err = cleared.restored(wl, mark); err != nil {
				return err
			}
			j = cleared
		}
	}
	return j.patchTo(ctx, c, restored)
}

func (j Object) restored(wl *kueue.Workload, mark string) (Object, error) {
	restored := j.deepCopy()
	SetAnnotation(restored, StoppedAnnotation, mark)
	return restored, restored.setPodSetInfos(wl, nil)
}

// patchTo writes the difference between two versions of the job.
func (j Object) patchTo(ctx context.Context, c client.Client, to Object) error {
	if equality.Semantic.DeepEqual(to.Object, j.Object) {
		return nil
	}
	return c.Patch(ctx, to.Unstructured, OptimisticMerge(j.Unstructured))
}

// OptimisticMerge is a merge patch that fails if the object has changed since it was read.
func OptimisticMerge(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

// CleanUp has nothing to do: the operator of the kind looks after the job's pods.
func (j Object) CleanUp(context.Context, client.Client, *kueue.Workload) error { return nil }
