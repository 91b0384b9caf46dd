package devices

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// device that a driver offers.
type device struct {
	driver string
	*resourceapi.Device
}

// choice is the devices that selectors choose, and the first error they met on
// another.
type choice struct {
	devices []device
	err     error
}

// offered are all devices of pools that are complete, in the pool's newest
// generation.
func (b *Book) offered() []device {
	if b.devices != nil {
		return b.devices
	}
	type pool struct{ driver, name string }
	pools := map[pool][]*resourceapi.ResourceSlice{}
	for _, slice := range b.slices {
		key := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		known := pools[key]
		switch {
		case len(known) == 0 || slice.Spec.Pool.Generation > known[0].Spec.Pool.Generation:
			pools[key] = []*resourceapi.ResourceSlice{slice}
		case slice.Spec.Pool.Generation == known[0].Spec.Pool.Generation:
			pools[key] = append(known, slice)
		}
	}
	b.devices = []device{}
	for key, slices := range pools {
		if int64(len(slices)) != slices[0].Spec.Pool.ResourceSliceCount {
			continue
		}
		for _, slice := range slices {
			for i := range slice.Spec.Devices {
				b.devices = append(b.devices, device{driver: key.driver, Device: &slice.Spec.Devices[i]})
			}
		}
	}
	slices.SortStableFunc(b.devices, func(a, b device) int {
		return cmp.Or(strings.Compare(a.driver, b.driver), strings.Compare(a.Name, b.Name))
	})
	return b.devices
}

// choose the devices that a class and further selectors are for, of one driver
// or of all.
func (b *Book) choose(class, driver string, further []string, path *field.Path) (choice, *field.Error) {
	key := strings.Join(append([]string{class, driver}, further...), "\x00")
	if known, ok := b.chosen[key]; ok {
		return known, nil
	}
	of := b.classes[class]
	if of == nil {
		missing := apierrors.NewNotFound(schema.GroupResource{Group: resourceapi.GroupName, Resource: "DeviceClass"}, class)
		return choice{}, field.InternalError(path, fmt.Errorf("failed to get DeviceClass %s: %w", class, missing))
	}
	var compiled []dracel.CompilationResult
	for _, expression := range append(expressions(of.Spec.Selectors), further...) {
		result := b.cel.GetOrCompile(expression)
		if result.Error != nil {
			return choice{}, field.Invalid(path.Child("exactly", "selectors"), expression, "CEL compilation failed: "+result.Error.Detail)
		}
		compiled = append(compiled, result)
	}
	var found choice
	for _, d := range b.offered() {
		if driver != "" && d.driver != driver {
			continue
		}
		matches, err := matches(d, compiled)
		if matches {
			found.devices = append(found.devices, d)
		}
		if err != nil && found.err == nil {
			found.err = fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	if b.chosen == nil {
		b.chosen = map[string]choice{}
	}
	b.chosen[key] = found
	return found, nil
}

func matches(d device, selectors []dracel.CompilationResult) (bool, error) {
	seen := dracel.Device{Driver: d.driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity}
	for _, selector := range selectors {
		if matches, _, err := selector.DeviceMatches(context.Background(), seen); err != nil || !matches {
			return false, err
		}
	}
	return true, nil
}

func expressions(selectors []resourceapi.DeviceSelector) []string {
	var list []string
	for _, s := range selectors {
		if s.CEL != nil {
			list = append(list, s.CEL.Expression)
		}
	}
	return list
}

// selected says which requests of a claim select more devices than there are:
// its pods would hold quota and never start.
func (b *Book) selected(requests []resourceapi.DeviceRequest, path *field.Path) (problems field.ErrorList) {
	taken := map[*resourceapi.Device]bool{}
	for i := range requests {
		exactly := requests[i].Exactly
		selectors := expressions(exactly.Selectors)
		if len(selectors) == 0 {
			continue
		}
		found, problem := b.choose(exactly.DeviceClassName, "", selectors, path.Index(i))
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		var n int64
		for _, d := range found.devices {
			if n < exactly.Count && !taken[d.Device] {
				taken[d.Device] = true
				n++
			}
		}
		at := path.Index(i).Child("exactly", "selectors")
		switch {
		case n >= exactly.Count:
		case found.err != nil:
			problems = append(problems, field.Invalid(at, nil, fmt.Sprintf("CEL evaluation failed for DeviceClass %s: %v", exactly.DeviceClassName, found.err)))
		default:
			problems = append(problems, field.InternalError(at, fmt.Errorf("insufficient matching devices for CEL selector in DeviceClass %s: "+
				"%d device(s) match in the cluster but %d requested", exactly.DeviceClassName, n, exactly.Count)))
		}
	}
	return problems
}
