package admission

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Flavors whose nodes are bought have a price. Among flavors that Kueue's rules leave the choice between, the one that
// is expected to cost the workload least goes first: flavors are tried in the order of cost, and not as written. Those
// without a price are there anyway and cost nothing more; those whose nodes cannot be had now come last. Without prices
// the order is Kueue's.

// FlavorPrice is what nodes of a flavor cost, and how they fare.
type FlavorPrice struct {
	Flavor   string
	Resource string  // that the price is for
	Price    float64 // of one unit of it, as quota counts it, for an hour
	StartUp  time.Duration
	LossRate float64 // how often an hour a node is taken away
	// ClosedUntil is when its nodes may be had again; zero: now.
	ClosedUntil time.Time
	// Unknown says that nodes are bought, and not for how much: as if they could not be had.
	Unknown bool
	// Spot says that only spot nodes are sold. Their check waits for them where a deadline allows it, and hands the workload over to
	// another flavor in time.
	Spot bool
	// Largest are nodes of which none has less of everything than another that is sold: what pods may ask of each, of the resources
	// that are known. A pod that asks for more than any of them has does not fit on the flavor. None: any pod does.
	Largest []Requests
	// Regions are where its nodes are sold and can be had: of each region the cheapest of each size. A workload takes the one
	// that costs it least. Without them Price, StartUp and LossRate are those of every node, of any size.
	Regions []RegionPrice
	// OtherRegion and OtherCloud are what a GiB of input costs that lies in another region of a cloud, or in another cloud.
	OtherRegion, OtherCloud float64
}

// RegionPrice is what nodes of one size cost in one region, and how they fare.
type RegionPrice struct {
	Cloud, Region string
	Price         float64 // of one unit, as in FlavorPrice
	Size          float64 // how many units a node has, of which all are paid for; 0: any
	StartUp       time.Duration
	LossRate      float64
}

type (
	// FlavorPriceChanged describes a new or changed price of a flavor.
	FlavorPriceChanged struct{ Price FlavorPrice }
	// FlavorPriceGone says that a flavor has no price any more.
	FlavorPriceGone struct{ Flavor string }
)

// unknownRunTime is assumed of workloads of which nothing is known.
const unknownRunTime = time.Hour

func (ev FlavorPriceChanged) apply(e *Engine) {
	p := ev.Price
	p.Price, p.LossRate, p.StartUp = atLeastZero(p.Price), atLeastZero(p.LossRate), max(0, p.StartUp)
	p.OtherRegion, p.OtherCloud = atLeastZero(p.OtherRegion), atLeastZero(p.OtherCloud)
	p.Regions, p.Largest = slices.Clone(p.Regions), slices.Clone(p.Largest)
	for i := range p.Regions {
		r := &p.Regions[i]
		r.Price, r.LossRate, r.StartUp, r.Size = atLeastZero(r.Price), atLeastZero(r.LossRate), max(0, r.StartUp), atLeastZero(r.Size)
	}
	e.setPrice(e.flavor(p.Flavor), &p)
}

func (ev FlavorPriceGone) apply(e *Engine) {
	if i, ok := e.flavorIndex[ev.Flavor]; ok {
		e.setPrice(i, nil)
	}
}

