package admission

import (
	"fmt"
	"slices"
	"strings"
)

// message words a refusal as Kueue does.
func (e *Engine) message(a *assignment) string {
	switch {
	case a.refused.by(ruleBudget):
		return a.over.words()
	case a.refused.by(ruleAdvance):
		return e.reservedWords(a)
	case a.refused.by(ruleGated):
		return preemptionGated
	}
	b := e.scratch.text[:0]
	and := func(s string) {
		if len(b) > 0 {
			b = append(b, s...)
		}
	}
	for misses := a.misses; len(misses) > 0; {
		n := 1
		for n < len(misses) && misses[n].podSet == misses[0].podSet {
			n++
		}
		and("; ")
		b = append(b, "couldn't assign flavors to pod set "...)
		b = append(b, a.shape.podSets[misses[0].podSet].Name...)
		b = append(b, ": "...)
		b = e.appendMisses(b, misses[:n])
		misses = misses[n:]
	}
	if a.failed != nil {
		and("; ")
		b = append(b, a.failed.Reason.Error()...)
	}
	if a.admissible() && a.mode != fit {
		and(". ")
	}
	switch {
	case len(a.victims) > 0:
		b = fmt.Appendf(b, preemptingMessage+"%d workload(s)", len(a.victims))
	case a.mode == deferred:
		b = append(b, deferredMessage...)
	}
	e.scratch.text = b
	return string(b)
}

// appendMisses lists what stood in a pod set's way in order, each once.
func (e *Engine) appendMisses(b []byte, misses []miss) []byte {
	if len(misses) == 1 {
		return e.appendMiss(b, &misses[0])
	}
	parts := make([]string, len(misses))
	for i := range misses {
		parts[i] = string(e.appendMiss(nil, &misses[i]))
	}
	slices.Sort(parts)
	return append(b, strings.Join(slices.Compact(parts), ", ")...)
}

func (e *Engine) appendMiss(b []byte, m *miss) []byte {
	if m.text != "" {
		return append(b, m.text...)
	}
	res, fl := e.resources[m.resource], e.flavors[m.flavor].spec.Name
	words := func(s ...string) {
		for _, s := range s {
			b = append(b, s...)
		}
	}
	if m.reason == ReasonExceedsMaxQuota {
		words("insufficient quota for ", res, " in flavor ", fl, ", previously considered podsets requests (", e.opts.Format(res, m.asked),
			") + current podset request (", e.opts.Format(res, m.amount), ") > maximum capacity (", e.opts.Format(res, m.limit), ")")
		return b
	}
	words("insufficient unused quota for ", res, " in flavor ", fl, ", ", e.opts.Format(res, m.amount), " more needed")
	return b
}

// How the message of a nominated workload ends.
const (
	preemptingMessage = "Pending the preemption of "
	deferredMessage   = "It will fit once evicted workloads have left"
)

// IsNominated says that a message is that of a nominated workload, where its reason does not tell.
func IsNominated(message string) bool {
	i := strings.LastIndex(message, preemptingMessage)
	return strings.HasSuffix(message, deferredMessage) ||
		i >= 0 && strings.HasSuffix(strings.TrimLeft(message[i+len(preemptingMessage):], "0123456789"), " workload(s)")
}

// NotEvaluated is the message of a workload that nothing is known of yet.
const NotEvaluated = "Workload is pending evaluation in the scheduling queue"

// BackingOff is the message of a workload that is not requeued yet.
const BackingOff = "The workload is requeued after its backoff ends"

// preemptionGated is for one that would have to preempt others.
const preemptionGated = "Workload requires preemption, but it's gated"

// equivalentFailed is for a workload like others that did not fit.
const equivalentFailed = "Bypassed scheduling evaluation because an equivalent workload recently failed"

// cannotReturnMessage is for a workload that moved for another one.
const cannotReturnMessage = "It was moved to other nodes for another workload, and does not fit there any more"

// overriddenMessage is for a nominated workload whose quota another one may take.
const overriddenMessage = "Another workload took over the quota that was freed for it"
