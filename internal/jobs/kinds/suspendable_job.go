package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object is a job that has a suspend flag, read and written through its row.
type Object struct {
	*unstructured.Unstructured
	kind *Kind
}

// Object is a job of the kind.
func (k *Kind) Object(obj *unstructured.Unstructured) Object { return Object{obj, k} }

func (j Object) Meta() client.Object { return j.Unstructured }

func (j Object) Members() []client.Object { return []client.Object{j.Unstructured} }

func (j Object) Row() *Kind { return j.kind }

func (j Object) deepCopy() Object { return Object{j.DeepCopy(), j.kind} }

// PriorityClass is the PriorityClass the job itself names for its pods; "" for none.
func (j Object) PriorityClass() (string, error) { return j.kind.priorityClass.text(j.vars()) }

func (j Object) vars() map[string]any { return map[string]any{"object": j.Object} }

// IsSkipped: the row says that this object is not queued.
func (j Object) IsSkipped() (bool, error) { return j.kind.skip.boolean(j.vars(), false) }

func (j Object) IsSuspended() bool {
	value, _ := j.kind.suspend.Get(j.Object)
	suspended, _ := value.(bool)
	return suspended
}

func (j Object) IsStarted() bool { return !j.IsSuspended() }

func (j Object) Suspend(value bool) error { return j.kind.suspend.Set(j.Object, value) }

// Hold suspends a new job and prepares it for its admission, as far as the kind's API wants that done at
// creation.
func (j Object) Hold() error {
	if j.kind.codec != nil {
		if err := j.kind.codec.prepare(j.Unstructured); err != nil {
			return err
		}
	}
	return j.Suspend(true)
}

// IsActive: pods of the job run. Of a job that is handed over none runs here, whatever its status
// says.
func (j Object) IsActive() (bool, error) {
	if j.HandedOver() {
		return false, nil
	}
	return j.kind.active.boolean(j.vars(), false)
}

// IsOnHold: the job cannot run as it is, and needs no quota until that changes.
func (j Object) IsOnHold() (bool, error) { return j.kind.onHold.boolean(j.vars(), false) }

func (j Object) Finished() (Outcome, error) {
	var end Outcome
	succeeded, err := j.kind.succeeded.boolean(j.vars(), false)
	if err != nil {
		return end, err
	}
	failed, err := j.kind.failed.boolean(j.vars(), false)
	if err != nil || !succeeded && !failed {
		return end, err
	}
	message, err := j.kind.message.text(j.vars())
	if err != nil {
		return end, err
	}
	end = Outcome{Ended: true, Reason: kueue.WorkloadFinishedReasonFailed, Message: message}
	said := "Job failed"
	if succeeded {
		end.Reason, said = kueue.WorkloadFinishedReasonSucceeded, "Job finished successfully"
	}
	if j.kind.Spec.Message == "" { // otherwise the kind's own, even if it says nothing
		end.Message = said
	}
	return end, nil
}

func (j Object) PodsReady(ctx context.Context, c client.Reader, wl *kueue.Workload) (bool, error) {
	if reader, ok := j.kind.codec.(progressReader); ok {
		ready, _, err := reader.progress(ctx, c, j.Unstructured)
		return ready, err
	}
	vars := j.vars()
	vars["pods"] = AdmittedPods(wl)
	if IsElastic(j) {
		counts, err := j.Counts()
		if err != nil {
			return false, err
		}
		pods := int64(0)
		for i, set := range wl.Spec.PodSets {
			pods += int64(min(AdmittedCount(wl, i), counts[set.Name]))
		}
		vars["pods"] = pods
	}
	return j.kind.ready.boolean(vars, false)
}

var batchJob = batchv1.SchemeGroupVersion.WithKind("Job")

func (j Object) PodSets(ctx context.Context, c client.Reader) ([]kueue.PodSet, error) {
	if j.kind.codec != nil {
		return j.kind.codec.podSets(ctx, c, j.Unstructured)
	}
	places, err := j.PodSetSources()
	if err != nil {
		return nil, &UnretryableError{err}
	}
	var sets []kueue.PodSet
	for _, p := range places {
		set, err := p.podSet()
		if err != nil {
			return nil, &UnretryableError{err}
		}
		if j.kind.GVK == batchJob {
			for _, label := range []string{"job-name", "controller-uid", batchv1.ControllerUidLabel} { // the API server's, for this Job alone
				delete(set.Template.Labels, label)
			}
		}
		sets = append(sets, set) // one without pods too: an elastic job may grow there
	}
	if len(sets) == 0 {
		return nil, &UnretryableError{errors.New("it has no pods")}
	}
	j.PodRange().applyTo(sets, j.kind.OwnsGroup())
	return sets, j.scale(ctx, c, sets)
}

