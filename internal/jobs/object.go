package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is a job that has a suspend flag, seen through its row.
type object struct {
	*unstructured.Unstructured
	kind *Kind
}

var _ job = object{}

func (j object) meta() client.Object { return j.Unstructured }
func (j object) row() *Kind          { return j.kind }

func (j object) copy() object { return object{j.DeepCopy(), j.kind} }

func (j object) vars() map[string]any { return map[string]any{"object": j.Object} }

func (j object) held() bool {
	value, _ := j.kind.suspend.get(j.Object)
	suspended, _ := value.(bool)
	return suspended
}

func (j object) started() bool { return !j.held() }

func (j object) suspend(value bool) error { return j.kind.suspend.set(j.Object, value) }

// active: of what is handed over nothing runs here, whatever its status says.
func (j object) active() (bool, error) {
	if handedOver(j) {
		return false, nil
	}
	return j.kind.active.boolean(j.vars(), false)
}

func (j object) finished() (outcome, error) {
	var end outcome
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
	if succeeded {
		return outcome{true, kueue.WorkloadFinishedReasonSucceeded, cmp.Or(message, "Job finished successfully")}, nil
	}
	return outcome{true, kueue.WorkloadFinishedReasonFailed, cmp.Or(message, "Job failed")}, nil
}

func (j object) ready(wl *kueue.Workload) (bool, error) {
	vars := j.vars()
	vars["pods"] = admittedPods(wl)
	if elastic(j) {
		counts, err := j.counts()
		if err != nil {
			return false, err
		}
		pods := int64(0)
		for i, set := range wl.Spec.PodSets {
			pods += int64(min(admittedCount(wl, i), counts[set.Name]))
		}
		vars["pods"] = pods
	}
	return j.kind.ready.boolean(vars, false)
}

// admittedPods is the number of pods the job was started with.
func admittedPods(wl *kueue.Workload) int64 {
	var total int64
	for i := range wl.Spec.PodSets {
		total += int64(admittedCount(wl, i))
	}
	return total
}

// admittedCount is how many pods of a set the admission allows.
func admittedCount(wl *kueue.Workload, i int) int32 {
	if a := wl.Status.Admission; a != nil && i < len(a.PodSetAssignments) && a.PodSetAssignments[i].Count != nil {
		return *a.PodSetAssignments[i].Count
	}
	return wl.Spec.PodSets[i].Count
}

