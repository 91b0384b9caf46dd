package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// explainBackfill says in words, in a queue with backfill whose head is blocked, when the head starts at the latest,
// who passed it, and whether w may; "" elsewhere.
func (e *Engine) explainBackfill(w *workload) string {
	q := w.queue
	if w.phase != phasePending || !q.backfills() || len(q.active) == 0 || !q.active[0].inadmissible {
		return ""
	}
	head := q.active[0].members[0]
	defer e.liftReservation(q.active[0])()
	ended := e.endedBeforeHead(q.tree, head)
	switch {
	case len(ended) == 0 && w == head:
		return "nobody passes it: no end is known of the workloads whose quota it waits for"
	case len(ended) == 0:
		return "nobody passes " + head.spec.String() + ": no end is known of the workloads whose quota that one waits for"
	case w == head:
		return e.explainReservation(q, head, ended)
	}
	return e.explainPassing(w, head, ended)
}

// explainReservation is what the head is told.
func (e *Engine) explainReservation(q *queue, head *workload, ended []ending) string {
	last := ended[len(ended)-1]
	text := fmt.Sprintf("its quota is reserved from %s on, when %s ends at the latest", last.at.UTC().Format(time.RFC3339), last.key)
	if passed := q.passed(head); len(passed) > 0 {
		text += "; started ahead of it, and do not delay it: " + strings.Join(passed, ", ")
	}
	return text
}

// explainPassing is what one behind the head is told.
func (e *Engine) explainPassing(w, head *workload, ended []ending) string {
	start := ended[len(ended)-1].at
	text := fmt.Sprintf("%s is before it, and starts at %s at the latest", head.spec.Key, start.UTC().Format(time.RFC3339))
	a := e.newAssignment()
	defer e.recycle(a)
	switch limit := w.runLimit(); {
	case limit <= 0:
		return text + "; it may not pass, because nobody knows how long it runs"
	case e.passes(w.queue.tree, w, a, head, ended):
		return fmt.Sprintf("%s; it runs for %s at most, and may pass", text, limit)
	default:
		return fmt.Sprintf("%s; it runs for %s at most, and may pass if it fits before that, or beside it", text, limit)
	}
}

// passed are the running workloads of a queue that come after its head in order, at most ten.
func (q *queue) passed(head *workload) []string {
	var list []*workload
	for _, v := range q.quotaReserved {
		if v.phase == phaseReserved && queueOrder(v, head) > 0 {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, queueOrder)
	var names []string
	for _, v := range list[:min(len(list), explainLimit)] {
		names = append(names, v.spec.String())
	}
	return names
}