// FinishedPods is how many pods of each set have finished for good.
func (j Object) FinishedPods(ctx context.Context, c client.Reader) (map[kueue.PodSetReference]int32, error) {
	if reader, ok := j.kind.codec.(progressReader); ok {
		_, done, err := reader.progress(ctx, c, j.Unstructured)
		return done, err
	}
	places, err := j.PodSetSources()
	if err != nil {
		return nil, err
	}
	done := map[kueue.PodSetReference]int32{}
	for _, p := range places {
		n, err := p.reclaimable.number(p.vars, 0)
		if err != nil {
			return nil, err
		}
		done[kueue.PodSetReference(p.Name)] = int32(n)
	}
	return done, nil
}

func (j Object) ReclaimablePods(ctx context.Context, c client.Reader, wl *kueue.Workload) ([]kueue.ReclaimablePod, error) {
	done, err := j.FinishedPods(ctx, c)
	if err != nil {
		return nil, err
	}
	if r := j.PodRange(); r != nil { // extras go first
		counts, err := j.Counts()
		if err != nil {
			return nil, err
		}
		done[r.Set] = max(0, done[r.Set]-max(0, counts[r.Set]-r.Least))
	}
	for _, set := range wl.Spec.PodSets {
		// Reclaimed quota may be in use by others by now: a job that shows fewer finished pods is seen as it was
		// before. Of an elastic job that became smaller they are others.
		if !IsElastic(j) {
			done[set.Name] = max(done[set.Name], ReclaimedCount(wl, set.Name))
		}
	}
	return ReclaimablePods(wl, done), nil
}

// Counts are how many pods of each set the job wants.
func (j Object) Counts() (map[kueue.PodSetReference]int32, error) {
	places, err := j.PodSetSources()
	if err != nil {
		return nil, err
	}
	counts := map[kueue.PodSetReference]int32{}
	for _, p := range places {
		n, err := p.count.number(p.vars, 1)
		if err != nil {
			return nil, err
		}
		counts[kueue.PodSetReference(p.Name)] = int32(n)
	}
	return counts, nil
}

// hasWritableCounts: the number of pods of a running job is written to the job.
func (k *Kind) hasWritableCounts() bool { return k.hasCountPaths() && k.Spec.ScaledBy == nil }

// hasCountPaths: the kind's rows say where the number of pods is written.
func (k *Kind) hasCountPaths() bool {
	return k.codec == nil && slices.ContainsFunc(k.podSets, func(set podSetRow) bool { return len(set.setCount) > 0 })
}

// SetCounts gives a job the numbers of pods that a workload has. It fails where the job has no place for one.
func (j Object) SetCounts(sets []kueue.PodSet) error {
	places, err := j.PodSetSources()
	if err != nil {
		return err
	}
	for _, p := range places {
		for _, set := range sets {
			if string(set.Name) != p.Name {
				continue
			}
			if err := p.setCountTo(set.Count); err != nil {
				return err
			}
		}
	}
	now, err := j.Counts()
	if err != nil {
		return err
	}
	for _, set := range sets {
		if now[set.Name] != set.Count {
			return fmt.Errorf("pod set %s cannot have %d pods", set.Name, set.Count)
		}
	}
	return nil
}

// WorkloadName of an elastic job is another one for each of its sizes.
func (j Object) WorkloadName() string {
	if IsElastic(j) {
		return WorkloadName(j.kind.GVK, j.GetName(), j.GetUID(), strconv.FormatInt(j.GetGeneration(), 10))
	}
	return WorkloadName(j.kind.GVK, j.GetName(), j.GetUID())
}

// NextWorkloadName is the name of the slice that is to replace a workload. A job that another object scales
// has several sizes in one generation.
func (j Object) NextWorkloadName(replaced string) string {
	if j.kind.Spec.ScaledBy == nil {
		return j.WorkloadName()
	}
	return WorkloadName(j.kind.GVK, j.GetName(), j.GetUID(), strconv.FormatInt(j.GetGeneration(), 10), replaced)
}

func (j Object) SetOwner(wl *kueue.Workload) {
	OwnWorkload(wl, j.Unstructured, j.kind.GVK)
}
