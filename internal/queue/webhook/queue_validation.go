package webhook

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ClusterQueue checks a queue; old is nil for a new one.
func ClusterQueue(cq, old *kueue.ClusterQueue) field.ErrorList {
	spec := field.NewPath("spec")
	groups := groupRules{parent: "cohort", hasParent: cq.Spec.CohortName != "", lendsOwnOnly: true}
	errs := groups.check(cq.Spec.ResourceGroups, spec.Child("resourceGroups"))
	errs = append(errs, metavalidation.ValidateLabelSelector(cq.Spec.NamespaceSelector,
		metavalidation.LabelSelectorValidationOptions{}, spec.Child("namespaceSelector"))...)
	if p := cq.Spec.Preemption; p != nil && p.ReclaimWithinCohort == kueue.PreemptionPolicyNever &&
		p.BorrowWithinCohort != nil && p.BorrowWithinCohort.Policy != kueue.BorrowWithinCohortPolicyNever {
		errs = append(errs, field.Invalid(spec.Child("preemption"), p, "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"))
	}
	if f := cq.Spec.FlavorFungibility; f != nil && f.Preference != nil &&
		(f.WhenCanBorrow != kueue.TryNextFlavor || f.WhenCanPreempt != kueue.TryNextFlavor) {
		errs = append(errs, field.Invalid(spec.Child("flavorFungibility", "preference"), *f.Preference,
			fmt.Sprintf("preference %q requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor", *f.Preference)))
	}
	errs = append(errs, fairSharing(cq.Spec.FairSharing, spec.Child("fairSharing"))...)
	errs = append(errs, groupSizes(cq.Spec.ResourceGroups, spec.Child("resourceGroups"))...)
	errs = append(errs, checkFlavors(cq, old)...)
	if old != nil {
		errs = append(errs, validation.ValidateImmutableField(cq.Spec.ConcurrentAdmissionPolicy,
			old.Spec.ConcurrentAdmissionPolicy, spec.Child("concurrentAdmissionPolicy"))...)
	}
	return errs
}

// concurrentAdmission checks a queue in which workloads have a variant for each flavor.
func concurrentAdmission(cq *kueue.ClusterQueue) (errs field.ErrorList) {
	const most = 16
	policy, spec := cq.Spec.ConcurrentAdmissionPolicy, field.NewPath("spec")
	if policy == nil {
		return nil
	}
	groups := cq.Spec.ResourceGroups
	switch path := spec.Child("resourceGroups"); {
	case len(groups) != 1:
		errs = append(errs, field.Invalid(path, len(groups), "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined"))
	case len(groups[0].Flavors) > most:
		errs = append(errs, field.Invalid(path.Index(0).Child("flavors"), len(groups[0].Flavors),
			"cannot have more than 16 resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is defined"))
	}
	if c := policy.Migration.Constraints; c != nil {
		path, mode := spec.Child("concurrentAdmissionPolicy", "migration", "constraints"), policy.Migration.Mode
		switch last := c.LastAcceptableFlavorName; {
		case mode != "" && mode != kueue.ConcurrentAdmissionTryPreferredFlavors:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("may only be set when migration.mode is %q (got %q)",
				kueue.ConcurrentAdmissionTryPreferredFlavors, mode)))
		case last != nil && !flavorNames(cq).Has(*last):
			errs = append(errs, field.Invalid(path.Child("lastAcceptableFlavorName"), *last,
				fmt.Sprintf("must be one of the flavors defined in the ClusterQueue: %v", sets.List(flavorNames(cq)))))
		}
	}
	if cq.Spec.QueueingStrategy == kueue.StrictFIFO {
		errs = append(errs, field.Invalid(spec.Child("queueingStrategy"), cq.Spec.QueueingStrategy,
			"StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined"))
	}
	return errs
}

// Cohort checks a cohort.
func Cohort(cohort *kueue.Cohort) field.ErrorList {
	spec := field.NewPath("spec")
	groups := groupRules{parent: "parent", hasParent: cohort.Spec.ParentName != ""}
	return append(fairSharing(cohort.Spec.FairSharing, spec.Child("fairSharing")),
		groups.check(cohort.Spec.ResourceGroups, spec.Child("resourceGroups"))...)
}

// checkFlavors finds admission checks for flavors the queue does not have. What was wrong before
// and did not change is allowed, so that the rest of an old queue can be fixed.
func checkFlavors(cq, old *kueue.ClusterQueue) field.ErrorList {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	known := flavorNames(cq)
	before := map[kueue.AdmissionCheckReference]sets.Set[kueue.ResourceFlavorReference]{}
	if old != nil && old.Spec.AdmissionChecksStrategy != nil && flavorNames(old).Equal(known) {
		for _, check := range old.Spec.AdmissionChecksStrategy.AdmissionChecks {
			before[check.Name] = sets.New(check.OnFlavors...)
		}
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "admissionChecksStrategy", "admissionChecks")
	for i, check := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if was, found := before[check.Name]; found && was.Equal(sets.New(check.OnFlavors...)) {
			continue
		}
		for j, flavor := range check.OnFlavors {
			if !known.Has(flavor) {
				errs = append(errs, field.NotSupported(path.Index(i).Child("onFlavors").Index(j), flavor, sets.List(known)))
			}
		}
	}
	return errs
}

// strictFlavors finds those that were wrong before, too, and did not change.
func strictFlavors(cq, old *kueue.ClusterQueue) field.ErrorList {
	if old == nil || len(checkFlavors(cq, old)) > 0 {
		return nil // those are found already
	}
	return checkFlavors(cq, nil)
}

