package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What an int64 cannot count is the largest amount, and never little or nothing.
func TestAmount(t *testing.T) {
	for _, c := range []struct {
		name     corev1.ResourceName
		quantity string
		want     int64
	}{
		{"cpu", "1500m", 1500},
		{"cpu", "2", 2000},
		{"memory", "1Gi", 1 << 30},
		{"nvidia.com/gpu", "8", 8},
		{"cpu", "9223372036854775807", largest},
		{"cpu", "9223372036854776", largest},
		{"cpu", "1e30", largest},
		{"memory", "9223372036854775807", largest},
		{"memory", "16Ei", largest},
		{"memory", "1e40", largest},
	} {
		if got := Amount(c.name, resource.MustParse(c.quantity)); got != c.want {
			t.Errorf("%s of %s is %d, want %d", c.quantity, c.name, got, c.want)
		}
	}
}
