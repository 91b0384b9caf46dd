package placement

import "testing"

func TestRatingIsFoundInAnyModelName(t *testing.T) {
	for model, want := range map[string]float64{
		"A100": 312, "H100-80G": 989, "NVIDIA A100-SXM4-40GB": 312, "NVIDIA-H100-80GB-HBM3": 989, "Tesla T4": 65,
		"NVIDIA L40S": 362, "NVIDIA H20": 148, "v100m32": 125, "G3": 0, "": 0,
	} {
		if got := Rating(model); got != want {
			t.Errorf("%q: %v TFLOPS, want %v", model, got, want)
		}
	}
}
