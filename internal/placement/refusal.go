package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Reason why a node does not take a pod.
type Reason uint8

const (
	Fits Reason = iota
	NodeUnknown
	NodeUnschedulable
	LabelsDiffer
	Tainted
	FewCPU
	FewMemory
	FewPods
	FewOther
	FewCards
	SharedOtherwise
	CardsDiffer
	CardsUnhealthy
	ReservedElsewhere
	OutsideTopology
	CardsTooFar
	reasons
)

var reasonText = [reasons]string{
	Fits:              "fits",
	NodeUnknown:       "node not known",
	NodeUnschedulable: "node is unschedulable",
	LabelsDiffer:      "node labels do not match",
	Tainted:           "node has a taint the pod does not tolerate",
	FewCPU:            "not enough cpu",
	FewMemory:         "not enough memory",
	FewPods:           "too many pods",
	FewOther:          "not enough of an extended resource",
	FewCards:          "not enough free capacity on cards",
	SharedOtherwise:   "cards are shared in the other way, in time or in space",
	CardsDiffer:       "no card of the wanted model, memory or speed",
	CardsUnhealthy:    "cards are unhealthy",
	ReservedElsewhere: "the gang's reservation is on other nodes",
	OutsideTopology:   "node is outside the topology",
	CardsTooFar:       "no free card of another node is near enough",
}

func (r Reason) String() string { return reasonText[r] }

// RetryOn is a queueing hint: the kinds of events after which a refused pod may fit.
type RetryOn uint8

const (
	OnPodGone RetryOn = 1 << iota
	OnNode
	OnCard
)

// RetryOn says which events could change the answer.
func (r Reason) RetryOn() RetryOn {
	switch r {
	case FewCPU, FewMemory, FewPods, FewOther:
		return OnPodGone | OnNode
	case FewCards, SharedOtherwise, ReservedElsewhere, CardsTooFar:
		return OnPodGone | OnNode | OnCard
	case CardsDiffer, CardsUnhealthy:
		return OnNode | OnCard
	}
	return OnNode
}

// HelpedByPreemption says whether the node could take the pod once others there have been preempted.
func (r Reason) HelpedByPreemption() bool { return FewCPU <= r && r <= SharedOtherwise }

func lacking(resource int) Reason {
	switch resource {
	case policy.CPU:
		return FewCPU
	case policy.Memory:
		return FewMemory
	case policy.Pods:
		return FewPods
	}
	return FewOther
}

// Refusal says why a pod or gang does not fit, in one sentence and in numbers.
type Refusal struct {
	// Fit of Count pods fit before the next one did not.
	Fit, Count int
	// Nodes that refuse the next pod, by reason.
	Nodes [reasons]int
	// Unhealthy cards that would have been considered, as "node/index (what is wrong)", the first few.
	Unhealthy []string
	// Detail is what else there is to say: a topology's domains that were too small, a request that makes no sense.
	Detail  string
	RetryOn RetryOn
}

func (r *Refusal) Error() string {
	var b strings.Builder
	next := "it"
	if r.Count > 1 {
		fmt.Fprintf(&b, "%d of %d pods fit", r.Fit, r.Count)
		next = "the next"
	} else {
		b.WriteString("the pod fits nowhere")
	}
	if r.Detail != "" {
		b.WriteString("; " + r.Detail)
	}
	total := 0
	for _, n := range r.Nodes {
		total += n
	}
	switch {
	case total == 1:
		fmt.Fprintf(&b, "; %s is refused by 1 node", next)
	case total > 1:
		fmt.Fprintf(&b, "; %s is refused by %d nodes", next, total)
	case r.Detail == "":
		b.WriteString("; there are no nodes")
	}
	sep := ": "
	for _, reason := range r.sorted() {
		fmt.Fprintf(&b, "%s%s (%d)", sep, reason, r.Nodes[reason])
		sep = ", "
	}
	if len(r.Unhealthy) > 0 {
		b.WriteString("; unhealthy cards: " + strings.Join(r.Unhealthy, ", "))
	}
	return b.String()
}

// sorted reasons, the most frequent first.
func (r *Refusal) sorted() []Reason {
	var list []Reason
	for reason := range reasons {
		if r.Nodes[reason] > 0 {
			list = append(list, reason)
		}
	}
	slices.SortStableFunc(list, func(a, b Reason) int { return r.Nodes[b] - r.Nodes[a] })
	return list
}

// mostNamed unhealthy cards are named in a refusal.
const mostNamed = 4

// refuse sums up why no node takes the request shape.
func (e *Engine) refuse(s *shape, within []int32) *Refusal {
	x := e.refreshed(s)
	counts := x.counts
	if within != nil {
		counts = [reasons]int{}
		for _, pos := range within {
			counts[x.reasons[pos]]++
		}
	}
	r := &Refusal{Count: 1, Unhealthy: e.unhealthyCards(x, within)}
	r.refusedBy(counts)
	return r
}

// refusedBy these nodes, by reason.
func (r *Refusal) refusedBy(counts [reasons]int) {
	counts[Fits], counts[NodeUnknown] = 0, 0
	r.Nodes = counts
	for reason, n := range counts {
		if n > 0 {
			r.RetryOn |= Reason(reason).RetryOn()
		}
	}
	if r.RetryOn == 0 {
		r.RetryOn = OnNode
	}
}

// unhealthyCards names the first few unhealthy cards on nodes that refuse for want of cards.
func (e *Engine) unhealthyCards(x *index, within []int32) []string {
	if len(e.unhealthy) == 0 {
		return nil
	}
	var names []string
	add := func(n *node) {
		if reason := x.reasons[n.pos]; reason != CardsUnhealthy && reason != FewCards && reason != SharedOtherwise {
			return
		}
		for i := range n.desc.Cards {
			if c := &n.desc.Cards[i]; c.Unhealthy != "" {
				names = append(names, fmt.Sprintf("%s/%d (%s)", n.name, c.Index, c.Unhealthy))
			}
		}
	}
	for _, pos := range within {
		if n := e.nodes[pos]; e.unhealthy[n] {
			add(n)
		}
	}
	if within == nil {
		for n := range e.unhealthy { // sorted below
			add(n)
		}
	}
	slices.Sort(names)
	if more := len(names) - mostNamed; more > 0 {
		names = append(names[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return names
}
