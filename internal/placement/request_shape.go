package placement

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// shape is a request shape: what a pod requests, without its identity. Pods of one shape share scores.
type shape struct {
	pod       Pod // the request parts of the first pod of this shape
	request   policy.Request
	needs     []need
	units     []unit // one per card, the largest first
	policy    policy.Policy
	drawsLots bool // among equals
	alone     bool // one container has cards, and each card is scored by itself
	// countable: whole cards or none, so that as many pods fit on a node whichever cards they get.
	countable bool
	hash      uint64
	refs      int  // holdings of this shape
	unlearned bool // another stands for its pods, should they come again
	asked     uint64
	index     index
}

// need is a container's card request, compiled.
type need struct {
	container int
	count     int
	core, mem int64
	tflops    float64
	models    []int32
	exclusive bool
	space     bool
}

// unit is one card of a need.
type unit struct{ need int }

// of is what the need takes from a card of this memory; ok is false where the card can never serve it. The card itself is
// looked at for its rating alone: it is not where the views of cards are, one after the other.
func (n *need) of(e *Engine, card *Card, memory int64) (core, mem int64, ok bool) {
	core, mem = n.core, n.mem
	if n.tflops > 0 {
		rating := e.rating(card)
		if rating <= 0 {
			return 0, mem, false
		}
		core = int64(math.Ceil(n.tflops * policy.Whole / rating))
	}
	ok = core <= policy.Whole && mem <= memory
	if n.exclusive {
		core, mem = policy.Whole, memory
	}
	return core, mem, ok
}

// shapeOf finds the pod's request shape, or makes it. Known shapes cost no allocation.
func (e *Engine) shapeOf(pod *Pod) (*shape, error) {
	h := hashPod(pod)
	for _, s := range e.shapes[h] {
		if sameShape(&s.pod, pod) {
			return s, nil
		}
	}
	s, err := e.compile(pod)
	if err != nil {
		return nil, err
	}
	s.hash = h
	e.shapes[h] = append(e.shapes[h], s)
	return s, nil
}

// mostIndexed shapes have an index: some 60 bytes a node would be too much for every shape ever met.
const mostIndexed = 512

// remember that the shape is used, and drop the index of the least recently used one.
func (e *Engine) remember(s *shape) {
	e.asked++
	s.asked = e.asked
	if s.index.built {
		return
	}
	e.indexed = append(e.indexed, s)
	if len(e.indexed) <= mostIndexed {
		return
	}
	oldest := 0
	for i, other := range e.indexed {
		if other.asked < e.indexed[oldest].asked {
			oldest = i
		}
	}
	gone := e.indexed[oldest]
	gone.index = index{}
	e.indexed = slices.Delete(e.indexed, oldest, oldest+1)
	e.unlearn(gone)
}

// unlearn a shape without holdings and index. Inside a transaction it may yet come back.
func (e *Engine) unlearn(s *shape) {
	if s.refs > 0 || s.index.built || len(e.marks) > 0 {
		return
	}
	s.unlearned = true
	e.shapes[s.hash] = slices.DeleteFunc(e.shapes[s.hash], func(other *shape) bool { return other == s })
	if len(e.shapes[s.hash]) == 0 {
		delete(e.shapes, s.hash)
	}
}

func (e *Engine) compile(pod *Pod) (*shape, error) {
	s := &shape{pod: *pod}
	var known bool
	if s.policy, known = e.policies[pod.Policy]; !known {
		var err error
		if s.policy, err = policy.Parse(pod.Policy); err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Key, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pod.Resources)) {
		if value := pod.Resources[name]; value < 0 {
			return nil, fmt.Errorf("pod %s: %w", pod.Key, &RequestError{Problem: "negative " + name})
		} else if value > 0 && name != "pods" {
			s.request.Need = append(s.request.Need, policy.Amount{Resource: e.resource(name), Value: value})
		}
	}
	s.request.Need = append(s.request.Need, policy.Amount{Resource: policy.Pods, Value: 1})
	for i := range pod.Containers {
		r := &pod.Containers[i].Cards
		if err := r.Validate(); err != nil {
			if bad := (*RequestError)(nil); errors.As(err, &bad) {
				bad.Container = pod.Containers[i].Name
			}
			return nil, fmt.Errorf("pod %s: %w", pod.Key, err)
		}
		if r.Count == 0 {
			continue
		}
		n := need{container: i, count: r.Count, core: r.Core, mem: r.Memory, tflops: r.TFLOPS, exclusive: r.Exclusive, space: r.Space}
		for _, m := range r.Models {
			n.models = append(n.models, e.model(m))
		}
		slices.Sort(n.models)
		s.needs = append(s.needs, n)
	}
	s.finish()
	return s, nil
}

