package jobs

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Unmanaged tells, from a workload's owner, whether jobs of its kind are not queued here although
// they could be: no controller looks after that job's workload. Mistakes in the options are
// reported by Setup.
func (o Options) Unmanaged() func(metav1.OwnerReference) bool {
	managed, err := parseKinds(o.External)
	builtIn, wrong := kinds.BuiltIn(o.BuiltIn)
	if err != nil || wrong != nil {
		return nil
	}
	add := func(group, kind string, pods bool) {
		managed[schema.GroupKind{Group: group, Kind: kind}] = true
		if pods {
			managed[schema.GroupKind{Kind: "Pod"}] = true
		}
	}
	for _, kind := range builtIn {
		add(kind.GVK.Group, kind.GVK.Kind, kind.Spec.Pods != nil)
	}
	for _, spec := range o.Declared {
		add(spec.Group, spec.Kind, spec.Pods != nil)
	}
	unmanaged := map[schema.GroupKind]bool{}
	for _, kind := range kinds.Table() {
		if gk := kind.GVK.GroupKind(); !managed[gk] {
			unmanaged[gk] = true
		}
	}
	return func(owner metav1.OwnerReference) bool {
		return unmanaged[schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()]
	}
}
