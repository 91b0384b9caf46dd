package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// Events say what Kueue's say.
func TestEvents(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	expect := func(when string, want ...string) {
		t.Helper()
		if got := p.recordedEvents(); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", when, got, want)
		}
	}
	p.submit("low", "main", "batch", 1, "3")
	expect("admitted at once",
		"Normal QuotaReserved Quota reserved in ClusterQueue cq, wait time since queued was 0s",
		"Normal Admitted Admitted by ClusterQueue cq, wait time since reservation was 0s")

	p.submit("high", "main", "urgent", 9, "4")
	message := "Preempted to accommodate a workload (UID: high, JobUID: UNKNOWN) due to prioritization in the ClusterQueue; preemptor path: /cq; preemptee path: /cq"
	priorities := "; preemptor effective priority: 9 (base: 9, boost: 0); preemptee effective priority: 1 (base: 1, boost: 0)"
	got := p.recordedEvents()
	for _, want := range []string{
		"Normal EvictedDueToPreempted " + message,
		"Normal Preempted " + message + priorities,
		"Normal PreemptedWorkload Preempted workload ns/low (UID: low) in ClusterQueue cq" + priorities,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no event of the preemption: %q\nof %q", want, got)
		}
	}
	p.advance(5 * time.Second)
	p.change("low", func(wl *kueue.Workload) { workload.Release(wl, "stopped", p.time) })
	if got, want := p.recordedEvents(), "Normal QuotaReserved Quota reserved in ClusterQueue cq, wait time since queued was 5s"; !slices.Contains(got, want) {
		t.Errorf("no event of the wait: %q\nof %q", want, got)
	}
}

// As in Kueue, every reservation and every admission has its event, under load, too.
func TestNoEventIsLeftOut(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.events = writes.Budget{Most: 100}
	for i := range 4 {
		p.submit(fmt.Sprint("job-", i), "main", "batch", 1, "1")
	}
	got := p.recordedEvents()
	for _, want := range []string{
		"Normal QuotaReserved Quota reserved in ClusterQueue cq, wait time since queued was 0s",
		"Normal Admitted Admitted by ClusterQueue cq, wait time since reservation was 0s",
	} {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(e string) bool { return e != want })); n != 4 {
			t.Errorf("%d of 4 events %q, of %q", n, want, got)
		}
	}
	for series, left := range p.scrape() {
		if strings.HasPrefix(series, "elastic_events_left_out_total") && left != 0 {
			t.Errorf("%s is %v", series, left)
		}
	}
}

// Where the configuration says so, events of reserved quota are left out first under load, then events of admission; events
// of preemption never.
func TestEventsUnderPressure(t *testing.T) {
	p := newHarness(t)
	p.options.LeaveOutEvents = true
	p.oneQueue()
	p.submit("low", "main", "batch", 1, "3")
	p.recordedEvents()
	p.events = writes.Budget{Left: 1, Most: 100}
	p.change("low", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	p.submit("second", "main", "batch", 1, "1")
	p.submit("third", "main", "batch", 1, "3")
	if got := p.recordedEvents(); !slices.Equal(got, []string{"Normal Admitted Admitted by ClusterQueue cq, wait time since reservation was 0s"}) {
		t.Errorf("with a budget for one event: %q", got)
	}
	p.submit("high", "main", "urgent", 9, "4")
	got := p.recordedEvents()
	for _, reason := range []string{"EvictedDueToPreempted", "Preempted", "PreemptedWorkload"} {
		if !slices.ContainsFunc(got, func(e string) bool { return len(e) > len(reason)+8 && e[7:8+len(reason)] == reason+" " }) {
			t.Errorf("no event %s: %q", reason, got)
		}
	}
	if left := p.scrape()["elastic_events_left_out_total{reason=QuotaReserved}"]; left != 2 {
		t.Errorf("%v events about reserved quota were left out, want 2", left)
	}
}

// regarding notes which objects events are about, by reason.
type regarding struct {
	*events.FakeRecorder
	versions map[string][]string
}

func (r *regarding) Eventf(about, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.versions[reason] = append(r.versions[reason], about.(*kueue.Workload).ResourceVersion)
	r.FakeRecorder.Eventf(about, related, kind, reason, action, note, args...)
}

// All preemptions for one workload are one series of events: a series is about one version of an object,
// and the status of the preemptor changes meanwhile.
func TestPreemptionsAreOneSeries(t *testing.T) {
	p := newHarness(t)
	recorder := &regarding{events.NewFakeRecorder(100), map[string][]string{}}
	p.options.Recorder = recorder
	p.oneQueue()
	p.submit("one", "main", "batch", 1, "2")
	p.submit("two", "main", "batch", 1, "2")
	p.submit("high", "main", "urgent", 9, "4")
	if got := recorder.versions["PreemptedWorkload"]; len(got) != 2 || got[0] != got[1] {
		t.Errorf("the events are about the versions %q", got)
	}
	if got := recorder.versions["Preempted"]; len(got) != 2 || got[0] == "" {
		t.Errorf("those of the preempted workloads are about the versions %q", got)
	}
}
