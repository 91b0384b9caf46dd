package inbox_test

import (
	"context"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/inbox"
)

type message struct {
	object client.Object
	gone   bool
	note   string
}

func workload(name, version string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Name, wl.ResourceVersion = name, version
	return wl
}

func TestKeepsTheNewestInThePlaceOfTheFirst(t *testing.T) {
	b := inbox.New(func(m message) client.Object { return m.object })
	b.Put(message{object: workload("a", "1")})
	b.Put(message{object: workload("b", "2")})
	b.Put(message{note: "a note"})
	b.Put(message{object: workload("a", "3"), gone: true})
	cq := &kueue.ClusterQueue{}
	cq.Name = "a" // another kind of the same name is another object
	b.Put(message{object: cq})
	got, err := b.Take(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0].object.GetResourceVersion() != "3" || !got[0].gone || got[1].object.GetName() != "b" || got[2].note == "" || got[3].object != cq {
		t.Fatalf("took %+v", got)
	}
	b.Put(message{object: workload("a", "4")})
	if got, _ = b.Take(t.Context(), time.Time{}); len(got) != 1 || got[0].object.GetResourceVersion() != "4" {
		t.Fatalf("what was taken must not come back: %+v", got)
	}
}

func TestWakesForATimeAndForTheEnd(t *testing.T) {
	b := inbox.New(func(m message) client.Object { return m.object })
	if got, err := b.Take(t.Context(), time.Now()); err != nil || len(got) != 0 {
		t.Fatalf("at its time take returns with nothing: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Take(ctx, time.Time{}); err == nil {
		t.Fatal("take must end with its context")
	}
}
