package machines

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// runsOnDemand is a workload of ten hours that runs for two of them on a node on demand, since spot nodes were sold out; now they are
// sold again.
func runsOnDemand() *world { return runsOnDemandWith(asking(1, "4", "1")) }

func runsOnDemandWith(wl *kueue.Workload) *world {
	w := newWorld(wl)
	w.moves = 2
	w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(36000))
	w.wl.Annotations = map[string]string{cloudv1.CheckpointAnnotation: "20m"}
	for _, o := range sold()[:2] {
		w.learned.StockOut(o.Place, 1, w.now)
	}
	w.wl.Annotations[cloudv1.DeadlineAnnotation] = noon.Add(10*time.Hour + 12*time.Minute).Format(time.RFC3339) // it cannot wait
	w.step(99)
	w.now = w.now.Add(2 * time.Minute)
	w.register()
	w.step(99)
	w.wl.Annotations[cloudv1.DeadlineAnnotation] = noon.Add(40 * time.Hour).Format(time.RFC3339)
	w.admit()
	w.now = w.now.Add(2 * time.Hour)
	for _, o := range sold()[:2] {
		w.learned.Obtained(o.Place, 1, w.now)
	}
	return w
}

// admit says that the workload is admitted from now on.
func (w *world) admit() {
	w.wl.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)},
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)},
	}
}

// evict says that the workload is evicted to go back to spot nodes, and that its job has stopped or not.
func (w *world) evict(stopped bool) {
	reset(&w.state)
	w.wl.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: cloudv1.ReasonBackToSpot, LastTransitionTime: metav1.NewTime(w.now)},
	}
	w.wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{
		Reason: cloudv1.ReasonBackToSpot, Count: int32(workload.Evictions(w.wl, cloudv1.ReasonBackToSpot) + 1),
	}}}
	if w.phase = holds; stopped {
		w.phase = gone
	}
}

// requeue says that the workload has quota again.
func (w *world) requeue() {
	w.wl.Status.Conditions = nil
	w.phase, w.state = wants, kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}
}

func reset(state *kueue.AdmissionCheckState) {
	*state = kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}
}

// A workload on demand runs on while the spot nodes start that it moves to, is stopped when they are there, and has them when it has
// quota again. Twice at most, as the CloudOffer says.
func TestBackToSpot(t *testing.T) {
	w := runsOnDemand()
	if len(w.bought) != 1 || w.bought[0].Place.Spot || w.state.State != kueue.CheckStateReady {
		t.Fatalf("bought %+v, %+v", w.bought, w.state)
	}
	updates := w.state.PodSetUpdates
	w.step(99)
	if w.state.State != kueue.CheckStateReady || w.live() != 2 || len(w.bought) != 2 || w.bought[1].name("uid") != "elastic-uid-2-0" || !reflect.DeepEqual(w.state.PodSetUpdates, updates) ||
		w.state.Message != "1 node: aws/us-east-1/a p5.24xlarge on demand; moves to spot: 0 of 1 node there: aws/us-east-1/a p5.48xlarge spot" {
		t.Fatalf("%+v, bought %+v", w.state, w.bought)
	}
	w.now = w.now.Add(5 * time.Minute)
	if p, _ := w.step(99); w.live() != 2 || len(p.letGo)+len(p.buy) > 0 || p.again <= 0 || p.again > cloud.LookAgain {
		t.Fatalf("it waits, and does %+v", p)
	}
	w.register()
	w.step(99)
	if w.state.State != kueue.CheckStateRetry || w.live() != 2 ||
		w.state.Message != "BackToSpot: 1 spot node there: aws/us-east-1/a p5.48xlarge spot; about $180 are expected there, and on demand $240; move 1 of 2" {
		t.Fatalf("%+v, %d live", w.state, w.live())
	}
	if !reflect.DeepEqual(w.state.PodSetUpdates, updates) {
		t.Errorf("what its nodes cost is forgotten before the run is accounted for: %+v", w.state)
	}
	w.evict(false)
	if w.step(99); w.live() != 2 {
		t.Fatalf("its pods have not stopped, and their nodes go: %+v", w.claims)
	}
	w.phase = gone
	if w.step(99); w.live() != 1 || !w.claims[0].Place.Spot {
		t.Fatalf("left: %+v", w.claims)
	}
	w.requeue()
	w.wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(int32(100 * 60))
	if w.step(99); len(w.bought) != 2 || w.state.State != kueue.CheckStateReady || w.state.PodSetUpdates[0].NodeSelector[cloudv1.PurchaseLabel] != "uid-2" {
		t.Fatalf("bought %+v, %+v", w.bought, w.state)
	}
	w.admit()
	w.now = w.now.Add(time.Hour)
	if w.step(99); w.state.State != kueue.CheckStateReady || w.live() != 1 {
		t.Errorf("it is on spot, and is stopped: %+v", w.state)
	}
}

