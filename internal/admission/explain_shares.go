package admission

import (
	"fmt"
	"math"
	"strings"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// explainShares says in words which share of its Cohort a workload's queue would have with it, and those that others who
// wait have, where the tree goes by shares; "" elsewhere.
func (e *Engine) explainShares(w *workload, usage []quota.Amount) string {
	n, t := w.queue.at, w.queue.tree
	if len(usage) == 0 {
		usage = w.class.fixedUsage
	}
	if t.policy == PolicyFIFO || n.Parent == nil || len(usage) == 0 {
		return ""
	}
	of := "what is borrowed"
	if t.policy == PolicyMaxMin {
		of = "all that is used"
	}
	mark := e.tx.Checkpoint()
	e.tx.Add(w.queue.node, usage, quota.Future)
	var with []string
	for at := n.Node; at.Parent != nil; at = at.Parent {
		with = append(with, at.Name+" would have "+shareWords(e.share(t, at)))
	}
	e.tx.Rollback(mark)
	text := "the smallest share of " + of + " goes first: with it " + strings.Join(with, ", ")
	others := 0
	for _, o := range t.at(n.Parent).below {
		if o == n || !o.waits() {
			continue
		}
		if others++; others > explainLimit {
			break
		}
		text += fmt.Sprintf("; %s, where others wait, has %s", o.Name, shareWords(e.share(t, o.Node)))
	}
	return text
}

// shareWords are thousandths, as in the statuses of queues.
func shareWords(s quota.Share) string {
	if math.IsInf(s.Value(), 1) {
		return "more than any, since it borrows on no weight"
	}
	return fmt.Sprintf("%.0f thousandths", s.Value())
}

// waits says that somebody waits below.
func (n *treeNode) waits() bool {
	if n.queue != nil {
		return len(n.queue.classes)+len(n.queue.nominated) > 0
	}
	for _, below := range n.below {
		if below.waits() {
			return true
		}
	}
	return false
}
