package kinds

import (
	"cmp"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rules are how jobs are named and counted where one of Kueue's gates, or a setting of ours, decides. The zero value is
// what Kueue does by default.
type Rules struct {
	// ShortNames cuts names of workloads so that they fit into a label.
	ShortNames bool
	// NamesInLabels reads the names of prebuilt workloads and pod groups from labels alone, where one can hold them.
	NamesInLabels bool
	// FastRelease takes pods that are being deleted for ended: their workload's quota is free before they are.
	FastRelease bool
	// SparkOverhead counts the memory that Spark adds to what a SparkApplication names, and a core where none is named.
	SparkOverhead bool
	// ReclaimReplicas reclaims the pods of Kubeflow's jobs that have succeeded.
	ReclaimReplicas bool
	// KeepSlices has the workload of an elastic job count until the one that replaces it is admitted, not only until that has
	// its quota.
	KeepSlices bool
	// Submitters has a job's annotation say who made it.
	Submitters bool
}

// Recommended is what our own file recommends.
var Recommended = Rules{ShortNames: true, SparkOverhead: true, ReclaimReplicas: true, KeepSlices: true}

var inForce atomic.Pointer[Rules]

// SetRules has rules in force. A program does it once, before anything else.
func SetRules(r Rules) { inForce.Store(&r) }

func rules() Rules {
	if r := inForce.Load(); r != nil {
		return *r
	}
	return Rules{}
}

// FastRelease says that pods that are being deleted count as ended.
func FastRelease() bool { return rules().FastRelease }

// RecordsSubmitters says that a job's annotation says who made it.
func RecordsSubmitters() bool { return rules().Submitters }

// KeepSlices says that a workload counts until the one that replaces it is admitted.
func KeepSlices() bool { return rules().KeepSlices }

// beyond is what expressions read of the rules.
func (r Rules) beyond() map[string]any {
	return map[string]any{"sparkOverhead": r.SparkOverhead, "reclaimReplicas": r.ReclaimReplicas}
}

// nameIn is the value of a name that Kueue writes into an annotation, and into a label before v0.18.
func (r Rules) nameIn(obj client.Object, key string) string {
	annotation := obj.GetAnnotations()[key]
	if !r.NamesInLabels {
		return cmp.Or(annotation, obj.GetLabels()[key])
	}
	if len(annotation) <= validation.LabelValueMaxLength {
		annotation = ""
	}
	return cmp.Or(obj.GetLabels()[key], annotation)
}

// PrebuiltName is the workload that somebody else makes for a job; "" for none.
func PrebuiltName(obj client.Object) string { return rules().nameIn(obj, PrebuiltLabel) }

// SetPrebuiltName names it. It is written into a label, too, if that can hold it: older versions read it there.
func SetPrebuiltName(obj client.Object, name string) {
	SetAnnotation(obj, PrebuiltLabel, name)
	SetShortLabel(obj, PrebuiltLabel, name)
}

// SetShortLabel sets a label that can hold the value, and reports whether it can.
func SetShortLabel(obj client.Object, key, value string) bool {
	if len(value) > validation.LabelValueMaxLength {
		return false
	}
	SetLabel(obj, key, value)
	return true
}

// PodGroupName is the group a pod belongs to; "" for none.
func PodGroupName(obj client.Object) string {
	if name := obj.GetLabels()[GroupNameLabel]; name != "" {
		return name
	}
	return rules().nameIn(obj, GroupNameLabel)
}

// SetPodGroupName puts a pod into a group.
func SetPodGroupName(obj client.Object, name string) {
	if SetShortLabel(obj, GroupNameLabel, name) {
		return
	}
	SetAnnotation(obj, GroupNameLabel, name)
	delete(obj.GetLabels(), GroupNameLabel) // which would be read first
}
