package provisioning

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// group is a number of equal pods to ask for, of one or more pod sets.
type group struct {
	sets     []kueue.PodSetReference
	template corev1.PodTemplateSpec
	count    int32
}

// podsToProvision are a workload's pods that the autoscaler is to have nodes for, as they will be
// created.
func podsToProvision(wl *kueue.Workload, config *kueue.ProvisioningRequestConfigSpec, flavors workload.Flavors) ([]group, error) {
	var groups []group
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		assigned := assignment(wl, set.Name)
		if set.Count <= 0 || !managed(&set.Template.Spec, config.ManagedResources) {
			continue
		}
		if assigned == nil {
			return nil, fmt.Errorf("the admission says nothing of pod set %q", set.Name)
		}
		count := ptr.Deref(assigned.Count, set.Count)
		if count <= 0 {
			continue
		}
		template, err := podTemplate(wl, set, assigned, flavors)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(groups, func(g group) bool { return mergeable(&g.template, template, config.PodSetMergePolicy) })
		if at < 0 {
			groups = append(groups, group{template: *template})
			at = len(groups) - 1
		}
		groups[at].sets = append(groups[at].sets, set.Name)
		groups[at].count += count
	}
	return groups, nil
}

func assignment(wl *kueue.Workload, name kueue.PodSetReference) *kueue.PodSetAssignment {
	for i := range wl.Status.Admission.PodSetAssignments {
		if a := &wl.Status.Admission.PodSetAssignments[i]; a.Name == name {
			return a
		}
	}
	return nil
}

// managed says that a container asks for one of the resources; an empty list means all.
func managed(spec *corev1.PodSpec, resources []corev1.ResourceName) bool {
	if len(resources) == 0 {
		return true
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range containers {
			for _, name := range resources {
				_, requested := c.Resources.Requests[name]
				_, limited := c.Resources.Limits[name]
				if requested || limited {
					return true
				}
			}
		}
	}
	return false
}

// podTemplate is the template of a pod set as its pods will be created.
func podTemplate(wl *kueue.Workload, set *kueue.PodSet, assigned *kueue.PodSetAssignment, flavors workload.Flavors) (*corev1.PodTemplateSpec, error) {
	template := set.Template.DeepCopy()
	spec := &template.Spec
	labels, tolerations, err := flavors.NodeSelection(wl, assigned)
	if err != nil {
		return nil, err
	}
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	maps.Copy(spec.NodeSelector, labels) // a flavor was given only if they agree
	for _, t := range tolerations {
		if !slices.ContainsFunc(spec.Tolerations, func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) }) {
			spec.Tolerations = append(spec.Tolerations, t)
		}
	}
	workload.DefaultRequests(spec)
	return template, nil
}

// mergeable says that pods can be asked for by one template.
func mergeable(a, b *corev1.PodTemplateSpec, policy *kueue.ProvisioningRequestConfigPodSetMergePolicy) bool {
	switch ptr.Deref(policy, "") {
	case kueue.IdenticalPodTemplates:
		return equality.Semantic.DeepEqual(a, b)
	case kueue.IdenticalWorkloadSchedulingRequirements:
		x, y := &a.Spec, &b.Spec
		return sameRequests(x.Containers, y.Containers) && sameRequests(x.InitContainers, y.InitContainers) &&
			equality.Semantic.DeepEqual(x.Resources, y.Resources) &&
			equality.Semantic.DeepEqual(x.NodeSelector, y.NodeSelector) &&
			equality.Semantic.DeepEqual(x.Tolerations, y.Tolerations) &&
			equality.Semantic.DeepEqual(x.Affinity, y.Affinity) &&
			equality.Semantic.DeepEqual(x.ResourceClaims, y.ResourceClaims)
	}
	return false
}

func sameRequests(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.Container) bool {
		return equality.Semantic.DeepEqual(x.Resources.Requests, y.Resources.Requests)
	})
}

// build makes an attempt's request, and the templates it names.
func build(wl *kueue.Workload, name string, config *kueue.ProvisioningRequestConfigSpec, groups []group) (*ProvisioningRequest, []*corev1.PodTemplate) {
	owned := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: wl.Namespace, Name: name, Labels: map[string]string{kueuelabels.Managed: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(wl, kueue.SchemeGroupVersion.WithKind("Workload"))},
		}
	}
	request := &ProvisioningRequest{
		ObjectMeta: owned(name),
		Spec:       RequestSpec{ProvisioningClassName: config.ProvisioningClassName, Parameters: map[string]string{}},
	}
	for key, value := range config.Parameters {
		request.Spec.Parameters[key] = string(value)
	}
	for key, value := range wl.Annotations {
		if parameter, found := strings.CutPrefix(key, kueuelabels.ProvisioningParameterPrefix); found {
			request.Spec.Parameters[parameter] = value
		}
	}
	var templates []*corev1.PodTemplate
	for _, g := range groups {
		template := &corev1.PodTemplate{ObjectMeta: owned(templateName(name, g.sets[0])), Template: g.template}
		templates = append(templates, template)
		request.Spec.PodSets = append(request.Spec.PodSets, PodSet{
			PodTemplateRef: TemplateRef{Name: template.Name}, Count: g.count,
		})
	}
	return request, templates
}

// matchesConfig says that a request is what the configuration asks for now. A job's own parameters
// may be there besides.
func matchesConfig(request *ProvisioningRequest, wl *kueue.Workload, config *kueue.ProvisioningRequestConfigSpec) bool {
	for key, want := range config.Parameters {
		if _, own := wl.Annotations[kueuelabels.ProvisioningParameterPrefix+key]; own {
			continue
		}
		if got, found := request.Spec.Parameters[key]; !found || got != string(want) {
			return false
		}
	}
	return request.Spec.ProvisioningClassName == config.ProvisioningClassName
}

// updates is what the provisioned pods are to carry: which request they use, and where the
// autoscaler says its nodes are.
func updates(request *ProvisioningRequest, config *kueue.ProvisioningRequestConfigSpec, groups []group) []kueue.PodSetUpdate {
	var out []kueue.PodSetUpdate
	for _, g := range groups {
		for _, name := range g.sets {
			update := kueue.PodSetUpdate{Name: name, Annotations: map[string]string{
				ConsumeAnnotation: request.Name,
				ClassAnnotation:   request.Spec.ProvisioningClassName,
			}}
			if config.PodSetUpdates != nil {
				for _, s := range config.PodSetUpdates.NodeSelector {
					if value, found := request.Status.ProvisioningClassDetails[s.ValueFromProvisioningClassDetail]; found {
						if update.NodeSelector == nil {
							update.NodeSelector = map[string]string{}
						}
						update.NodeSelector[s.Key] = value
					}
				}
			}
			out = append(out, update)
		}
	}
	return out
}
