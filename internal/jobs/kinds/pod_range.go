package kinds

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// PodRange is how many pods of a set an elastic job has at least and at most.
type PodRange struct {
	Set         kueue.PodSetReference
	Least, Most int32
}

// mostPods is the most that a range may name: more is a slip of the pen.
const mostPods = 100_000

// CanRange: jobs of the kind may say how many pods they have at least and at most. Of an object that owns its pods, as a
// StatefulSet, those beyond the least are there all the time, and each is queued by itself.
func (k *Kind) CanRange() bool {
	return (k.Suspends() || k.OwnsGroup()) && k.hasCountPaths() && (k.Spec.ScaledBy == nil || k.Spec.ScaledBy.Writable)
}

// PodRange is the range that the job asks for; nil: none, or none that can be had. A job that another cluster runs, whose
// workload somebody else makes, or that changes its size itself has none.
func (j Object) PodRange() *PodRange {
	text := j.rangeText()
	if text == "" || !j.kind.CanRange() || j.HandedOver() || IsPrebuilt(j) || IsElastic(j) {
		return nil
	}
	r, err := j.readRange(text)
	if err != nil {
		return nil
	}
	return r
}

// CheckPodRange says what is wrong with the range that the job asks for.
func (j Object) CheckPodRange() error {
	text, given := j.GetAnnotations()[v1alpha1.PodsAnnotation]
	switch {
	case !given:
		return nil
	case !j.kind.CanRange():
		return fmt.Errorf("the number of pods of a %s cannot be changed while it runs", j.kind.GVK.Kind)
	case j.GetAnnotations()[MinParallelismAnnotation] != "":
		return fmt.Errorf("%s says what %s does, and more: use one of them", v1alpha1.PodsAnnotation, MinParallelismAnnotation)
	case IsElastic(j):
		return fmt.Errorf("a job with %s changes its size itself", ElasticAnnotation)
	}
	r, err := j.readRange(text)
	if err != nil {
		return err
	}
	for _, n := range []int32{r.Least, r.Most} {
		if err := j.deepCopy().SetCounts([]kueue.PodSet{{Name: r.Set, Count: n}}); err != nil {
			return err
		}
	}
	return nil
}

// rangeText is what the job asks for. Of an object that owns its pods it is what its pods have: the webhook writes it onto
// their template, where it is in force.
func (j Object) rangeText() string {
	if !j.kind.OwnsGroup() {
		return j.GetAnnotations()[v1alpha1.PodsAnnotation]
	}
	for _, path := range j.kind.annotations {
		if annotations, _ := path.Get(j.Object); annotations != nil {
			text, _, _ := unstructured.NestedString(map[string]any{"": annotations}, "", v1alpha1.PodsAnnotation)
			return text
		}
	}
	return ""
}

// MarkRange has the pods of an object say in which range their number is, or not any more.
func (j Object) MarkRange(marked bool) error {
	text := j.GetAnnotations()[v1alpha1.PodsAnnotation]
	if _, err := j.readRange(text); err == nil && marked && !IsPrebuilt(j) {
		return j.kind.MarkPods(j.Unstructured, nil, map[string]string{v1alpha1.PodsAnnotation: text})
	}
	for _, path := range j.kind.annotations {
		if annotations, _ := path.Get(j.Object); annotations != nil {
			unstructured.RemoveNestedField(map[string]any{"": annotations}, "", v1alpha1.PodsAnnotation)
		}
	}
	return nil
}

// IsBeyondLeast: the pod is one of those that its object has beyond its least number of pods.
func (k *Kind) IsBeyondLeast(pod *corev1.Pod) bool {
	text := pod.Annotations[v1alpha1.PodsAnnotation]
	if text == "" || !k.OwnsGroup() || !k.CanRange() || PrebuiltName(pod) != "" {
		return false
	}
	_, r, err := readNumbers(text)
	index, failed := strconv.ParseInt(pod.Labels[k.podSets[0].PodIndexLabel], 10, 32)
	return err == nil && failed == nil && index >= int64(r.Least)
}

// readNumbers reads which pod set a range names, if any, and how many pods it has.
func readNumbers(text string) (set string, r *PodRange, err error) {
	set, numbers, named := strings.Cut(text, "=")
	if !named {
		set, numbers = "", text
	}
	from, to, found := strings.Cut(numbers, "-")
	least, err1 := strconv.ParseInt(from, 10, 32)
	most, err2 := strconv.ParseInt(to, 10, 32)
	if !found || named && set == "" || err1 != nil || err2 != nil || least < 1 || most < least || most > mostPods {
		return "", nil, fmt.Errorf("%q should be the least and the most number of pods, as in 2-16 or Worker=2-16", text)
	}
	return set, &PodRange{Least: int32(least), Most: int32(most)}, nil
}

func (j Object) readRange(text string) (*PodRange, error) {
	set, r, err := readNumbers(text)
	if err != nil {
		return nil, err
	}
	places, err := j.PodSetSources()
	if err != nil {
		return nil, err
	}
	var names []string // of those whose number of pods can be changed
	for _, p := range places {
		if len(p.setCount) == 0 {
			continue
		}
		if names = append(names, p.Name); strings.EqualFold(p.Name, set) {
			r.Set = kueue.PodSetReference(p.Name)
		}
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("it has no pod set whose number of pods can be changed")
	case set == "" && len(names) == 1:
		r.Set = kueue.PodSetReference(names[0])
	case r.Set == "":
		return nil, fmt.Errorf("%q should name one of the pod sets %s, as in %s=2-16", text, strings.Join(names, ", "), names[len(names)-1])
	}
	return r, nil
}

// UsefulPods is how many pods of the range the job has a use for: of the most, those that have not finished for good.
func (j Object) UsefulPods(ctx context.Context, c client.Reader, r *PodRange) (int32, error) {
	largest := j.deepCopy()
	if err := largest.SetCounts([]kueue.PodSet{{Name: r.Set, Count: r.Most}}); err != nil {
		return 0, &UnretryableError{err}
	}
	done, err := largest.FinishedPods(ctx, c)
	return r.Most - min(r.Most, done[r.Set]), err
}

// applyTo gives the pod set its least number of pods: the rest are extras. An object that owns its pods may have fewer.
func (r *PodRange) applyTo(sets []kueue.PodSet, owned bool) {
	for i := range sets {
		if r == nil || sets[i].Name != r.Set {
			continue
		}
		if !owned || sets[i].Count > r.Least {
			sets[i].Count = r.Least
		}
		sets[i].MinCount = nil
	}
}

// is says that the range is of a pod set.
func (r *PodRange) is(set kueue.PodSetReference) bool { return r != nil && r.Set == set }

// extraSteps is of how many workloads the extras of a job consist at most: one for each pod, or of several pods each.
const extraSteps = 64

// Step is how many pods each of a job's extra workloads has.
func (r *PodRange) Step() int32 {
	return max(1, int32(math.Ceil(float64(r.Most-r.Least)/extraSteps)))
}
