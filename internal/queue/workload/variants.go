package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// Concurrent admission, as in Kueue: in a ClusterQueue with a policy for it, the workload of a job is a parent, and has one
// variant for each flavor. Variants are in the queue, the parent is not: it is admitted as the variant is that its job runs
// on. What follows depends on the objects alone, so it can be asked at any time and any number of times.

// Reasons of a parent's eviction.
const (
	evictedWithVariant = "VariantEvicted"
	evictedAlone       = "ConcurrentAdmission"
)

// ParentOf is the workload that wl is a variant of; the zero key: it is none. Who may create workloads may say so: only
// what a Family has is one.
func ParentOf(wl *kueue.Workload) (parent admission.Key, uid string) {
	owner := metav1.GetControllerOfNoCopy(wl)
	if owner == nil || owner.Kind != "Workload" || IsExtra(wl) {
		return parent, ""
	}
	if group, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || group.Group != kueue.SchemeGroupVersion.Group {
		return parent, ""
	}
	return admission.Key{Namespace: wl.Namespace, Name: owner.Name}, string(owner.UID)
}

// AllowedFlavors are the only ones that a workload may be assigned, sorted; empty: any.
func AllowedFlavors(wl *kueue.Workload) []string {
	var names []string
	for name := range strings.SplitSeq(wl.Annotations[kueuelabels.AllowedFlavors], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Family is a parent with its variants.
type Family struct {
	Parent   *kueue.Workload
	Flavors  []string          // of the ClusterQueue, the most favorable first
	Variants []*kueue.Workload // one for each flavor; nil: there is none

	retains bool // the variant that was admitted first stays
	last    int  // the last flavor to migrate to
}

// NewFamily finds the variants of a parent among workloads that say they are. A variant is as we would make it: nobody
// runs a job on the quota of something smaller.
func NewFamily(parent *kueue.Workload, cq *kueue.ClusterQueue, members []*kueue.Workload) *Family {
	f := &Family{Parent: parent}
	for _, flavor := range cq.Spec.ResourceGroups[0].Flavors {
		f.Flavors = append(f.Flavors, string(flavor.Name))
	}
	f.Variants, f.last = make([]*kueue.Workload, len(f.Flavors)), len(f.Flavors)-1
	migration := cq.Spec.ConcurrentAdmissionPolicy.Migration
	f.retains = migration.Mode == kueue.ConcurrentAdmissionRetainFirstAdmission
	if c := migration.Constraints; c != nil && c.LastAcceptableFlavorName != nil {
		if i := slices.Index(f.Flavors, string(*c.LastAcceptableFlavorName)); i >= 0 {
			f.last = i
		}
	}
	for _, wl := range members {
		allowed := AllowedFlavors(wl)
		if len(allowed) != 1 || !isVariantOf(wl, parent) {
			continue
		}
		if i := slices.Index(f.Flavors, allowed[0]); i >= 0 && (f.Variants[i] == nil || isOlder(wl, f.Variants[i])) {
			f.Variants[i] = wl // of several the oldest
		}
	}
	return f
}

func isOlder(a, b *kueue.Workload) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

func isVariantOf(wl, parent *kueue.Workload) bool {
	key, uid := ParentOf(wl)
	return key == KeyOf(parent) && uid == string(parent.UID) && wl.Spec.QueueName == parent.Spec.QueueName &&
		equality.Semantic.DeepEqual(wl.Spec.PodSets, parent.Spec.PodSets)
}

// VariantName is the name of the variant for a flavor.
func VariantName(parent *kueue.Workload, flavor string) string {
	sum := sha256.Sum256([]byte(parent.Name + "\n" + string(parent.UID) + "\n" + flavor))
	name := parent.Name + "-variant-" + flavor
	if most := 63 - 6; len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + "-" + hex.EncodeToString(sum[:])[:5]
}

// NewVariant is the variant for a flavor. What its parent waits for before it is in the queue is the parent's own affair.
func NewVariant(parent *kueue.Workload, flavor string) *kueue.Workload {
	variant := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: parent.Namespace, Name: VariantName(parent, flavor),
		Labels: maps.Clone(parent.Labels), Annotations: maps.Clone(parent.Annotations),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, kueue.SchemeGroupVersion.WithKind("Workload"))},
	}}
	delete(variant.Labels, kueuelabels.ConcurrentAdmissionParent)
	own := []string{GatedByAnnotation, v1alpha1.AfterAnnotation, v1alpha1.AfterMetAnnotation, v1alpha1.FlavorsAnnotation, ReplacesAnnotation, kueue.WorkloadSliceNameAnnotation}
	maps.DeleteFunc(variant.Annotations, func(name, _ string) bool { return slices.Contains(own, name) })
	metav1.SetMetaDataAnnotation(&variant.ObjectMeta, kueuelabels.AllowedFlavors, flavor)
	parent.Spec.DeepCopyInto(&variant.Spec)
	variant.Spec.Active = nil
	has := func(gate kueue.PreemptionGate) bool { return gate.Name == kueuelabels.ConcurrentAdmissionGate }
	if !slices.ContainsFunc(variant.Spec.PreemptionGates, has) {
		variant.Spec.PreemptionGates = append(variant.Spec.PreemptionGates, kueue.PreemptionGate{Name: kueuelabels.ConcurrentAdmissionGate})
	}
	return variant
}

