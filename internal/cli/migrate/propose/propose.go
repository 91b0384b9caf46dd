package propose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Options of a proposal.
type Options struct {
	// Flavor all quota is of; LocalQueue is the name in every namespace.
	Flavor, LocalQueue string
	// Cohort lets the queues borrow from each other; empty for none, as with ResourceQuotas.
	Cohort string
}

// Proposal is what to create, with what is worth knowing about each object.
type Proposal struct {
	Object client.Object
	Notes  []string
}

// FromResourceQuotas proposes queues. Of several quotas for one resource in a namespace the smallest
// counts, as it does there. Running pods show what would not fit, and what no quota limits today.
func FromResourceQuotas(quotas []corev1.ResourceQuota, pods []corev1.Pod, options Options) []Proposal {
	hard, ignored := map[string]corev1.ResourceList{}, map[string]sets.Set[string]{}
	for i := range quotas {
		ns := quotas[i].Namespace
		if hard[ns] == nil {
			hard[ns], ignored[ns] = corev1.ResourceList{}, sets.New[string]()
		}
		read(&quotas[i], hard[ns], ignored[ns])
	}
	used := usage(pods)
	out := []Proposal{{Object: &kueue.ResourceFlavor{TypeMeta: typeMeta("ResourceFlavor"), ObjectMeta: metav1.ObjectMeta{Name: options.Flavor}},
		Notes: []string{"All quota is of one flavor. Where cards differ, make one flavor for each model, with the nodes' labels."}}}
	for _, ns := range sets.List(sets.KeySet(hard)) {
		if len(hard[ns]) == 0 {
			continue
		}
		cq := clusterQueue(ns, hard[ns], options)
		out = append(out,
			Proposal{cq, notes(hard[ns], used[ns], sets.List(ignored[ns]))},
			Proposal{Object: &kueue.LocalQueue{
				TypeMeta: typeMeta("LocalQueue"), ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: options.LocalQueue},
				Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(ns)},
			}})
	}
	return out
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kind}
}

// read takes what a queue has quota for, requests and pods. The rest stays with the ResourceQuota.
func read(quota *corev1.ResourceQuota, hard corev1.ResourceList, ignored sets.Set[string]) {
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		ignored.Insert(fmt.Sprintf("ResourceQuota %s counts some pods only", quota.Name))
		return
	}
	for name, amount := range quota.Spec.Hard {
		resourceName, ok := requested(name)
		if !ok {
			ignored.Insert(fmt.Sprintf("ResourceQuota %s limits %s, which queues do not", quota.Name, name))
			continue
		}
		if old, found := hard[resourceName]; !found || amount.Cmp(old) < 0 {
			hard[resourceName] = amount
		}
	}
}

func requested(name corev1.ResourceName) (corev1.ResourceName, bool) {
	switch {
	case strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix):
		rest := corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
		return rest, rest != corev1.ResourceStorage
	case name == "count/pods":
		return corev1.ResourcePods, true
	}
	return name, slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage}, name)
}

func clusterQueue(ns string, hard corev1.ResourceList, options Options) *kueue.ClusterQueue {
	group := kueue.ResourceGroup{}
	flavor := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(options.Flavor)}
	for _, name := range sets.List(sets.KeySet(hard)) {
		group.CoveredResources = append(group.CoveredResources, name)
		flavor.Resources = append(flavor.Resources, kueue.ResourceQuota{Name: name, NominalQuota: hard[name]})
	}
	group.Flavors = []kueue.FlavorQuotas{flavor}
	return &kueue.ClusterQueue{
		TypeMeta: typeMeta("ClusterQueue"), ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: kueue.ClusterQueueSpec{
			CohortName:        kueue.CohortReference(options.Cohort),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			ResourceGroups:    []kueue.ResourceGroup{group},
		},
	}
}

// usage is what the pods of each namespace ask for that have not ended.
func usage(pods []corev1.Pod) map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	for i := range pods {
		if phase := pods[i].Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			continue
		}
		sums := out[pods[i].Namespace]
		if sums == nil {
			sums = corev1.ResourceList{}
			out[pods[i].Namespace] = sums
		}
		requests := workload.PodRequests(&pods[i].Spec)
		requests[corev1.ResourcePods] = resource.MustParse("1")
		for name, amount := range requests {
			sum := sums[name]
			sum.Add(amount)
			sums[name] = sum
		}
	}
	return out
}

func notes(hard, used corev1.ResourceList, ignored []string) []string {
	var out []string
	for _, name := range sets.List(sets.KeySet(hard)) {
		quota, sum := hard[name], used[name]
		if !sum.IsZero() {
			out = append(out, fmt.Sprintf("%s: pods that run now ask for %s of %s", name, sum.String(), quota.String()))
		}
	}
	for _, name := range sets.List(sets.KeySet(used)) {
		if _, limited := hard[name]; !limited && name != corev1.ResourcePods {
			sum := used[name]
			out = append(out, fmt.Sprintf("%s: pods ask for %s and nothing limits it: add it to the queue, or to resources.excludeResourcePrefixes, or its jobs will not be admitted", name, sum.String()))
		}
	}
	return append(out, ignored...)
}
