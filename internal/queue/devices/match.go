package devices

import (
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

// offer is a ResourceSlice, and what selectors have chosen of it.
type offer struct {
	*resourceapi.ResourceSlice
	chosen map[string]choice
}

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

// mostChoices are remembered of a slice.
const mostChoices = 256

// complete are the slices of pools that are all there, in the pool's newest
// generation.
func (b *Book) complete() []*offer {
	if b.pools != nil {
		return b.pools
	}
	type pool struct{ driver, name string }
	pools := map[pool][]*offer{}
	for _, slice := range b.slices {
		key := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		known := pools[key]
		switch {
		case len(known) == 0 || slice.Spec.Pool.Generation > known[0].Spec.Pool.Generation:
			pools[key] = []*offer{slice}
		case slice.Spec.Pool.Generation == known[0].Spec.Pool.Generation:
			pools[key] = append(known, slice)
		}
	}
	b.pools = []*offer{}
	for _, slices := range pools {
		if int64(len(slices)) == slices[0].Spec.Pool.ResourceSliceCount {
			b.pools = append(b.pools, slices...)
		}
	}
	slices.SortFunc(b.pools, func(a, b *offer) int { return strings.Compare(a.Name, b.Name) })
	return b.pools
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
	for _, slice := range b.complete() {
		if driver != "" && slice.Spec.Driver != driver {
			continue
		}
		part := slice.choose(key, compiled)
		found.devices = append(found.devices, part.devices...)
		if found.err == nil {
			found.err = part.err
		}
	}
	if b.chosen == nil {
		b.chosen = map[string]choice{}
	}
	b.chosen[key] = found
	return found, nil
}

// choose of the slice's devices. A slice does not change, so it is asked once.
func (o *offer) choose(key string, selectors []dracel.CompilationResult) choice {
	if known, ok := o.chosen[key]; ok {
		return known
	}
	var found choice
	for i := range o.Spec.Devices {
		d := device{o.Spec.Driver, &o.Spec.Devices[i]}
		matches, err := matches(d, selectors)
		if matches {
			found.devices = append(found.devices, d)
		}
		if err != nil && found.err == nil {
			found.err = fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	if o.chosen == nil || len(o.chosen) >= mostChoices {
		o.chosen = map[string]choice{}
	}
	o.chosen[key] = found
	return found
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
	among := assignment{found: make([]choice, len(requests)), has: map[*resourceapi.Device]int{}}
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
		among.found[i] = found
		n := among.giveUpTo(i, exactly.Count)
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

// assignment of devices to requests of one claim, each to one.
type assignment struct {
	found []choice
	has   map[*resourceapi.Device]int // the request that a device is for
}

// giveUpTo so many devices to a request; how many there were for it.
func (a *assignment) giveUpTo(request int, count int64) int64 {
	count = min(count, int64(len(a.found[request].devices)))
	if count > resourceapi.AllocationResultsMaxSize {
		return count // no claim is ever given so many: that is not ours to find out
	}
	var n int64
	for n < count && a.give(request, map[*resourceapi.Device]bool{}) {
		n++
	}
	return n
}

// give a device to a request, and others to those that had it.
func (a *assignment) give(request int, tried map[*resourceapi.Device]bool) bool {
	for _, d := range a.found[request].devices {
		if tried[d.Device] {
			continue
		}
		tried[d.Device] = true
		if other, taken := a.has[d.Device]; !taken || a.give(other, tried) {
			a.has[d.Device] = request
			return true
		}
	}
	return false
}