// Missing are the flavors that lack a variant.
func (f *Family) Missing() (flavors []string) {
	if !f.isAlive() || !IsActive(f.Parent) || IsGated(f.Parent) {
		return nil
	}
	for i, v := range f.Variants {
		if v == nil {
			flavors = append(flavors, f.Flavors[i])
		}
	}
	return flavors
}

// IndexOf is a variant's place in the order of flavors; -1: it is none of the family.
func (f *Family) IndexOf(wl *kueue.Workload) int {
	return slices.IndexFunc(f.Variants, func(v *kueue.Workload) bool { return v != nil && v.UID == wl.UID })
}

func (f *Family) isAlive() bool { return f.Parent.DeletionTimestamp == nil && !IsFinished(f.Parent) }

// IsWanted says that a variant is in the queue, or may stay admitted.
func (f *Family) IsWanted(i int) bool {
	if i < 0 || !f.isAlive() || !IsActive(f.Parent) {
		return false
	}
	a := f.admitted()
	switch {
	case a < 0 || i == a:
		return true
	case f.retains:
		return false
	}
	return i < a && i <= f.last
}

// whyUnwanted says why a variant is not in the queue.
func (f *Family) whyUnwanted() string {
	if a := f.admitted(); a >= 0 && IsActive(f.Parent) {
		return fmt.Sprintf("another Variant %q admitted", KeyOf(f.Variants[a]))
	}
	return fmt.Sprintf("Parent Workload %q not active", KeyOf(f.Parent))
}

// admitted is the variant that the job runs on, or is to run on; -1: none.
func (f *Family) admitted() int {
	if i := f.used(); f.retains && i >= 0 && f.Variants[i] != nil && IsAdmitted(f.Variants[i]) {
		return i
	}
	return slices.IndexFunc(f.Variants, func(v *kueue.Workload) bool { return v != nil && IsAdmitted(v) })
}

// used is the flavor that the parent is admitted with; -1: it is not, or the ClusterQueue does not have it any more.
func (f *Family) used() int {
	if !HasReservation(f.Parent) {
		return -1
	}
	for _, set := range f.Parent.Status.Admission.PodSetAssignments {
		for _, flavor := range set.Flavors {
			if i := slices.Index(f.Flavors, string(flavor)); i >= 0 {
				return i
			}
		}
	}
	return -1
}

// Uses says that the parent is admitted as the variant is.
func (f *Family) Uses(i int) bool { return i >= 0 && f.used() == i }

// isFromBefore says that a variant has its quota since before the parent was evicted for a reason of its own.
func (f *Family) isFromBefore(v *kueue.Workload) bool {
	evicted, reserved := condition(f.Parent, kueue.WorkloadEvicted), condition(v, kueue.WorkloadQuotaReserved)
	return IsEvicted(f.Parent) && evicted.Reason != evictedWithVariant && evicted.Reason != evictedAlone &&
		HasReservation(v) && reserved.LastTransitionTime.Before(&evicted.LastTransitionTime)
}

