// Package request reads what containers and claims ask of cards.
//
// Cards are asked for in one of three ways, which old installations call modes: shares of
// elasticgpu.io, qGPU devices, and whole cards. A container uses one of them.
//
// Words: docs/design/glossary.md.
package request

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Mode is a way to ask for cards.
type Mode string

// Modes, by the names that the flag -mode has always had.
const (
	Share Mode = "gpushare"
	QGPU  Mode = "qgpu"
	Whole Mode = "pgpu"
)

// Modes that are served; the empty set serves all.
type Modes []Mode

// ParseModes reads a comma list.
func ParseModes(text string) (Modes, error) {
	var modes Modes
	for word := range strings.SplitSeq(text, ",") {
		switch mode := Mode(strings.TrimSpace(word)); mode {
		case Share, QGPU, Whole:
			modes = append(modes, mode)
		case "":
		default:
			return nil, fmt.Errorf("mode %q is none of %s, %s, %s", word, Share, QGPU, Whole)
		}
	}
	return modes, nil
}

func (m Modes) has(mode Mode) bool { return len(m) == 0 || slices.Contains(m, mode) }

// quantity is what a resource name counts.
type quantity uint8

const (
	core quantity = iota
	memory
	greedyCore
	cards
	tflops
)

type meaning struct {
	mode  Mode
	what  quantity
	scale int64 // to percent, MiB, or cards
}

// meanings of the resources of containers.
var meanings = map[corev1.ResourceName]meaning{
	egpu.ResourceCore:           {Share, core, 1},
	egpu.ResourceCoreOld:        {Share, core, 1},
	egpu.ResourceMemory:         {Share, memory, 1},
	egpu.ResourceMemoryOld:      {Share, memory, 1},
	egpu.ResourceQGPUCore:       {QGPU, core, 1},
	egpu.ResourceQGPUCoreGreedy: {QGPU, greedyCore, 1},
	egpu.ResourceQGPUMemory:     {QGPU, memory, 1024}, // qGPU counts GiB
	egpu.ResourceWhole:          {Whole, cards, 1},
}

// Resources are the names of all resources that stand for cards, sorted.
func Resources() []corev1.ResourceName {
	return append(slices.Sorted(maps.Keys(meanings)), egpu.ResourceClaim)
}

// IsCard says whether a resource stands for cards.
func IsCard(name corev1.ResourceName) bool {
	_, known := meanings[name]
	return known || name == egpu.ResourceClaim
}

// Container is what a container asks of cards in the modes that are served. A request that makes no
// sense is a *placement.RequestError that says what to write instead.
func Container(c *corev1.Container, modes Modes) (placement.CardRequest, error) {
	var sums sums
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, value := range list {
			m, known := meanings[name]
			if known && modes.has(m.mode) {
				sums.set(m, amount(value, 0))
			}
		}
	}
	r, err := sums.request()
	if bad := (*placement.RequestError)(nil); errors.As(err, &bad) {
		bad.Container = c.Name
	}
	return r, err
}

// List is what a list of resources asks of cards, each named with any prefix before the slash: the
// form of claims, whose prefix is the provisioner's name.
func List(list corev1.ResourceList, mode Mode) (placement.CardRequest, error) {
	var sums sums
	for name, value := range list {
		_, word, _ := strings.Cut(string(name), "/")
		m := meaning{mode: mode, scale: 1}
		switch word {
		case "gpu-core", "core":
			m.what = core
		case "gpu-memory", "memory":
			m.what = memory
		case "qgpu-core", "qgpu-memory", "qgpu-core-greedy":
			m = meanings[corev1.ResourceName("tke.cloud.tencent.com/"+word)]
			m.mode = mode
		case "gpu", "gpu-count":
			m.what = cards
		case "tflops", "gpu-tflops":
			m.what = tflops
		default:
			return placement.CardRequest{}, &placement.RequestError{Problem: fmt.Sprintf(
				"resource %s: write gpu-core, gpu-memory, gpu or tflops behind the slash", name)}
		}
		sums.set(m, amount(value, 0))
	}
	return sums.request()
}

// Quota is what a claim's list of resources counts as, under the names containers use: shares and
// whole cards are the same currency whichever way they are asked for.
func Quota(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, value := range list {
		switch _, word, _ := strings.Cut(string(name), "/"); word {
		case "gpu-core", "core":
			name = egpu.ResourceCore
		case "gpu-memory", "memory":
			name = egpu.ResourceMemory
		case "gpu", "gpu-count":
			name = egpu.ResourceWhole
		case "qgpu-core", "qgpu-memory", "qgpu-core-greedy":
			name = corev1.ResourceName("tke.cloud.tencent.com/" + word)
		}
		sum := out[name]
		sum.Add(value)
		out[name] = sum
	}
	return out
}

// most of anything that can be counted, also times the largest scale and as percents of cards: no node has it.
const most = math.MaxInt64 / 4 / 1024

// amount of a quantity in a power of ten, from -1 to most. Quantity's own conversions give nonsense, even 0, for what an
// int64 cannot hold.
func amount(q resource.Quantity, scale resource.Scale) int64 {
	switch {
	case q.Sign() < 0:
		return -1
	case q.Cmp(*resource.NewScaledQuantity(most, scale)) >= 0:
		return most
	}
	return q.ScaledValue(scale)
}

// sums of what one container asks for.
type sums struct {
	modes                               []Mode
	core, memory, greedy, cards, tflops int64
}

func (s *sums) set(m meaning, value int64) {
	if value == 0 {
		return
	}
	if !slices.Contains(s.modes, m.mode) {
		s.modes = append(s.modes, m.mode)
	}
	switch m.what {
	case core:
		s.core = value * m.scale
	case memory:
		s.memory = value * m.scale
	case greedyCore:
		s.greedy = value
	case cards:
		s.cards = value
	case tflops:
		s.tflops = value
	}
}

func (s *sums) request() (placement.CardRequest, error) {
	bad := func(problem string) (placement.CardRequest, error) {
		return placement.CardRequest{}, &placement.RequestError{Problem: problem}
	}
	switch {
	case len(s.modes) > 1:
		return bad("asks for cards in more than one way: use either elasticgpu.io, or qgpu, or nvidia.com/gpu")
	case s.cards < 0 || s.tflops < 0:
		return bad("cards and tflops must not be negative")
	case s.cards > 0 && (s.core > 0 || s.tflops > 0):
		return bad(fmt.Sprintf("asks for %d cards and for a share: use one; %d whole cards are also gpu-core %d", s.cards, s.cards, 100*s.cards))
	case s.cards > 0:
		return placement.Percent(100*s.cards, s.memory)
	case s.tflops > 0 && s.core > 0:
		return bad("core and tflops exclude each other: use one")
	case s.tflops > 0:
		return placement.CardRequest{Count: 1, TFLOPS: float64(s.tflops), Memory: s.memory}, nil
	case s.greedy > 0 && s.memory == 0:
		return bad("qgpu-core-greedy reserves no core: ask for qgpu-memory too")
	}
	return placement.Percent(s.core, s.memory)
}
