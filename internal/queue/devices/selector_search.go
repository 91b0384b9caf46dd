package devices

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	dracel "k8s.io/dynamic-resource-allocation/cel"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Selectors are programs written by everybody who may create a claim, and each runs once for each
// device. Kubernetes lets one of them cost a million of CEL's units, which is half a second, and a
// claim may have hundreds. So their cost is limited: a small budget is spent in the loop, and longer
// searches run in the background, step by step, one search of each namespace at a time. Only the
// workloads that need the result wait for it.

// What things cost, in CEL's units: two are about a microsecond.
const (
	budgetPerSecond = 100_000   // per second
	initialBudget   = 4_000_000 // ordinary selectors are evaluated before the first decision
	stepCost        = 100_000
	deviceCost      = 20 // to convert a device for CEL
	letterCost      = 20 // to compile
)

// mostSelections and mostCompiled bound the caches: a selector may have 10 KiB, and takes many times
// that when compiled.
const (
	mostSelections = 1024
	mostCompiled   = 128
)

// selection is which devices of a driver, or of all, match some selectors.
type selection struct {
	key       [sha256.Size]byte
	driver    string
	selectors []string

	compiles bool
	wrong    struct{ expression, why string }
	parts    map[*resourceSlice]matched // a version of a slice does not change
}

// Search for the devices that selectors match.
type Search struct {
	of *selection
	// templates that it is made for, all of one namespace.
	templates map[client.ObjectKey]bool

	cel       *compiler
	compiled  []dracel.CompilationResult
	costliest int64 // of these
	wrong     string
	slices    []*resourceSlice // left to look at
	device    int              // of the first of these
	selector  int
	part      matched
	found     map[*resourceSlice]matched
}

// For is a template that it is made for.
func (s *Search) For() client.ObjectKey {
	for template := range s.templates {
		return template
	}
	return client.ObjectKey{}
}

// Step takes the search a step further, and reports whether it has ended.
func (s *Search) Step(ctx context.Context) bool {
	for left := int64(stepCost); left > 0 && !s.ended(); {
		left -= s.next(ctx)
	}
	return s.ended()
}

// maxCost is the most that the next evaluation may cost.
func (s *Search) maxCost() int64 {
	if n := len(s.compiled); n < len(s.of.selectors) {
		return s.cel.cost(s.of.selectors[n])
	}
	return deviceCost + s.costliest
}

// Costly says that even one device takes too long for the loop.
func (s *Search) Costly() bool { return s.maxCost() > budgetPerSecond }

// next compiles a selector, or evaluates one on a device, and returns what that cost.
func (s *Search) next(ctx context.Context) int64 {
	if len(s.compiled) < len(s.of.selectors) {
		cost := s.maxCost()
		s.compile()
		return cost
	}
	return s.evaluate(ctx)
}

func (s *Search) ended() bool {
	return s.wrong != "" || len(s.compiled) == len(s.of.selectors) && len(s.slices) == 0
}

func (s *Search) compile() {
	result := s.cel.compile(s.of.selectors[len(s.compiled)])
	if result.Error != nil {
		s.wrong = result.Error.Detail
		return
	}
	s.compiled = append(s.compiled, result)
	s.costliest = max(s.costliest, int64(min(result.MaxCost, resourceapi.CELSelectorExpressionMaxCost)))
}

// evaluate the next selector on the current device.
func (s *Search) evaluate(ctx context.Context) int64 {
	slice := s.slices[0]
	if s.device == len(slice.Spec.Devices) {
		s.found[slice] = s.part
		s.slices, s.device, s.part = s.slices[1:], 0, matched{}
		return 0
	}
	d := device{slice.Spec.Driver, &slice.Spec.Devices[s.device]}
	if s.selector == len(s.compiled) {
		s.part.devices = append(s.part.devices, d)
		s.nextDevice()
		return 0
	}
	matches, cost, err := d.matches(ctx, &s.compiled[s.selector])
	switch {
	case matches:
		s.selector++
		return cost
	case err != nil && s.part.err == nil:
		s.part.err = err
	}
	s.nextDevice()
	return cost
}

