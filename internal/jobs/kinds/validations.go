package kinds

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate finds what the row's own rules refuse in a job; old is the job before a change, nil for a
// new one. What was wrong before a change does not forbid the change: an object from before a rule
// can still be changed, and deleted.
func (j Object) Validate(old *Object) field.ErrorList {
	vars := j.vars()
	vars["oldObject"] = nil
	if old != nil {
		vars["oldObject"] = old.Object
	}
	var errs field.ErrorList
	for _, v := range j.kind.validations {
		if old != nil && !v.holds(map[string]any{"object": old.Object, "oldObject": nil}) {
			continue
		}
		if !v.holds(vars) {
			value, _ := v.path.Get(j.Object)
			errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: v.path.String(), BadValue: value, Detail: v.message})
		}
	}
	return errs
}

// holds is false where the rule cannot be evaluated: it reads a value that is not what it should be.
func (v validationRow) holds(vars map[string]any) bool {
	holds, err := v.rule.boolean(vars, true)
	return err == nil && holds
}
