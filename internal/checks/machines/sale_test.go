package machines

import (
	"testing"
	"time"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// saleIsKnown checks that nodes which were all sold count as sold, though they have not started yet.
func (w *world) saleIsKnown(t *rapid.T, mine []claim) {
	var sold time.Time
	var place cloud.Place
	for i := range mine {
		c := &mine[i]
		switch {
		case !c.live():
		case !c.launched || w.live() < c.Nodes:
			return
		case !c.adopted(w.wl.UID) && c.launchedAt.After(sold):
			sold, place = c.launchedAt, c.Place
		}
	}
	seen := w.learned.Of(place)
	if !sold.IsZero() && (seen == nil || seen.At.Before(sold)) {
		t.Fatalf("nodes were sold at %v, and what is known of the place is %+v: %+v", sold, seen, mine)
	}
}

// A sale opens a place for others as soon as all nodes are sold, and not a start-up later. What is seen of the place after the sale counts
// more, however often that sale is looked at.
func TestSaleIsLearnedBeforeTheStart(t *testing.T) {
	w := newWorld(asking(2, "8", "1"))
	w.step(99)
	place := w.claims[0].Place
	w.learned.StockOut(place, 9, w.now)
	w.now = w.now.Add(20 * time.Second)
	w.claims[0].launched, w.claims[0].launchedAt = true, w.now
	if w.step(99); w.learned.Of(place).Obtainable {
		t.Error("one of two is sold, and the other may be refused")
	}
	w.claims[1].launched, w.claims[1].launchedAt = true, w.now
	if w.step(99); !w.learned.Of(place).Obtainable || w.state.State != kueue.CheckStatePending {
		t.Fatalf("%+v, %+v", w.learned.Of(place), w.state)
	}
	if p, _ := w.step(99); len(p.counted) > 0 {
		t.Error("one sale is counted twice")
	}
	w.now = w.now.Add(20 * time.Second)
	w.learned.StockOut(place, 9, w.now)
	if w.step(99); w.learned.Of(place).Obtainable {
		t.Error("others were refused since")
	}
	w.register()
	if w.step(99); w.state.State != kueue.CheckStateReady || w.learned.Of(place).StartUpHours == 0 {
		t.Errorf("%+v, %+v", w.state, w.learned.Of(place))
	}
}