// gangOnDemand is a workload as that of runsOnDemand, on four nodes on demand, which moves to two spot nodes.
func gangOnDemand(t *testing.T) *world {
	t.Helper()
	w := runsOnDemandWith(asking(4, "4", "1"))
	if w.step(99); w.state.State != kueue.CheckStateReady || w.live() != 6 {
		t.Fatalf("%+v, %+v", w.state, w.claims)
	}
	return w
}

// Nodes to move to that are refused, lost, late or no longer wanted are given back, all of them, and the workload runs on.
func TestMoveThatComesToNothing(t *testing.T) {
	at := func(w *world, place int, n int) *claim {
		for i := range w.claims {
			if c := &w.claims[i]; c.Place == sold()[place].Place && c.Node == n {
				return c
			}
		}
		t.Fatalf("no node %d at %v", n, sold()[place].Place)
		return nil
	}
	for name, test := range map[string]struct {
		change func(w *world)
		live   int // then: four that it runs on, and those at the next place
	}{
		"one is refused, and the next place sells": {func(w *world) { at(w, 0, 1).deleted = true }, 6},
		"one is refused, and nobody else sells": {func(w *world) {
			at(w, 0, 1).deleted = true
			w.learned.StockOut(sold()[1].Place, 2, w.now)
		}, 4},
		"one is lost while the other starts": {func(w *world) {
			at(w, 0, 0).launched, at(w, 0, 0).registered, at(w, 0, 0).deleted = true, true, true
			w.learned.StockOut(sold()[1].Place, 2, w.now)
		}, 4},
		"they do not come": {func(w *world) {
			w.now = w.now.Add(longestStart)
			w.learned.StockOut(sold()[1].Place, 2, w.now)
		}, 4},
		"the CloudOffer allows no moves any more": {func(w *world) { w.moves = 0 }, 4},
		"they are no longer sold when they come": {func(w *world) {
			w.without = 2
			w.register()
		}, 4},
		"it is nearly done when they come": {func(w *world) {
			w.now = w.now.Add(19 * time.Minute)
			w.register()
			w.wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(int32(36000 - 2*3600 - 21*60))
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := gangOnDemand(t)
			updates := w.state.PodSetUpdates
			test.change(w)
			for range 2 {
				if w.step(99); w.state.State != kueue.CheckStateReady || !reflect.DeepEqual(w.state.PodSetUpdates, updates) || w.live() != test.live {
					t.Errorf("%+v, %d live: %+v", w.state, w.live(), w.claims)
				}
			}
		})
	}
	w := gangOnDemand(t)
	w.now = w.now.Add(longestStart)
	if w.step(99); w.learned.Of(sold()[0].Place).Closed(2, w.now).IsZero() {
		t.Errorf("nodes did not come, and the place is tried again at once: %+v", w.learned.Of(sold()[0].Place))
	}
}

// A workload that ends, is preempted or does not come back in time leaves none of the nodes that it was to move to.
func TestNodesToMoveToAreNotLeft(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"it ends while they start": func(w *world) { w.phase = gone },
		"it is preempted": func(w *world) {
			w.phase = gone
			w.wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPreemption}}
		},
		"it has no quota in time": func(w *world) {
			w.evict(true)
			if w.step(99); w.live() != 2 {
				t.Fatalf("%+v", w.claims)
			}
			w.now = w.now.Add(longestReturn)
		},
		"it is stopped by its owner while it waits for quota": func(w *world) {
			w.evict(true)
			w.wl.Spec.Active = ptr.To(false)
		},
		"it is deleted while it waits for quota": func(w *world) {
			w.evict(true)
			w.wl.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := gangOnDemand(t)
			w.register()
			w.idleFor = time.Hour
			change(w)
			w.step(99)
			if w.live() > 0 || slices.ContainsFunc(w.claims, func(c claim) bool { return c.Place.Spot }) {
				t.Errorf("left: %+v", w.claims)
			}
		})
	}
	w := gangOnDemand(t)
	w.register()
	w.step(99)
	w.evict(false)
	w.now = w.now.Add(longestReturn)
	if w.step(99); w.live() != 4 {
		t.Errorf("its pods do not stop, and both purchases are paid for: %+v", w.claims)
	}
}