func (s *shape) finish() {
	order := make([]int, len(s.needs))
	for i := range order {
		order[i] = i
	}
	// The largest first: what is hard to fit is tried while there is free capacity.
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &s.needs[a], &s.needs[b]
		switch {
		case x.exclusive != y.exclusive:
			return map[bool]int{true: -1, false: 1}[x.exclusive]
		case x.core != y.core:
			return int(y.core - x.core)
		case x.mem != y.mem:
			return int(max(min(y.mem-x.mem, 1), -1))
		}
		return y.count - x.count
	})
	r := &s.request
	whole := true
	for _, i := range order {
		n := &s.needs[i]
		for range n.count {
			s.units = append(s.units, unit{need: i})
		}
		r.Cards += n.count
		if n.exclusive {
			r.Core += int64(n.count) * policy.Whole
		} else {
			r.Core += int64(n.count) * n.core
		}
		whole = whole && (n.exclusive || n.core == policy.Whole)
	}
	switch {
	case r.Cards == 0:
		r.Kind = -1
	case whole:
		r.Kind = min(r.Cards, policy.Kinds-1)
	}
	r.Linked = r.Cards > 1
	s.countable = whole && len(s.needs) <= 1
	s.drawsLots = s.policy.Node.Shuffles() || s.policy.Card.Shuffles()
	s.alone = len(s.needs) == 1 && !s.policy.Card.ReadsOtherCards()
}

// hashPod hashes the request parts of a pod. Maps are summed so that their order does not matter.
func hashPod(p *Pod) uint64 {
	h := hashString(hashSeed, p.Policy)
	h = hashInt(h, uint64(p.Arrange))
	var sum uint64
	for name, value := range p.Resources {
		sum += hashInt(hashString(hashSeed, name), uint64(value))
	}
	for key, value := range p.Selector {
		sum += hashString(hashString(hashSeed+1, key), value)
	}
	h = hashInt(h, sum)
	for i := range p.Containers {
		c := &p.Containers[i].Cards
		h = hashInt(hashInt(hashInt(h, uint64(c.Count)), uint64(c.Core)), uint64(c.Memory))
		h = hashInt(h, math.Float64bits(c.TFLOPS))
		if c.Space {
			h = hashInt(h, 1)
		}
		for _, m := range c.Models {
			h = hashString(h, m)
		}
	}
	for _, term := range p.Affinity {
		h = hashInt(h, uint64(len(term)))
		for _, r := range term {
			h = hashString(hashString(h, r.Key), r.Operator)
			for _, v := range r.Values {
				h = hashString(h, v)
			}
		}
	}
	for _, t := range p.Tolerations {
		h = hashString(hashString(hashString(h, t.Key), t.Value), t.Effect)
	}
	return h
}

const (
	hashSeed  = 14695981039346656037 // FNV-1a
	hashPrime = 1099511628211
)

func hashString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * hashPrime
	}
	return (h ^ 0xff) * hashPrime
}

func hashInt(h, v uint64) uint64 {
	h = (h ^ v) * hashPrime
	return (h ^ v>>32) * hashPrime
}

func sameShape(a, b *Pod) bool {
	return a.Policy == b.Policy && a.Arrange == b.Arrange && a.IgnoresTaints == b.IgnoresTaints &&
		maps.Equal(a.Resources, b.Resources) && maps.Equal(a.Selector, b.Selector) &&
		slices.EqualFunc(a.Containers, b.Containers, sameContainer) &&
		slices.EqualFunc(a.Affinity, b.Affinity, sameTerm) &&
		slices.Equal(a.Tolerations, b.Tolerations)
}

func sameContainer(a, b Container) bool {
	x, y := &a.Cards, &b.Cards
	return x.Count == y.Count && x.Core == y.Core && x.Memory == y.Memory && x.TFLOPS == y.TFLOPS &&
		x.Exclusive == y.Exclusive && x.Space == y.Space && slices.Equal(x.Models, y.Models)
}

func sameTerm(a, b Term) bool {
	return slices.EqualFunc(a, b, func(x, y Requirement) bool {
		return x.Key == y.Key && x.Operator == y.Operator && slices.Equal(x.Values, y.Values)
	})
}

// takesOf reads the takes of a bound pod from its grants. Amounts that the grants leave out are those asked for.
func takesOf(s *shape, pod *Pod, grants []Grant) []take {
	cards := 0
	for _, g := range grants {
		cards += len(g.Cards)
	}
	takes := make([]take, 0, cards)
	for _, g := range grants {
		container := slices.IndexFunc(pod.Containers, func(c Container) bool { return c.Name == g.Container })
		var asked *need
		for i := range s.needs {
			if s.needs[i].container == container {
				asked = &s.needs[i]
			}
		}
		for _, c := range g.Cards {
			t := take{index: c.Index, container: container, core: c.Core, mem: c.Memory, space: asked != nil && asked.space}
			if c.Core == 0 && c.Memory == 0 || asked != nil && asked.exclusive {
				t.need = asked
			}
			takes = append(takes, t)
		}
	}
	return takes
}
