package devices

import (
	"fmt"
	"math"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// amountFrom is what a request takes of a source. Which devices it will get is not known yet: each
// counts as the one that takes most.
func (b *Counter) amountFrom(template client.ObjectKey, s *source, exactly *resourceapi.ExactDeviceRequest, path *field.Path) (resource.Quantity, *field.Error) {
	var most resource.Quantity
	found, problem := b.matchDevices(template, exactly.DeviceClassName, s.driver, append(expressions(exactly.Selectors), s.selector), path)
	if problem != nil {
		return most, problem
	}
	if n := int64(len(found.devices)); n < exactly.Count {
		if found.err != nil {
			return most, field.InternalError(path, fmt.Errorf("CEL evaluation error for %w", found.err))
		}
		return most, field.InternalError(path, fmt.Errorf("insufficient matching devices for %s driver: %d device(s) match but %d requested", s.kind(), n, exactly.Count))
	}
	known, possible := false, false
	for _, d := range found.devices {
		amount, has, fits := s.of(d, exactly)
		known = known || has
		if has && fits && (!possible || amount.Cmp(most) > 0) {
			most, possible = amount, true
		}
	}
	switch {
	case !known && s.counter != "":
		return most, field.InternalError(path, fmt.Errorf("matched devices have no consumesCounters entry for counter %q", s.counter))
	case !known:
		return most, field.InternalError(path, fmt.Errorf("matched devices have no capacity dimension %q", s.capacity))
	case !possible:
		return most, field.Invalid(path, nil, fmt.Sprintf("capacity request cannot be satisfied by any matched device's RequestPolicy for dimension %q", s.capacity))
	}
	return times(most, exactly.Count), nil
}

// of is what a request takes if it gets the device, whether the device has the source at all, and
// whether it can give that much.
func (s *source) of(d device, exactly *resourceapi.ExactDeviceRequest) (amount resource.Quantity, has, fits bool) {
	if s.counter != "" {
		for _, set := range d.ConsumesCounters {
			if c, found := set.Counters[s.counter]; found && (!has || c.Value.Cmp(amount) > 0) {
				amount, has = c.Value, true
			}
		}
		return amount, has, true
	}
	capacity, has := named(d.Capacity, s.capacity, d.driver)
	if !has {
		return amount, false, false
	}
	amount = capacity.Value
	if policy := capacity.RequestPolicy; policy != nil && policy.Default != nil {
		amount = *policy.Default
	}
	if exactly.Capacity != nil {
		if asked, found := named(exactly.Capacity.Requests, s.capacity, d.driver); found {
			amount = asked
		}
	}
	amount, fits = round(amount, capacity.RequestPolicy)
	return amount, true, fits
}

// named finds a name with or without the driver's domain before it, which Kubernetes treats as the
// same.
func named[V any](in map[resourceapi.QualifiedName]V, name resourceapi.QualifiedName, driver string) (V, bool) {
	value, found := in[name]
	if !found {
		short, own := strings.CutPrefix(string(name), driver+"/")
		if !own {
			short = driver + "/" + short
		}
		value, found = in[resourceapi.QualifiedName(short)]
	}
	return value, found
}

// round up to an amount that the device's policy allows; false: it allows less at most.
func round(amount resource.Quantity, policy *resourceapi.CapacityRequestPolicy) (resource.Quantity, bool) {
	if policy == nil {
		return amount, true
	}
	for _, value := range policy.ValidValues {
		if value.Cmp(amount) >= 0 {
			return value, true
		}
	}
	if len(policy.ValidValues) > 0 {
		return amount, false
	}
	valid := policy.ValidRange
	if valid == nil {
		return amount, true
	}
	n := amount.Value()
	if valid.Min != nil {
		least := valid.Min.Value()
		n = max(n, least)
		if valid.Step != nil && valid.Step.Value() > 0 {
			step := valid.Step.Value()
			if over := (n - least) % step; over > 0 {
				n += step - over
			}
		}
	}
	return *resource.NewQuantity(n, amount.Format), valid.Max == nil || n <= valid.Max.Value()
}

// times so many devices, up to the largest number there is. A driver's negative amount counts as
// zero.
func times(amount resource.Quantity, count int64) resource.Quantity {
	n := max(0, amount.Value())
	if count > 0 && n > math.MaxInt64/count {
		return *resource.NewQuantity(math.MaxInt64, amount.Format)
	}
	return *resource.NewQuantity(n*count, amount.Format)
}