func TestStaysOnDemand(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the CloudOffer does not say that it may move": func(w *world) { w.moves = 0 },
		"it has moved often enough": func(w *world) {
			w.wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: cloudv1.ReasonBackToSpot, Count: 2}}}
		},
		"it never saves its work":       func(w *world) { delete(w.wl.Annotations, cloudv1.CheckpointAnnotation) },
		"its checkpoint cannot be read": func(w *world) { w.wl.Annotations[cloudv1.CheckpointAnnotation] = "often" },
		"it has saved nothing yet":      func(w *world) { w.wl.Annotations[cloudv1.CheckpointAnnotation] = "3h" },
		"nobody knows how long it runs": func(w *world) { w.wl.Spec.MaximumExecutionTimeSeconds = nil },
		"its time is up":                func(w *world) { w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(3600)) },
		"it is nearly done":             func(w *world) { w.wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(int32(36000 - 2*3600 - 600)) },
		"it would be late after a loss": func(w *world) {
			w.wl.Annotations[cloudv1.DeadlineAnnotation] = w.now.Add(8*time.Hour + 40*time.Minute).Format(time.RFC3339)
		},
		"neither deadline nor delay price": func(w *world) { w.wl.Annotations = map[string]string{cloudv1.CheckpointAnnotation: "20m"} },
		"it is not admitted":               func(w *world) { w.wl.Status.Conditions = nil },
		"it is a pod, which would end": func(w *world) {
			w.wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod"}}
		},
		"spot nodes are sold out": func(w *world) {
			for _, o := range sold()[:2] {
				w.learned.StockOut(o.Place, 1, w.now)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := runsOnDemand()
			change(w)
			if w.step(99); w.state.State != kueue.CheckStateReady || w.live() != 1 {
				t.Errorf("%+v, %d live", w.state, w.live())
			}
		})
	}
	w := runsOnDemand()
	w.now = w.now.Add(-2*time.Hour + time.Minute)
	if p, _ := w.step(99); p.again <= 0 || p.again > cloud.LookAgain {
		t.Errorf("it is looked at again in %v", p.again)
	}
}

// TestMovesEnd: whatever is sold, refused and lost meanwhile, and whenever the program is killed, a workload is stopped to go back to spot
// nodes at most as often as its CloudOffer says, only while it is on demand, and only for nodes that are all there. It has the nodes that
// it runs on until it is stopped, at most one other attempt beside them, and leaves nothing behind.
func TestMovesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := runsOnDemandWith(asking(int32(rapid.IntRange(1, 4).Draw(t, "pods")), "4", "1"))
		w.moves = rapid.IntRange(0, 3).Draw(t, "moves allowed")
		w.idleFor = time.Duration(rapid.SampledFrom([]int{0, 10}).Draw(t, "minutes idle")) * time.Minute
		w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(72 * 3600))
		w.wl.Annotations[cloudv1.DeadlineAnnotation] = noon.Add(300 * time.Hour).Format(time.RFC3339)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "minutes")) * time.Minute)
			w.isSold(t)
			if rapid.IntRange(0, 2).Draw(t, "it says when it saved") == 0 { // forwards, backwards, of another year, or what is no time
				w.savedAt(w.now.Add(time.Duration(rapid.SampledFrom([]int{0, -1, -5, -19, -60, -6000, 1, 300, -1e6}).Draw(t, "saved")) * time.Minute))
			}
			was := w.state
			_, whole := w.step(rapid.SampledFrom([]int{99, 99, 99, 0, 1, 2}).Draw(t, "writes before it is killed"))
			w.movesAsAllowed(t, &was, whole)
			switch {
			case w.phase != wants:
				w.comesBack(t)
			case w.state.State == kueue.CheckStateRetry && strings.HasPrefix(w.state.Message, cloudv1.ReasonBackToSpot+": "):
				w.evict(rapid.Bool().Draw(t, "its job has stopped"))
			case w.state.State == kueue.CheckStateRetry:
				w.phase = gone
				w.step(99)
				w.requeue()
			case w.state.State == kueue.CheckStateReady && was.State != kueue.CheckStateReady:
				w.admit()
			}
		}
		if moved := workload.Evictions(w.wl, cloudv1.ReasonBackToSpot); moved > w.moves {
			t.Fatalf("%d moves of %d", moved, w.moves)
		}
		w.phase, w.wl.Status.Conditions = gone, nil
		for range 3 {
			w.step(99)
			w.now = w.now.Add(w.idleFor)
		}
		if len(w.claims) > 0 {
			t.Fatalf("left behind: %+v", w.claims)
		}
	})
}

