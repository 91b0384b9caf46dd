package queue

import (
	"testing"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

func TestPendingReasons(t *testing.T) {
	pending := func(name, message string) admission.Pending {
		return admission.Pending{Workload: admission.Key{Namespace: "ns", Name: name}, Message: message}
	}
	r := newPendingReasons()
	r.budget = writes.Budget{Left: 2, Most: 2, PerSecond: 1, PerIdleSecond: 1}
	r.add(pending("a", "old"))
	r.add(pending("b", "admitted meanwhile"))
	r.add(pending("c", "third"))
	r.add(pending("d", "fourth"))
	r.add(pending("a", "new"))
	r.drop(admission.Key{Namespace: "ns", Name: "b"})
	var written []string
	for p, ok := r.pop(); ok; p, ok = r.pop() {
		written = append(written, p.Message)
	}
	if len(written) != 2 || written[0] != "new" || written[1] != "third" {
		t.Errorf("written %v, want the newest word of each, in order, two of them", written)
	}
	if r.next().IsZero() {
		t.Error("one reason is not written yet")
	}
	r.budget.Left = 1
	if p, ok := r.pop(); !ok || p.Message != "fourth" || !r.next().IsZero() {
		t.Errorf("then written %v", p)
	}
}