// atLeastZero is 0 for what is no number.
func atLeastZero(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func (e *Engine) setPrice(i int32, p *FlavorPrice) {
	f := e.flavors[i]
	if reflect.DeepEqual(p, f.price) {
		return
	}
	before, was := e.priced, f.price
	switch {
	case f.price == nil:
		e.priced++
	case p == nil:
		e.priced--
	}
	f.price = p
	if p != nil && !p.ClosedUntil.IsZero() {
		e.timers.Push(timer{at: p.ClosedUntil, f: f})
	}
	if (before > 0) != (e.priced > 0) { // run times tell classes apart now, or no longer
		for _, q := range e.queues { // each queue on its own; the order does not matter
			e.requeueMembers(q, true)
		}
	}
	if !reflect.DeepEqual(was.largest(), p.largest()) {
		e.nodesChanged(i)
	}
	e.flavorOrderChanged(f)
}

func (p *FlavorPrice) largest() []Requests {
	if p == nil {
		return nil
	}
	return p.Largest
}

// holds says whether a node that is sold has what a pod asks for: "" or why not.
func (p *FlavorPrice) holds(pod Requests) string {
	largest := p.largest()
	if len(largest) == 0 || slices.ContainsFunc(largest, func(node Requests) bool { return node.lacks(pod) == "" }) {
		return ""
	}
	short := largest[0].lacks(pod)
	for _, node := range largest[1:] {
		if node.lacks(pod) != short {
			return "no node that is bought for flavor " + p.Flavor + " has all that a pod asks for"
		}
	}
	return "a pod asks for more " + short + " than any node has that is bought for flavor " + p.Flavor
}

// lacks is a resource of which a pod asks for more than a node has; "": none.
func (node Requests) lacks(pod Requests) string {
	short := ""
	for resource, has := range node { // the order does not matter: of several, the first by name
		if pod[resource] > max(0, has) && (short == "" || resource < short) {
			short = resource
		}
	}
	return short
}

// flavorOrderChanged looks again at all that chose between a flavor and others.
func (e *Engine) flavorOrderChanged(f *flavor) {
	i := e.flavorIndex[f.spec.Name]
	for _, q := range e.queues { // each queue on its own; the order does not matter
		if q.choice && q.usesFlavor(i) {
			q.tree.dropNominations(e)
			q.requeueAll(e)
		}
	}
}

// flavorOrder is the order in which the flavors of a group are tried for a workload; nil: as written.
func (e *Engine) flavorOrder(a *assignment, g int, grp *group, total []podRequest) []int {
	if e.priced == 0 || len(grp.flavors) < 2 || !e.hasPrices(grp) {
		return nil
	}
	order := make([]int, len(grp.flavors))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		x, y := e.flavors[grp.flavors[i].flavor], e.flavors[grp.flavors[j].flavor]
		of, than := e.costOn(a, g, x, total), e.costOn(a, g, y, total)
		last := func(f *flavor, c cost) bool { return f.closed(e.at) || c.none || a.w.spec.HandedOver && f.spot() }
		return cmp.Or(compareBools(last(x, of), last(y, than)), cmp.Compare(of.sum(), than.sum()))
	})
	if a.w.spec.Waits && !a.w.spec.HandedOver {
		e.spotFirst(a, g, grp, total, order)
	}
	return order
}

// spotFirst moves flavors to the front whose spot nodes cannot be had now, where the first one is on demand and costs more: when to wait
// for spot, and until when, is for the check of such a flavor to say.
func (e *Engine) spotFirst(a *assignment, g int, grp *group, total []podRequest, order []int) {
	first := e.flavors[grp.flavors[order[0]].flavor]
	least := e.costOn(a, g, first, total)
	if first.price == nil || first.spot() || first.price.LossRate > 0 || first.closed(e.at) || least.none {
		return
	}
	waitedFor := func(i int) bool {
		f := e.flavors[grp.flavors[i].flavor]
		c := e.costOn(a, g, f, total)
		return f.spot() && !f.price.Unknown && f.closed(e.at) && !c.none && c.sum() < least.sum()
	}
	slices.SortStableFunc(order, func(i, j int) int { return compareBools(!waitedFor(i), !waitedFor(j)) })
}

// spot says that a flavor sells spot nodes alone.
func (f *flavor) spot() bool { return f.price != nil && f.price.Spot }