// isSold is what clouds and Karpenter do meanwhile.
func (w *world) isSold(t *rapid.T) {
	for _, o := range sold()[:2] {
		switch rapid.IntRange(0, 3).Draw(t, "what is seen") {
		case 0:
			w.learned.StockOut(o.Place, 1, w.now)
		case 1:
			w.learned.Obtained(o.Place, 1, w.now)
		}
	}
	if rapid.Bool().Draw(t, "nodes are there") {
		w.register()
	}
	if len(w.claims) > 0 && rapid.IntRange(0, 3).Draw(t, "one goes") == 0 {
		w.claims[rapid.IntRange(0, len(w.claims)-1).Draw(t, "which")].deleted = true
	}
}

// comesBack has the job of an evicted workload stop, and the workload have quota again, sooner or later.
func (w *world) comesBack(t *rapid.T) {
	switch {
	case w.phase == holds && rapid.Bool().Draw(t, "its job has stopped"):
		w.phase = gone
	case w.phase == gone && rapid.Bool().Draw(t, "it has quota"):
		w.requeue()
	}
}

// movesAsAllowed checks what must be true after each step.
func (w *world) movesAsAllowed(t *rapid.T, was *kueue.AdmissionCheckState, whole bool) {
	v, attempts := w.view(), map[int]bool{}
	v.state = *was
	for i := range v.claims {
		if c := &v.claims[i]; c.live() && !c.used(v) {
			attempts[c.Attempt] = true
		}
	}
	if most := map[phase]int{wants: 1, holds: 2, gone: 1}[w.phase]; whole && len(attempts) > most { // with holds, the one that its pods run on
		t.Fatalf("nodes of %d attempts beside those that it has: %+v", len(attempts), w.claims)
	}
	if w.phase != wants || was.State != kueue.CheckStateReady {
		return
	}
	if w.state.State == kueue.CheckStateReady && whole && v.lost() != "" {
		t.Fatalf("it runs, and %s: %+v", v.lost(), w.claims)
	}
	if !strings.HasPrefix(w.state.Message, cloudv1.ReasonBackToSpot+": ") {
		return
	}
	there := 0
	for i := range v.claims {
		c := &v.claims[i]
		if c.used(v) && c.Place.Spot {
			t.Fatalf("it was on spot: %+v", w.state)
		}
		if c.live() && !c.used(v) {
			if there++; !c.registered || !c.Place.Spot {
				t.Fatalf("it is stopped for %+v", c)
			}
		}
	}
	if there == 0 || there != v.claims[len(v.claims)-1].Nodes {
		t.Fatalf("it is stopped for %d nodes: %+v", there, w.claims)
	}
}

// What a workload ran before is no part of what it has left: one that has done half of it has time to wait for spot nodes, where
// all of it would have to be bought on demand at once.
func TestWhatIsLeftToRun(t *testing.T) {
	for ran, waits := range map[int32]bool{0: false, 18000: true} {
		w := newWorld(asking(1, "4", "1"))
		w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(36000))
		w.wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(ran)
		w.wl.Annotations = map[string]string{cloudv1.CheckpointAnnotation: "10m", cloudv1.DeadlineAnnotation: noon.Add(9 * time.Hour).Format(time.RFC3339)}
		for _, o := range sold()[:2] {
			w.learned.StockOut(o.Place, 1, w.now)
		}
		if w.step(99); (len(w.bought) == 0) != waits {
			t.Errorf("it ran for %d s before: %+v, bought %+v", ran, w.state, w.bought)
		}
	}
}

