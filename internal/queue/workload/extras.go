package workload

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// An elastic job has its least number of pods as one workload, and what it has beyond that as further ones, the extras.
// A tenant who says so of another workload only gives up its rights: extras preempt nobody, and leave first.

// ExtraOf is the workload of the job whose extra pods wl is about; the zero key is none.
func ExtraOf(wl *kueue.Workload) admission.Key {
	if name := wl.Annotations[v1alpha1.ExtraOfAnnotation]; name != "" {
		return admission.Key{Namespace: wl.Namespace, Name: name}
	}
	return admission.Key{}
}

// IsExtra says that the workload is about pods beyond a job's least.
func IsExtra(wl *kueue.Workload) bool { return wl.Annotations[v1alpha1.ExtraOfAnnotation] != "" }

// OnlyFlavors are those that a workload is tied to, sorted; empty: any.
func OnlyFlavors(wl *kueue.Workload) []string {
	text := wl.Annotations[v1alpha1.FlavorsAnnotation]
	if text == "" {
		return nil
	}
	list := strings.Split(text, ",")
	slices.Sort(list)
	return slices.Compact(list)
}

// FlavorsText names the flavors of a pod set's quota, as OnlyFlavors reads them.
func FlavorsText(assigned *kueue.PodSetAssignment) string {
	names := make([]string, 0, len(assigned.Flavors))
	for _, flavor := range assigned.Flavors {
		names = append(names, string(flavor))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// IsOfPod says that the workload is a single pod's.
func IsOfPod(wl *kueue.Workload) bool {
	owner := metav1.GetControllerOf(wl)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}
