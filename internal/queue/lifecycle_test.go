package queue

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

func version(name, resourceVersion string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Name, wl.ResourceVersion = name, resourceVersion
	return wl
}

func TestNewerComparesNumbers(t *testing.T) {
	if newer(version("a", "9"), version("a", "10")) || !newer(version("a", "10"), version("a", "9")) || newer(version("a", "9"), version("a", "9")) {
		t.Error("versions are numbers, not words")
	}
}

func TestAlarms(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key := func(name string) admission.Key { return admission.Key{Name: name} }
	var a timers
	if !a.next().IsZero() {
		t.Error("no alarm is set")
	}
	a.set(key("late"), start.Add(time.Hour))
	a.set(key("moved"), start.Add(time.Second))
	a.set(key("moved"), start.Add(time.Minute))
	a.set(key("off"), start)
	a.set(key("off"), time.Time{})
	if got := a.next(); !got.Equal(start.Add(time.Minute)) {
		t.Errorf("next is %s, want the moved one", got)
	}
	if key, due := a.due(start.Add(time.Second)); due {
		t.Errorf("%s rang although it was moved or switched off", key)
	}
	if got, due := a.due(start.Add(2 * time.Hour)); !due || got != key("moved") {
		t.Errorf("first to ring is %v", got)
	}
	if got, due := a.due(start.Add(2 * time.Hour)); !due || got != key("late") {
		t.Errorf("second to ring is %v", got)
	}
	if got, due := a.due(start.Add(2 * time.Hour)); due {
		t.Errorf("%v rang twice", got)
	}
}