func (s *Search) nextDevice() { s.device, s.selector = s.device+1, 0 }

// SearchInBackground sets a function that takes the steps of searches that are too long for the
// loop; SearchDone is called when they have ended. Without it all searches run in the loop.
func (b *Counter) SearchInBackground(search func(*Search)) {
	b.background, b.budget = search, initialBudget
}

// RefillBudget renews what may be spent on selectors in the loop, once per second.
func (b *Counter) RefillBudget(now time.Time) {
	switch {
	case b == nil || now.Sub(b.refilledAt) < time.Second:
	case b.refilledAt.IsZero():
		b.refilledAt = now
	default:
		b.refilledAt, b.budget = now, budgetPerSecond
	}
}

// search for what selectors match; nil: it is not done yet.
func (b *Counter) search(template client.ObjectKey, driver string, selectors []string) *selection {
	s := b.selection(driver, selectors)
	missing := slices.DeleteFunc(slices.Clone(b.completePools()), func(o *resourceSlice) bool {
		_, known := s.parts[o]
		return known || !o.isOf(driver)
	})
	if s.compiles && len(missing) == 0 || s.wrong.why != "" {
		return s
	}
	waiting := b.searches[template.Namespace]
	if i := slices.IndexFunc(waiting, func(other *Search) bool { return other.of == s }); i >= 0 {
		waiting[i].templates[template] = true
		return nil
	}
	search := &Search{of: s, templates: map[client.ObjectKey]bool{template: true}, cel: b.cel, slices: missing, found: map[*resourceSlice]matched{}}
	for !search.ended() && (b.background == nil || search.maxCost() <= b.budget && !search.Costly()) {
		b.budget -= search.next(context.Background())
	}
	if search.ended() {
		b.addResult(search)
		return s
	}
	b.searches[template.Namespace] = append(waiting, search)
	if len(waiting) == 0 {
		b.background(search)
	}
	return nil
}

func (b *Counter) selection(driver string, selectors []string) *selection {
	key := sha256.Sum256([]byte(strings.Join(append([]string{driver}, selectors...), "\x00")))
	if known, found := b.selections.Get(key); found {
		return known.(*selection)
	}
	s := &selection{key: key, driver: driver, selectors: selectors, parts: map[*resourceSlice]matched{}}
	b.selections.Add(key, s)
	return s
}

// addResult stores what a search has found.
func (b *Counter) addResult(search *Search) {
	s := search.of
	if s.compiles = search.wrong == ""; !s.compiles {
		s.wrong.expression, s.wrong.why = s.selectors[len(search.compiled)], search.wrong
	}
	for slice := range s.parts {
		if b.slices[slice.Name] != slice {
			delete(s.parts, slice)
		}
	}
	for slice, part := range search.found {
		if b.slices[slice.Name] == slice {
			s.parts[slice] = part
		}
	}
	b.selections.Add(s.key, s) // it may have been evicted from the cache
}

// SearchDone handles a search that has ended in the background. The templates it was made for count
// as changed.
func (b *Counter) SearchDone(search *Search) {
	b.addResult(search)
	for template := range search.templates {
		b.changes.template(template)
	}
	namespace := search.For().Namespace
	waiting := slices.DeleteFunc(b.searches[namespace], func(other *Search) bool { return other == search || !b.stillNeeded(other) })
	if b.searches[namespace] = waiting; len(waiting) == 0 {
		delete(b.searches, namespace)
		return
	}
	b.background(waiting[0])
}

// stillNeeded says that a template still exists which a search was made for.
func (b *Counter) stillNeeded(search *Search) bool {
	for template := range search.templates {
		if b.templates[template] != nil {
			return true
		}
	}
	return false
}