// savedAt has the workload's job say that it saved its work.
func (w *world) savedAt(at time.Time) {
	w.wl.Annotations[queuepolicy.CheckpointedAtAnnotation] = at.Format(time.RFC3339)
}

// A job that says when it saves its work has its spot nodes ordered so that they come then, and they wait for it for a while.
func TestBackToSpotAsItSaves(t *testing.T) {
	w := runsOnDemand()
	began := w.now
	w.savedAt(began.Add(-time.Minute))
	if p, _ := w.step(99); w.live() != 1 || p.again <= 0 || p.again > 10*time.Minute {
		t.Fatalf("nodes that start in ten minutes would come ten minutes before it saves: %+v, %+v", w.claims, p)
	}
	w.now = began.Add(11 * time.Minute)
	if w.step(99); w.live() != 2 {
		t.Fatalf("they would come as it saves: %+v", w.state)
	}
	w.now = began.Add(17 * time.Minute)
	w.register()
	p, _ := w.step(99)
	if w.state.State != kueue.CheckStateReady || w.live() != 2 || p.again <= 0 || p.again > 4*time.Minute ||
		w.state.Message != "1 node: aws/us-east-1/a p5.24xlarge on demand; moves to spot when it has saved its work: 1 node there: aws/us-east-1/a p5.48xlarge spot" {
		t.Fatalf("two minutes before it saves: %+v, %+v", w.state, p)
	}
	w.now = began.Add(20 * time.Minute)
	w.savedAt(began.Add(19 * time.Minute))
	if w.step(99); w.state.State != kueue.CheckStateRetry || !strings.HasPrefix(w.state.Message, cloudv1.ReasonBackToSpot+": ") {
		t.Fatalf("it has saved: %+v", w.state)
	}
}

// A job cannot have nodes wait for it by saying again and again that it is about to save its work: after ten minutes they are used, or
// given back.
func TestNodesDoNotWaitForEver(t *testing.T) {
	w := runsOnDemand()
	began := w.now
	w.savedAt(began.Add(-11 * time.Minute))
	w.step(99)
	w.register()
	for m := range 11 {
		w.now = began.Add(time.Duration(m) * time.Minute)
		w.savedAt(w.now.Add(-17 * time.Minute))
		if w.step(99); m < 6 && (w.live() != 2 || w.state.State != kueue.CheckStateReady) {
			t.Fatalf("after %d minutes: %+v", m, w.state)
		}
	}
	if w.live() == 2 && w.state.State == kueue.CheckStateReady {
		t.Fatalf("they still wait: %+v", w.state)
	}
}

// What a job says of a time to come is as if it said nothing.
func TestNothingIsBelievedOfATimeToCome(t *testing.T) {
	silent, ahead := runsOnDemand(), runsOnDemand()
	ahead.savedAt(ahead.now.Add(time.Hour))
	silent.step(99)
	ahead.step(99)
	if !reflect.DeepEqual(silent.state, ahead.state) || silent.live() != ahead.live() || silent.live() != 2 {
		t.Errorf("%+v, and where it says nothing %+v", ahead.state, silent.state)
	}
}

// Jobs are moved unless the CloudOffer says otherwise, and never where nothing is bought here.
func TestMovesOfACloudOffer(t *testing.T) {
	silent, never, thrice, forged, elsewhere := h100(), h100(), h100(), h100(), h100()
	silent.Name, never.Name, thrice.Name, forged.Name, elsewhere.Name = "silent", "never", "thrice", "forged", "elsewhere"
	never.Spec.MovesToSpot, thrice.Spec.MovesToSpot, forged.Spec.MovesToSpot = ptr.To(int32(0)), ptr.To(int32(3)), ptr.To(int32(-1))
	elsewhere.Spec.Via = &cloudv1.Via{Cluster: "east"}
	got := movesToSpot([]cloudv1.CloudOffer{*silent, *never, *thrice, *forged, *elsewhere})
	if want := map[string]int{"silent": 4, "never": 0, "thrice": 3, "forged": 0, "elsewhere": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
