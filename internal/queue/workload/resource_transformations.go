package workload

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// ResourceTransformations say how what a pod asks for counts against quota. Nil counts everything
// as it is asked for.
type ResourceTransformations struct {
	exclude    []string
	transforms map[corev1.ResourceName]kueueconfig.ResourceTransformation
}

// NewResourceTransformations excludes resources with one of the prefixes and turns others into what
// the transformations say; nil if there is nothing to do.
func NewResourceTransformations(excludePrefixes []string, transformations []kueueconfig.ResourceTransformation) (*ResourceTransformations, error) {
	if len(excludePrefixes) == 0 && len(transformations) == 0 {
		return nil, nil
	}
	c := &ResourceTransformations{exclude: excludePrefixes, transforms: map[corev1.ResourceName]kueueconfig.ResourceTransformation{}}
	for i, t := range transformations {
		field := fmt.Sprintf("resources.transformations[%d]", i)
		if _, twice := c.transforms[t.Input]; twice {
			return nil, fmt.Errorf("%s.input: %q is transformed twice; put all its outputs into one transformation", field, t.Input)
		}
		if t.Strategy != nil && *t.Strategy != kueueconfig.Retain && *t.Strategy != kueueconfig.Replace {
			return nil, fmt.Errorf("%s.strategy: %q is none of %s, %s", field, *t.Strategy, kueueconfig.Retain, kueueconfig.Replace)
		}
		c.transforms[t.Input] = t
	}
	return c, nil
}

// requests are what one pod takes of the quota, and what it takes of its node if that differs.
func (c *ResourceTransformations) requests(asked corev1.ResourceList) (quota, pod admission.Requests) {
	if c == nil || !c.applies(asked) {
		return amounts(asked), nil
	}
	return amounts(c.count(asked)), amounts(asked)
}

func (c *ResourceTransformations) excludes(name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.exclude, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) })
}

func (c *ResourceTransformations) applies(asked corev1.ResourceList) bool {
	for name := range asked {
		if _, transformed := c.transforms[name]; transformed || c.excludes(name) {
			return true
		}
	}
	return false
}

// count adds up outputs apart from what stays as it is: a negative factor is an allowance on other
// outputs, and never reduces what was asked for itself.
func (c *ResourceTransformations) count(asked corev1.ResourceList) corev1.ResourceList {
	retained, outputs := corev1.ResourceList{}, corev1.ResourceList{}
	for name, amount := range asked {
		if c.excludes(name) {
			continue
		}
		transform, found := c.transforms[name]
		if !found || transform.Strategy == nil || *transform.Strategy == kueueconfig.Retain {
			retained[name] = amount
		}
		if !found {
			continue
		}
		if factor, asks := asked[transform.MultiplyBy]; asks && !c.excludes(transform.MultiplyBy) {
			amount = times(amount, factor)
		}
		for output, perUnit := range transform.Outputs {
			add(outputs, output, times(amount, perUnit))
		}
	}
	for name, amount := range outputs {
		if amount.Sign() > 0 {
			add(retained, name, amount)
		} else if _, there := retained[name]; !there {
			retained[name] = resource.Quantity{}
		}
	}
	return retained
}

func add(list corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	sum := list[name].DeepCopy()
	sum.Add(amount)
	list[name] = sum
}

func times(a, b resource.Quantity) resource.Quantity {
	format := a.Format
	a, b = a.DeepCopy(), b.DeepCopy() // AsDec changes their representation
	product := a.AsDec()
	product.Mul(product, b.AsDec())
	return *resource.NewDecimalQuantity(*product, format)
}
