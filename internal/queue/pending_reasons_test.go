package queue

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// A reason whose write meets a newer object is written into that one, whether that is known by then
// or comes later: the engine reports a reason once.
func TestReasonOutlivesAConflict(t *testing.T) {
	for _, known := range []bool{true, false} {
		p := newHarness(t)
		p.oneQueue()
		huge := p.workload("huge", "main", "batch", 1, "1000")
		huge.ResourceVersion = "1"
		p.turn([]message{{object: huge}})
		changed := huge.DeepCopy()
		changed.ResourceVersion, changed.Labels = "2", map[string]string{"by": "another"}
		conflict := apierrors.NewConflict(schema.GroupResource{}, "huge", nil)
		if known {
			p.turn([]message{{object: changed}})
			p.endWrite(conflict)
		} else {
			p.endWrite(conflict)
			p.turn([]message{{object: changed}})
		}
		if len(p.workloadWrites.waiting) != 1 || p.workloadWrites.waiting[0].workload.ResourceVersion != "2" {
			t.Fatalf("newer object known %t: to be written are %+v", known, p.workloadWrites.waiting)
		}
		p.endWrite(nil)
		if len(p.workloadWrites.waiting) != 0 {
			t.Errorf("newer object known %t: written again", known)
		}
	}
}