func (j object) podSets(ctx context.Context, c client.Reader) ([]kueue.PodSet, error) {
	if j.kind.shape != nil {
		return j.kind.shape.podSets(ctx, c, j.Unstructured)
	}
	places, err := j.places()
	if err != nil {
		return nil, &misfitError{err}
	}
	var sets []kueue.PodSet
	for _, p := range places {
		set, err := p.podSet()
		if err != nil {
			return nil, &misfitError{err}
		}
		if set.Count > 0 {
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		return nil, &misfitError{errors.New("it has no pods")}
	}
	return sets, nil
}

// done is how many pods of each set have finished for good.
func (j object) done() (map[kueue.PodSetReference]int32, error) {
	places, err := j.places()
	if err != nil {
		return nil, err
	}
	done := map[kueue.PodSetReference]int32{}
	for _, p := range places {
		n, err := p.reclaimable.number(p.vars, 0)
		if err != nil {
			return nil, err
		}
		done[kueue.PodSetReference(p.name)] = int32(n)
	}
	return done, nil
}

func (j object) reclaimable(wl *kueue.Workload) ([]kueue.ReclaimablePod, error) {
	done, err := j.done()
	if err != nil {
		return nil, err
	}
	if elastic(j) {
		wanted, err := j.counts()
		if err != nil {
			return nil, err
		}
		for i, set := range wl.Spec.PodSets {
			// What was given back is another's by now: it is asked for anew.
			done[set.Name] = max(done[set.Name]+max(0, admittedCount(wl, i)-wanted[set.Name]), givenBack(wl, set.Name))
		}
	}
	return reclaimed(wl, done), nil
}

// counts are how many pods of each set the job wants.
func (j object) counts() (map[kueue.PodSetReference]int32, error) {
	places, err := j.places()
	if err != nil {
		return nil, err
	}
	counts := map[kueue.PodSetReference]int32{}
	for _, p := range places {
		n, err := p.count.number(p.vars, 1)
		if err != nil {
			return nil, err
		}
		counts[kueue.PodSetReference(p.name)] = int32(n)
	}
	return counts, nil
}

// lay writes onto the templates what an admission adds; without additions it
// takes that away again.
func (j object) lay(wl *kueue.Workload, additions []podSetInfo) error {
	if j.kind.shape != nil {
		return j.kind.shape.lay(j.Unstructured, wl.Spec.PodSets, additions)
	}
	places, err := j.places()
	if err != nil {
		return err
	}
	for _, p := range places {
		for i := range wl.Spec.PodSets {
			if string(wl.Spec.PodSets[i].Name) != p.name {
				continue
			}
			template, err := p.podTemplate()
			if err != nil {
				return err
			}
			count := wl.Spec.PodSets[i].Count
			if additions == nil {
				subtract(template, &wl.Spec.PodSets[i].Template, wl)
			} else {
				if err := additions[i].addTo(&template.ObjectMeta, &template.Spec); err != nil {
					return err
				}
				count = additions[i].count
			}
			if err := p.setCountTo(count); err != nil {
				return err
			}
			if err := p.inject(template); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j object) start(ctx context.Context, c client.Client, wl *kueue.Workload, additions []podSetInfo) error {
	started := j.copy()
	if err := started.lay(wl, additions); err != nil {
		return err
	}
	if j.kind.shape != nil && j.kind.shape.whileSuspended() {
		if err := j.patchTo(ctx, c, started); err != nil {
			return err
		}
		j, started = started, started.copy()
	}
	if err := started.suspend(false); err != nil {
		return err
	}
	return j.patchTo(ctx, c, started)
}

func (j object) stop(ctx context.Context, c client.Client, _ string) error {
	stopped := j.copy()
	if err := stopped.suspend(true); err != nil {
		return err
	}
	return j.patchTo(ctx, c, stopped)
}

// restore gives the templates back as the user wrote them.
func (j object) restore(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	if handedOver(j) {
		return j.kind.forgetStatus(ctx, c, j.Unstructured)
	}
	restored := j.copy()
	if err := restored.lay(wl, nil); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(restored.Object, j.Object) {
		return nil
	}
	if len(j.kind.clearOnStop) > 0 {
		cleared := j.copy()
		for _, p := range j.kind.clearOnStop {
			p.remove(cleared.Object)
		}
		if !equality.Semantic.DeepEqual(cleared.Object, j.Object) {
			// The resource version it answers with is the one to change next.
			if err := c.Status().Patch(ctx, cleared.Unstructured, lockedMerge(j.Unstructured)); err != nil {
				return err
			}
			restored = cleared.copy()
			if err := restored.lay(wl, nil); err != nil {
				return err
			}
			j = cleared
		}
	}
	return j.patchTo(ctx, c, restored)
}

// patchTo writes the difference, against the version it was computed from.
func (j object) patchTo(ctx context.Context, c client.Client, to object) error {
	if equality.Semantic.DeepEqual(to.Object, j.Object) {
		return nil
	}
	return c.Patch(ctx, to.Unstructured, lockedMerge(j.Unstructured))
}

func lockedMerge(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

func (j object) settle(context.Context, client.Client, *kueue.Workload) error { return nil }

func (j object) workloadName() string { return workloadName(j.kind.GVK, j.GetName(), j.GetUID()) }

func (j object) own(wl *kueue.Workload) {
	wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, j.kind.GVK)}
	setLabel(wl, JobUIDLabel, string(j.GetUID()))
}

// misfitError: the job cannot be understood. Only changing it helps, so its
// owner is told, and trying again waits for that.
type misfitError struct{ err error }

func (e *misfitError) Error() string { return e.err.Error() }
func (e *misfitError) Unwrap() error { return e.err }

func nested(root map[string]any, fields []string) (any, bool) {
	value, found, err := unstructured.NestedFieldNoCopy(root, fields...)
	return value, found && err == nil && value != nil
}

// plainMap turns an expression's map into one as JSON makes them.
func plainMap(value ref.Val) (map[string]any, error) {
	plain, ok := plainValue(value).(map[string]any)
	if !ok {
		return nil, errors.New("the expression does not make an object")
	}
	return plain, nil
}

// plainValue undoes CEL's own types.
func plainValue(value ref.Val) any {
	switch v := value.(type) {
	case traits.Mapper:
		out := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			out[fmt.Sprint(key.Value())] = plainValue(v.Get(key))
		}
		return out
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			out = append(out, plainValue(it.Next()))
		}
		return out
	}
	return value.Value()
}

func containers(value ref.Val) ([]corev1.Container, error) {
	list, ok := plainValue(value).([]any)
	if !ok {
		return nil, errors.New("the expression does not make a list of containers")
	}
	var out []corev1.Container
	for _, element := range list {
		fields, ok := element.(map[string]any)
		if !ok {
			return nil, errors.New("the expression makes a list, but not of containers")
		}
		var container corev1.Container
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &container); err != nil {
			return nil, err
		}
		out = append(out, container)
	}
	return out, nil
}
