package workload

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var gatesPath = field.NewPath("metadata", "annotations").Key(GatedByAnnotation)

// ValidateGates checks who must agree before a workload, or the one of a job, is considered; old is nil
// for a new object. After creation a gate can only be removed. The messages are Kueue's.
func ValidateGates(obj, old client.Object) field.ErrorList {
	now := obj.GetAnnotations()[GatedByAnnotation]
	var errs field.ErrorList
	if old != nil {
		was := old.GetAnnotations()[GatedByAnnotation]
		if was == "" && now != "" {
			errs = append(errs, field.Forbidden(gatesPath, "cannot add admission gate after creation"))
		}
		if was != "" && !sets.New(gateNames(was)...).HasAll(gateNames(now)...) {
			errs = append(errs, field.Forbidden(gatesPath, "can only remove gates, not add new ones"))
		}
	}
	return append(errs, validateGateNames(now)...)
}

func validateGateNames(value string) field.ErrorList {
	const longest = 63
	if value == "" {
		return nil
	}
	var errs field.ErrorList
	names := gateNames(value)
	for i, name := range names {
		switch {
		case name == "":
			errs = append(errs, field.Invalid(gatesPath, value, "cannot contain empty gate names"))
		case slices.Contains(names[:i], name):
			errs = append(errs, field.Invalid(gatesPath, value, "duplicate gate name: "+name))
		default:
			errs = append(errs, validation.IsDomainPrefixedPath(gatesPath, name)...)
			if len(name) > longest {
				errs = append(errs, field.TooLong(gatesPath, "", longest))
			}
		}
	}
	return errs
}

func gateNames(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	names := strings.Split(value, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}