// ParentStep is the next step of the parent, beside those that every workload has.
func (f *Family) ParentStep() Step {
	switch {
	case f.isAlive() && f.Parent.Labels[kueuelabels.ConcurrentAdmissionParent] != "true":
		return Step{Action: MarkParent}
	case !f.isAlive() || !IsActive(f.Parent):
		return Step{}
	case !HasReservation(f.Parent):
		if a := f.admitted(); a >= 0 && !IsEvicted(f.Variants[a]) && !f.isFromBefore(f.Variants[a]) {
			return Step{Action: FollowVariant, Variant: f.Variants[a]}
		}
		return Step{}
	case IsEvicted(f.Parent):
		return Step{}
	}
	i := f.used()
	switch {
	case i < 0 || f.Variants[i] == nil || !IsAdmitted(f.Variants[i]):
		return Step{Action: EvictNow, Reason: evictedAlone, Message: "No variant is running"}
	case IsEvicted(f.Variants[i]):
		return Step{Action: EvictNow, Reason: evictedWithVariant, Message: "Admitted variant was evicted"}
	case !equality.Semantic.DeepEqual(f.Parent.Status.Admission, f.Variants[i].Status.Admission):
		return Step{Action: FollowVariant, Variant: f.Variants[i]}
	}
	return Step{}
}

// follow has a parent be admitted as its variant is.
func follow(parent, variant *kueue.Workload, now time.Time) {
	setCardsElsewhere(parent, cardsElsewhere(variant), now)
	if a := variant.Status.Admission.DeepCopy(); HasReservation(parent) {
		parent.Status.Admission = a
		return
	}
	reserve(parent, variant.Status.Admission.DeepCopy(), now)
	setAvoidNodes(parent, AvoidNodes(variant), now)
	parent.Status.AdmissionChecks = nil
	set(parent, kueue.WorkloadAdmitted, true, "Admitted", "The variant "+variant.Name+" is admitted", now)
}

// VariantStep is the next step of a workload that says it is a variant, beside those that every workload has.
func (f *Family) VariantStep(wl *kueue.Workload, now time.Time) Step {
	i := f.IndexOf(wl)
	switch {
	case wl.DeletionTimestamp != nil || IsFinished(wl):
		return Step{}
	case i < 0:
		return Step{Action: DeleteVariant}
	case IsFinished(f.Parent):
		finished := condition(f.Parent, kueue.WorkloadFinished)
		return Step{Action: FinishNow, Reason: finished.Reason, Message: finished.Message}
	}
	if step := f.quotaStep(i); step.Action != Wait {
		return step
	}
	switch wanted := f.IsWanted(i); {
	case !wanted && IsActive(wl):
		return Step{Action: Deactivate, Reason: "DeactivatedVariant", Message: "Variant Workload deactivated due to " + f.whyUnwanted()}
	case wanted && !IsActive(wl) && !wasDeactivatedFor(wl):
		return Step{Action: Activate, Reason: "ActivatedVariant", Message: "Variant Workload activated: it may be admitted"}
	}
	return f.gateStep(i, now)
}

// applyToFamily is Apply of the steps that a workload takes as a parent or a variant.
func (s Step) applyToFamily(wl *kueue.Workload, now time.Time) bool {
	switch s.Action {
	case MarkParent:
		wl.Labels = maps.Clone(wl.Labels)
		metav1.SetMetaDataLabel(&wl.ObjectMeta, kueuelabels.ConcurrentAdmissionParent, "true")
		return true
	case ReleaseEvicted:
		return Release(wl, s.Message, now)
	case FollowVariant:
		follow(wl, s.Variant, now)
		return true
	case OpenPreemptionGate:
		OpenGate(wl, kueuelabels.ConcurrentAdmissionGate, now)
		return true
	}
	return false
}

