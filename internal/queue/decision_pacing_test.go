package queue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// submitSmall shows n workloads of 200m to the shell at once; the queue has quota for 20.
func (p *harness) submitSmall(n int) {
	var messages []message
	for i := range n {
		wl := p.workload(fmt.Sprintf("small-%d", i), "main", "batch", 1, "200m")
		wl.ResourceVersion = "1"
		messages = append(messages, message{object: wl})
	}
	p.turn(messages)
}

// deciding are the workloads about which a decision is being written.
func (p *harness) deciding() []string {
	var names []string
	for _, w := range p.workloadWrites.waiting {
		if w.paced {
			names = append(names, w.workload.Name)
		}
	}
	return names
}

// endWrite ends the first write that is under way.
func (p *harness) endWrite(err error) {
	sent := p.workloadWrites.waiting[0]
	p.workloadWrites.waiting = p.workloadWrites.waiting[1:]
	r := &writeResult{sent: sent, err: err}
	if err == nil {
		p.version++
		r.written = sent.workload.DeepCopy()
		r.written.ResourceVersion = strconv.Itoa(100 + p.version)
	}
	p.turn([]message{{written: r}})
}

// Decisions are made no faster than they can be written: a more important workload that comes while
// others are being written is next.
func TestDecidesAsItCanBeWritten(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.pacing.writers = 2
	p.submitSmall(20)
	if got := p.deciding(); len(got) != 6 {
		t.Fatalf("with two writers %v are under way", got)
	}
	urgent := p.workload("urgent", "main", "urgent", 9, "2800m")
	urgent.ResourceVersion = "1"
	p.turn([]message{{object: urgent}})
	if got := p.deciding(); len(got) != 6 {
		t.Fatalf("%v are under way although everyone has enough to write", got)
	}
	var order []string
	for len(p.workloadWrites.waiting) > 0 {
		if w := p.workloadWrites.waiting[0]; w.paced {
			order = append(order, w.workload.Name)
		}
		p.endWrite(nil)
	}
	if len(order) != 7 || order[6] != "urgent" {
		t.Errorf("written were %s, want six small ones and then the urgent one, which takes the rest", strings.Join(order, " "))
	}
}

// Without any news but the ends of writes all are written in the end.
func TestPaceLosesNobody(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.pacing.writers = 1
	p.submitSmall(20)
	written := 0
	for ; len(p.workloadWrites.waiting) > 0; p.endWrite(nil) {
		if p.workloadWrites.waiting[0].paced {
			written++
		}
	}
	if written != 20 || p.pacing.underWay != 0 {
		t.Errorf("%d of 20 were admitted, %d are still under way", written, p.pacing.underWay)
	}
}

// A write that the API server rejects again and again does not hold up others.
func TestPaceLeavesOutWhatFails(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.pacing.writers = 1
	p.submitSmall(6)
	if got := p.deciding(); len(got) != 3 {
		t.Fatalf("%v are under way", got)
	}
	for range 3 {
		p.endWrite(apierrors.NewInternalError(errors.New("not today")))
	}
	if got := p.deciding(); len(got) != 2 || got[0] != "small-3" {
		t.Errorf("%v are under way, want the next ones", got)
	}
}
