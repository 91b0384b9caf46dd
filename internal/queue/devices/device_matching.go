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
	"k8s.io/utils/lru"

	"sigs.k8s.io/controller-runtime/pkg/client"

	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// resourceSlice is one version of a ResourceSlice.
type resourceSlice struct{ *resourceapi.ResourceSlice }

func (o *resourceSlice) isOf(driver string) bool { return driver == "" || o.Spec.Driver == driver }

// device that a driver offers.
type device struct {
	driver string
	*resourceapi.Device
}

// matched are the devices that selectors match, and the first error on another device.
type matched struct {
	devices []device
	err     error
}

// completePools are the slices of pools that are complete, in the pool's newest generation.
func (b *Counter) completePools() []*resourceSlice {
	if b.pools != nil {
		return b.pools
	}
	type pool struct{ driver, name string }
	pools := map[pool][]*resourceSlice{}
	for _, slice := range b.slices {
		key := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		known := pools[key]
		switch {
		case len(known) == 0 || slice.Spec.Pool.Generation > known[0].Spec.Pool.Generation:
			pools[key] = []*resourceSlice{slice}
		case slice.Spec.Pool.Generation == known[0].Spec.Pool.Generation:
			pools[key] = append(known, slice)
		}
	}
	b.pools = []*resourceSlice{}
	for _, slices := range pools {
		if int64(len(slices)) == slices[0].Spec.Pool.ResourceSliceCount {
			b.pools = append(b.pools, slices...)
		}
	}
	slices.SortFunc(b.pools, func(a, b *resourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return b.pools
}

// matchDevices are the devices that a class and further selectors match, of one driver or of all.
func (b *Counter) matchDevices(template client.ObjectKey, class, driver string, further []string, path *field.Path) (matched, *field.Error) {
	of := b.classes[class]
	if of == nil {
		missing := apierrors.NewNotFound(schema.GroupResource{Group: resourceapi.GroupName, Resource: "DeviceClass"}, class)
		return matched{}, field.InternalError(path, fmt.Errorf("failed to get DeviceClass %s: %w", class, missing))
	}
	s := b.search(template, driver, append(expressions(of.Spec.Selectors), further...))
	switch {
	case s == nil:
		return matched{}, &field.Error{Type: unfinished}
	case s.wrong.why != "":
		return matched{}, field.Invalid(path.Child("exactly", "selectors"), s.wrong.expression, "CEL compilation failed: "+s.wrong.why)
	}
	var found matched
	for _, slice := range b.completePools() {
		part := s.parts[slice]
		found.devices = append(found.devices, part.devices...)
		if found.err == nil {
			found.err = part.err
		}
	}
	return found, nil
}

// unfinished is not a problem of a claim: its devices are still being searched for.
const unfinished field.ErrorType = "Unfinished"

// compiler of selectors, with a cache. Unlike the Cache in Kubernetes' package, it estimates what
// each may cost.
type compiler struct{ known *lru.Cache }

// cost of compiling it.
func (c *compiler) cost(expression string) int64 {
	if _, found := c.known.Get(expression); found {
		return 0
	}
	return letterCost * int64(len(expression))
}

func (c *compiler) compile(expression string) dracel.CompilationResult {
	if known, found := c.known.Get(expression); found {
		return known.(dracel.CompilationResult)
	}
	result := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(expression, dracel.Options{})
	c.known.Add(expression, result)
	return result
}

// matches says whether a selector matches the device, and what the evaluation cost.
func (d device) matches(ctx context.Context, selector *dracel.CompilationResult) (matches bool, cost int64, err error) {
	matches, details, err := selector.DeviceMatches(ctx, dracel.Device{
		Driver: d.driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	cost = deviceCost
	if details != nil && details.ActualCost() != nil {
		cost += int64(*details.ActualCost())
	} else if err != nil {
		cost += resourceapi.CELSelectorExpressionMaxCost // it was stopped at the limit
	}
	if err != nil {
		return false, cost, fmt.Errorf("device %s: %w", d.Name, err)
	}
	return matches, cost, nil
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

// checkSelectors says which requests of a claim select more devices than there are: its pods would
// have quota and never start.
func (b *Counter) checkSelectors(template client.ObjectKey, requests []resourceapi.DeviceRequest, path *field.Path) (problems field.ErrorList) {
	among := assignment{found: make([]matched, len(requests)), assigned: map[*resourceapi.Device]int{}}
	for i := range requests {
		exactly := requests[i].Exactly
		selectors := expressions(exactly.Selectors)
		if len(selectors) == 0 {
			continue
		}
		found, problem := b.matchDevices(template, exactly.DeviceClassName, "", selectors, path.Index(i))
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		among.found[i] = found
		n := among.assignUpTo(i, exactly.Count)
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

// assignment of devices to requests of one claim, each device to one request.
type assignment struct {
	found    []matched
	assigned map[*resourceapi.Device]int // the request that a device is assigned to
}

// assignUpTo assigns at most count devices to a request, and returns how many there were.
func (a *assignment) assignUpTo(request int, count int64) int64 {
	count = min(count, int64(len(a.found[request].devices)))
	if count+int64(len(a.assigned)) > resourceapi.AllocationResultsMaxSize {
		return count // no claim can have that many, which Kubernetes rejects itself
	}
	var n int64
	for n < count && a.assign(request, map[*resourceapi.Device]bool{}) {
		n++
	}
	return n
}

// assign a device to a request, and other devices to those that had it.
func (a *assignment) assign(request int, tried map[*resourceapi.Device]bool) bool {
	for _, d := range a.found[request].devices {
		if tried[d.Device] {
			continue
		}
		tried[d.Device] = true
		if other, taken := a.assigned[d.Device]; !taken || a.assign(other, tried) {
			a.assigned[d.Device] = request
			return true
		}
	}
	return false
}
