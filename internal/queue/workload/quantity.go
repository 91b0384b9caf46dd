package workload

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// The largest amounts; a larger quantity counts as this much, which no quota covers.
const largest = math.MaxInt64 / 4

var (
	largestQuantity = resource.NewQuantity(largest, resource.DecimalSI)
	largestCPU      = resource.NewMilliQuantity(largest, resource.DecimalSI)
)

// Amount is a quantity in the unit the engine counts the resource in. Quantity's own conversions
// give nonsense, even 0, for what an int64 cannot hold. It is from 0 to largest.
func Amount(name corev1.ResourceName, q resource.Quantity) int64 {
	cpu := name == corev1.ResourceCPU
	switch {
	case q.Sign() < 0:
		return 0 // nobody gives by asking
	case cpu && q.Cmp(*largestCPU) >= 0, !cpu && q.Cmp(*largestQuantity) >= 0:
		return largest
	case cpu:
		return q.MilliValue()
	}
	return q.Value()
}

// Countable says whether so many pods that ask for the quantity each can be counted at all.
func Countable(name corev1.ResourceName, q resource.Quantity, pods int32) bool {
	amount := Amount(name, q)
	return amount < largest && (pods <= 0 || amount <= largest/int64(pods))
}

// ValidateCount refuses what all pods of a set ask for together where no number holds it.
func ValidateCount(set *kueue.PodSet, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	requests := PodRequests(&set.Template.Spec)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if q := requests[name]; !Countable(name, q, set.Count) {
			errs = append(errs, field.Invalid(path.Child("count"), set.Count,
				fmt.Sprintf("so many pods that ask for %s of %s each are more than can be counted", q.String(), name)))
		}
	}
	return errs
}

// Quantity is the inverse of Amount, in the form people write the resource.
func Quantity(name corev1.ResourceName, amount int64) resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

// Fraction is Quantity for an average, in thousandths of what people write.
func Fraction(name corev1.ResourceName, amount float64) resource.Quantity {
	if name != corev1.ResourceCPU {
		amount *= 1000
	}
	return *resource.NewMilliQuantity(int64(math.Round(amount)), resource.DecimalSI)
}

// Average is the inverse of Fraction.
func Average(name corev1.ResourceName, q resource.Quantity) float64 {
	if name == corev1.ResourceCPU {
		return q.AsApproximateFloat64() * 1000
	}
	return q.AsApproximateFloat64()
}

func amounts(list corev1.ResourceList) admission.Requests {
	requests := make(admission.Requests, len(list))
	for name, q := range list {
		requests[string(name)] = Amount(name, q)
	}
	return requests
}

func quantities(requests admission.Requests) corev1.ResourceList {
	list := make(corev1.ResourceList, len(requests))
	for name, amount := range requests {
		list[corev1.ResourceName(name)] = Quantity(corev1.ResourceName(name), amount)
	}
	return list
}
