package nodespec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Model is a kind of card.
type Model struct {
	Name     string // as people write it: H100-80G
	Product  string // as NVIDIA's gpu-feature-discovery labels it
	MemoryMB int64  // as the driver reports it, in MiB
	TFLOPS   int64  // dense FP16 on the tensor cores; 0 when not known
}

// models are the cards whose figures are known, from NVIDIA's data sheets and
// what nvidia-smi reports.
var models = []Model{
	{"T4-16G", "Tesla-T4", 15360, 65},
	{"V100-16G", "Tesla-V100-SXM2-16GB", 16384, 125},
	{"V100-32G", "Tesla-V100-SXM2-32GB", 32768, 125},
	{"A10-24G", "NVIDIA-A10", 23028, 125},
	{"A30-24G", "NVIDIA-A30", 24576, 165},
	{"A40-48G", "NVIDIA-A40", 46068, 150},
	{"A100-40G", "NVIDIA-A100-SXM4-40GB", 40960, 312},
	{"A100-80G", "NVIDIA-A100-SXM4-80GB", 81920, 312},
	{"L4-24G", "NVIDIA-L4", 23034, 121},
	{"L40S-48G", "NVIDIA-L40S", 46068, 362},
	{"H20-96G", "NVIDIA-H20", 97871, 148},
	{"H100-80G", "NVIDIA-H100-80GB-HBM3", 81559, 989},
	{"H200-141G", "NVIDIA-H200", 143771, 989},
	{"B200-192G", "NVIDIA-B200", 183359, 2250},
}

var memoryInName = regexp.MustCompile(`^([A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)-([0-9]{1,4})G$`)

// ParseModel finds a known model, or makes one from a name that ends in its memory.
func ParseModel(name string) (Model, error) {
	for _, m := range models {
		if strings.EqualFold(m.Name, name) {
			return m, nil
		}
	}
	parts := memoryInName.FindStringSubmatch(name)
	if parts == nil || len(name) > 40 {
		return Model{}, fmt.Errorf("unknown card model %q: known are %s; any other is written with its memory at the end, as FOO-32G",
			name, strings.Join(knownNames(), ", "))
	}
	gib, _ := strconv.ParseInt(parts[2], 10, 64)
	if gib == 0 {
		return Model{}, fmt.Errorf("card model %q has no memory", name)
	}
	return Model{Name: name, Product: name, MemoryMB: gib * 1024}, nil
}

func knownNames() []string {
	names := make([]string, 0, len(models))
	for _, m := range models {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}