// hasPrices says that a flavor of a group has a price.
func (e *Engine) hasPrices(grp *group) bool {
	return slices.ContainsFunc(grp.flavors, func(f groupFlavor) bool { return e.flavors[f.flavor].price != nil })
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (f *flavor) closed(at time.Time) bool {
	return f.price != nil && (f.price.Unknown || f.price.ClosedUntil.After(at))
}

// cost is what a workload is expected to cost, and why. Time is paid for by nobody: it is what that is worth to the workload.
type cost struct {
	nodes, input, time float64
	none               bool // no node that can be had now holds its largest pod
}

func (c cost) sum() float64 { return c.nodes + c.input + c.time }

// costOn is what a group of a workload's pod sets is expected to cost on a flavor, on the nodes and in the region where that is least.
func (e *Engine) costOn(a *assignment, g int, f *flavor, total []podRequest) (least cost) {
	w, p := a.w, f.price
	if p == nil {
		return cost{}
	}
	resource, known := e.resourceIndex[p.Resource]
	i := slices.IndexFunc(total, func(t podRequest) bool { return t.resource == resource })
	if !known || i < 0 {
		return cost{}
	}
	amount := float64(total[i].v)
	if len(p.Regions) == 0 {
		return w.spec.costIn(amount, &RegionPrice{Price: p.Price, StartUp: p.StartUp, LossRate: p.LossRate}, 0)
	}
	pod := a.shape.largestPod(g, resource)
	for i := range p.Regions {
		r, bring := &p.Regions[i], 0.0
		if w.spec.Input.given() {
			bring = w.spec.Input.GiB * p.perGiB(&w.spec.Input, r)
		}
		c := w.spec.costIn(amount, r, bring)
		c.none = r.Size > 0 && float64(pod) > r.Size
		if i == 0 || compareBools(c.none, least.none) < 0 || c.none == least.none && c.sum() < least.sum() {
			least = c
		}
	}
	return least
}

// largestPod is how much of a resource the pod of a group asks for that asks for most.
func (s *requestShape) largestPod(g int, resource int32) (most int64) {
	for _, id := range s.groups[g] {
		for _, r := range s.requests[id] {
			if r.resource == resource {
				most = max(most, r.v)
			}
		}
	}
	return most
}

// costIn a region: nodes × price × (run time + start-up + losses × (start-up + half of what it runs between two times that it
// saves its work)), its input at each start, and what that time is worth beyond its run time, which it takes anywhere.
func (s *Workload) costIn(amount float64, r *RegionPrice, bring float64) cost {
	run, start := s.expectedRunTime().Hours(), r.StartUp.Hours()
	lost := run
	if s.CheckpointInterval > 0 {
		lost = min(run, s.CheckpointInterval.Hours())
	}
	losses := run * r.LossRate
	more := start + losses*(start+lost/2)
	return cost{nodes: r.bought(amount) * r.Price * (run + more), input: bring * (1 + losses), time: atLeastZero(s.DelayPrice) * more}
}

// bought is how many units whole nodes have that have so many together.
func (r *RegionPrice) bought(amount float64) float64 {
	if r.Size <= 0 {
		return amount
	}
	const rounding = 1e-9 // sizes may be parts of a card
	return max(amount, math.Ceil(amount/r.Size-rounding)*r.Size)
}

// given says that a workload has an input, of which it says where it lies.
func (in *Input) given() bool { return in.Cloud != "" && atLeastZero(in.GiB) > 0 }

// perGiB is what a GiB of an input costs in a region; nothing where it lies there.
func (p *FlavorPrice) perGiB(in *Input, r *RegionPrice) float64 {
	switch {
	case in.Cloud != r.Cloud:
		return p.OtherCloud
	case in.Region != r.Region:
		return p.OtherRegion
	}
	return 0
}

// costOf is what is expected to be paid for an assignment; known is false where none of its flavors has a price, or one has a
// price that nobody knows.
// The input is brought to each flavor once.
func (e *Engine) costOf(a *assignment) (sum float64, known bool) {
	var brought []*flavor
	for g := range a.shape.groups {
		total := e.groupTotal(a, g)
		for _, t := range total {
			f := e.assigned(a, g, t.resource)
			switch {
			case f == nil || f.price == nil || f.price.Resource != e.resources[t.resource] && !f.price.Unknown:
			case f.price.Unknown:
				return 0, false
			default:
				c := e.costOn(a, g, f, total)
				if !slices.Contains(brought, f) {
					sum, brought = sum+c.input, append(brought, f)
				}
				sum, known = sum+c.nodes, true
			}
		}
	}
	return sum, known
}

// assigned is the flavor that a group of pod sets gets a resource of; nil: none.
func (e *Engine) assigned(a *assignment, g int, resource int32) *flavor {
	for _, id := range a.shape.groups[g] {
		for j, r := range a.shape.requests[id] {
			if r.resource == resource && j < len(a.flavors[id]) && a.flavors[id][j] >= 0 {
				return e.flavors[a.flavors[id][j]]
			}
		}
	}
	return nil
}

// expectedRunTime is how long it will most likely run.
func (s *Workload) expectedRunTime() time.Duration {
	switch declared := s.declaredRunTime(); {
	case s.ExpectedRunTime > 0:
		return s.ExpectedRunTime
	case declared > 0:
		return declared
	}
	return unknownRunTime
}

// explainCost says in words what flavors are expected to cost, in the order in which they are tried, where they have prices.
func (e *Engine) explainCost(w *workload) string {
	if e.priced == 0 {
		return ""
	}
	a := e.newAssignment()
	defer e.recycle(a)
	a.reset(w, w.shape(), asIs)
	var groups []string
	for g := range a.shape.groups {
		total := e.groupTotal(a, g)
		for i := range w.queue.groups {
			grp := &w.queue.groups[i]
			if !e.hasPrices(grp) || !asksFor(grp, total) {
				continue
			}
			order := e.flavorOrder(a, g, grp, total)
			if order == nil {
				order = []int{0} // there is no other
			}
			groups = append(groups, e.costText(a, g, grp, order, total))
		}
	}
	return strings.Join(slices.Compact(groups), "; ")
}

func asksFor(grp *group, total []podRequest) bool {
	return slices.ContainsFunc(total, func(t podRequest) bool { return t.v > 0 && slices.Contains(grp.resources, t.resource) })
}

func (e *Engine) costText(a *assignment, g int, grp *group, order []int, total []podRequest) string {
	w := a.w
	var parts []string
	for _, i := range order {
		f := e.flavors[grp.flavors[i].flavor]
		c := e.costOn(a, g, f, total)
		part := fmt.Sprintf("%s %.2f", f.spec.Name, c.nodes+c.input)
		if c.input > 0 {
			part += fmt.Sprintf(", of it %.2f for its input", c.input)
		}
		if c.time > 0 {
			part += fmt.Sprintf(", and a delay worth %.2f", c.time)
		}
		switch {
		case f.price != nil && f.price.Unknown:
			part = f.spec.Name + " (its price is not known)"
		case f.closed(e.at):
			part += " (not to be had until " + f.price.ClosedUntil.UTC().Format(time.RFC3339) + ")"
		case c.none:
			part += " (no node that can be had now is large enough)"
		}
		parts = append(parts, part)
	}
	what := "expected cost"
	if len(order) > 1 {
		what = "flavors in the order of expected cost"
	}
	between := ", "
	if w.spec.Input.given() || w.spec.DelayPrice > 0 {
		between = "; "
	}
	return fmt.Sprintf("%s for %s: %s", what, w.spec.expectedRunTime(), strings.Join(parts, between)) + e.unknownRegion(&w.spec.Input, grp)
}

// unknownRegion says in words that nothing is sold where an input lies: a slip, or it has to be brought wherever the workload runs.
func (e *Engine) unknownRegion(in *Input, grp *group) string {
	sold := slices.ContainsFunc(grp.flavors, func(f groupFlavor) bool {
		p := e.flavors[f.flavor].price
		return p != nil && slices.ContainsFunc(p.Regions, func(r RegionPrice) bool { return r.Cloud == in.Cloud && r.Region == in.Region })
	})
	if !in.given() || sold {
		return ""
	}
	return fmt.Sprintf("; none of them has nodes in %s/%s, where its input is", in.Cloud, in.Region)
}