func flavorNames(cq *kueue.ClusterQueue) sets.Set[kueue.ResourceFlavorReference] {
	names := sets.New[kueue.ResourceFlavorReference]()
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			names.Insert(flavor.Name)
		}
	}
	return names
}

// groupSizes limits a queue to what one object can hold.
func groupSizes(groups []kueue.ResourceGroup, path *field.Path) field.ErrorList {
	const most, mostPairs = 256, 512
	var errs field.ErrorList
	flavors, covered := 0, 0
	for i, group := range groups {
		flavors += len(group.Flavors)
		covered += len(group.CoveredResources)
		pairs := 0
		for _, flavor := range group.Flavors {
			pairs += len(flavor.Resources)
		}
		if pairs > mostPairs {
			errs = append(errs, field.Invalid(path.Index(i), pairs,
				fmt.Sprintf("number of flavor-resource combinations in a resourceGroup must be ≤ %d, got %d", mostPairs, pairs)))
		}
	}
	if flavors > most {
		errs = append(errs, field.Invalid(path, flavors,
			fmt.Sprintf("total number of flavors across all resourceGroups must be ≤ %d, got %d", most, flavors)))
	}
	if covered > most {
		errs = append(errs, field.Invalid(path, covered,
			fmt.Sprintf("total number of covered resources across all resourceGroups must be ≤ %d, got %d", most, covered)))
	}
	return errs
}

// groupRules differ between queues and cohorts.
type groupRules struct {
	parent       string // what it is called
	hasParent    bool   // without one there is no borrowing or lending
	lendsOwnOnly bool   // a queue lends its nominal quota, a cohort its children's too
}

func (r groupRules) check(groups []kueue.ResourceGroup, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	resources, flavors := sets.New[corev1.ResourceName](), sets.New[kueue.ResourceFlavorReference]()
	for i, group := range groups {
		at := path.Index(i)
		for j, name := range group.CoveredResources {
			here := at.Child("coveredResources").Index(j)
			for _, problem := range content.IsLabelKey(string(name)) {
				errs = append(errs, field.Invalid(here, name, problem))
			}
			if resources.Has(name) {
				errs = append(errs, field.Duplicate(here, name))
			}
			resources.Insert(name)
		}
		for j, flavor := range group.Flavors {
			here := at.Child("flavors").Index(j)
			errs = append(errs, r.quotas(flavor, group.CoveredResources, here.Child("resources"))...)
			if flavors.Has(flavor.Name) {
				errs = append(errs, field.Duplicate(here.Child("name"), flavor.Name))
			}
			flavors.Insert(flavor.Name)
		}
	}
	return errs
}

func (r groupRules) quotas(flavor kueue.FlavorQuotas, covered []corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	// The CRD's rules make sure that both lists have the same length.
	for i, quota := range flavor.Resources[:min(len(flavor.Resources), len(covered))] {
		at := path.Index(i)
		if quota.Name != covered[i] {
			errs = append(errs, field.Invalid(at.Child("name"), quota.Name, "must match the name in coveredResources"))
		}
		errs = append(errs, notNegative(quota.NominalQuota, at.Child("nominalQuota"))...)
		if limit := quota.BorrowingLimit; limit != nil {
			errs = append(errs, r.limit(*limit, at.Child("borrowingLimit"))...)
			errs = append(errs, notNegative(*limit, at.Child("borrowingLimit"))...)
		}
		if limit := quota.LendingLimit; limit != nil {
			errs = append(errs, notNegative(*limit, at.Child("lendingLimit"))...)
			errs = append(errs, r.limit(*limit, at.Child("lendingLimit"))...)
			if r.lendsOwnOnly && limit.Cmp(quota.NominalQuota) > 0 {
				errs = append(errs, field.Invalid(at.Child("lendingLimit"), limit.String(), "must be less than or equal to the nominalQuota"))
			}
		}
	}
	return errs
}

func (r groupRules) limit(limit resource.Quantity, path *field.Path) field.ErrorList {
	if r.hasParent {
		return nil
	}
	return field.ErrorList{field.Invalid(path, limit.String(), "must be nil when "+r.parent+" is empty")}
}

func notNegative(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, q.String(), validation.IsNegativeErrorMsg)}
}

// fairSharing refuses weights that are negative or vanish in the arithmetic.
func fairSharing(fs *kueue.FairSharing, path *field.Path) field.ErrorList {
	if fs == nil || fs.Weight == nil {
		return nil
	}
	errs := notNegative(*fs.Weight, path)
	if fs.Weight.Sign() > 0 && fs.Weight.Cmp(resource.MustParse("1n")) <= 0 {
		errs = append(errs, field.Invalid(path, fs.Weight.String(), "When not 0, weight must be > 10e-9"))
	}
	return errs
}

// ResourceFlavor checks a flavor.
func ResourceFlavor(rf *kueue.ResourceFlavor) field.ErrorList {
	spec := field.NewPath("spec")
	errs := metavalidation.ValidateLabels(rf.Spec.NodeLabels, spec.Child("nodeLabels"))
	errs = append(errs, taints(rf.Spec.NodeTaints, spec.Child("nodeTaints"))...)
	return append(errs, tolerations(rf.Spec.Tolerations, spec.Child("tolerations"))...)
}

func taints(list []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, taint := range list {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(taint.Key, at.Child("key"))...)
		for _, problem := range content.IsLabelValue(taint.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), taint.Value, problem))
		}
		if slices.ContainsFunc(list[:i], func(t corev1.Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }) {
			duplicate := field.Duplicate(at, taint)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		}
	}
	return errs
}

func tolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, toleration := range list {
		if toleration.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(toleration.Key, path.Index(i).Child("key"))...)
		}
	}
	return errs
}