// quotaStep evicts a variant that its parent leaves, and lets one go that was evicted.
func (f *Family) quotaStep(i int) Step {
	v, a := f.Variants[i], f.admitted()
	switch {
	case !HasReservation(v):
		return Step{}
	case IsEvicted(v) && !f.Uses(i):
		return Step{Action: ReleaseEvicted, Message: "The workload has been evicted"}
	case IsEvicted(v):
		return Step{}
	case f.isFromBefore(v) && IsActive(f.Parent):
		evicted := condition(f.Parent, kueue.WorkloadEvicted)
		return Step{Action: EvictNow, Reason: evicted.Reason, Message: evicted.Message}
	case a >= 0 && a < i && f.Uses(i):
		return Step{
			Action: EvictNow, Reason: kueue.WorkloadEvictedByFlavorMigration,
			Message: fmt.Sprintf("Evicted to accommodate a workload (UID: %s) due to migration to more favorable resource flavor", f.Variants[a].UID),
		}
	}
	return Step{}
}

// wasDeactivatedFor says that the variant was deactivated for a reason of its own, such as a check that rejects it.
func wasDeactivatedFor(v *kueue.Workload) bool {
	return isTrue(v, kueue.WorkloadDeactivationTarget) ||
		IsEvicted(v) && strings.HasPrefix(condition(v, kueue.WorkloadEvicted).Reason, kueue.WorkloadDeactivated+"DueTo")
}

// gateStep opens the preemption gate of the most favorable variant that has to preempt others, one variant at a time.
func (f *Family) gateStep(i int, now time.Time) Step {
	var last time.Time
	candidate := -1
	for j, v := range f.Variants {
		if v == nil || !IsActive(v) || HasReservation(v) || IsFinished(v) || v.DeletionTimestamp != nil {
			continue
		}
		opened := GateOpenedAt(v, kueuelabels.ConcurrentAdmissionGate)
		switch {
		case !opened.IsZero():
			if opened.After(last) {
				last = opened
			}
		case candidate >= 0:
		case !BlockedOnGatesSince(v).IsZero():
			candidate = j
		case condition(v, kueue.WorkloadQuotaReserved) == nil: // it may have to, which is not known yet
			candidate = len(f.Variants)
		}
	}
	if candidate != i {
		return Step{}
	}
	if at := last.Add(PreemptionTurn); !last.IsZero() && now.Before(at) {
		return Step{At: at}
	}
	return Step{Action: OpenPreemptionGate}
}

// AsCounted is a variant as the engine sees it: with the spec of its parent, whatever its own says by now, and with what
// only the parent knows, such as which pods are done, and ready, how long they ran, and until when it waits.
func (f *Family) AsCounted(variant *kueue.Workload) *kueue.Workload {
	i, p := f.IndexOf(variant), f.Parent
	v := NewVariant(p, f.Flavors[i])
	v.Spec.Active = variant.Spec.Active
	v.ObjectMeta = withAnnotations(variant.ObjectMeta, v.Annotations)
	v.OwnerReferences = p.OwnerReferences
	v.CreationTimestamp = metav1.NewTime(v.CreationTimestamp.Add(time.Duration(i))) // in the order of flavors
	v.Status = variant.Status
	v.Status.ReclaimablePods = p.Status.ReclaimablePods
	v.Status.AccumulatedPastExecutionTimeSeconds = p.Status.AccumulatedPastExecutionTimeSeconds
	v.Status.Conditions = slices.DeleteFunc(slices.Clone(v.Status.Conditions), func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
	if ready := condition(p, kueue.WorkloadPodsReady); ready != nil {
		v.Status.Conditions = append(v.Status.Conditions, *ready)
	}
	if backingOff(p) && (!backingOff(variant) || variant.Status.RequeueState.RequeueAt.Before(p.Status.RequeueState.RequeueAt)) {
		v.Status.RequeueState = p.Status.RequeueState
	}
	return v
}

func withAnnotations(meta metav1.ObjectMeta, annotations map[string]string) metav1.ObjectMeta {
	meta.Annotations = annotations
	return meta
}
