package machines

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
)

// runsOnDemand is a workload of ten hours that runs for two of them on a node on demand, since spot nodes were sold out; now they are
// sold again.
func runsOnDemand() *world {
	w := newWorld(asking(1, "4", "1"))
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

// A workload on demand is stopped when spot nodes are sold again, has its nodes until its pods have stopped, and buys spot nodes when
// it has quota again. Twice at most, as the CloudOffer says.
func TestBackToSpot(t *testing.T) {
	w := runsOnDemand()
	if len(w.bought) != 1 || w.bought[0].Place.Spot || w.state.State != kueue.CheckStateReady {
		t.Fatalf("bought %+v, %+v", w.bought, w.state)
	}
	w.step(99)
	if w.state.State != kueue.CheckStateRetry || w.live() != 1 || len(w.bought) != 1 ||
		w.state.Message != "BackToSpot: spot nodes are sold: aws/us-east-1/a p5.48xlarge spot; about $200 are expected there, and on demand $240; move 1 of 2" {
		t.Fatalf("%+v, %d live", w.state, w.live())
	}
	if len(w.state.PodSetUpdates) != 1 || w.state.PodSetUpdates[0].Annotations[cloudv1.PriceAnnotation] == "" {
		t.Errorf("what its nodes cost is forgotten before the run is accounted for: %+v", w.state)
	}
	w.phase = gone
	if w.step(99); len(w.claims) > 0 {
		t.Fatalf("left: %+v", w.claims)
	}
	w.wl.Status.Conditions = nil
	w.wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: cloudv1.ReasonBackToSpot, Count: 1}}}
	w.wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(int32(100 * 60))
	w.phase, w.state = wants, kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}
	w.step(99)
	w.register()
	if w.step(99); len(w.bought) != 2 || !w.bought[1].Place.Spot || w.state.State != kueue.CheckStateReady {
		t.Fatalf("bought %+v, %+v", w.bought, w.state)
	}
	w.admit()
	w.now = w.now.Add(time.Hour)
	if w.step(99); w.state.State != kueue.CheckStateReady {
		t.Errorf("it is on spot, and is stopped: %+v", w.state)
	}
}

// Where idle nodes on demand are there still, spot nodes are bought all the same.
func TestBackToSpotFromNodesThatStayIdle(t *testing.T) {
	w := runsOnDemand()
	w.idleFor = time.Hour
	w.step(99)
	w.phase = gone
	if w.step(99); w.idle() != 1 {
		t.Fatalf("%+v", w.claims)
	}
	w.wl.Status.Conditions = nil
	w.phase, w.state = wants, kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}
	if w.step(99); len(w.bought) != 2 || !w.bought[1].Place.Spot {
		t.Errorf("bought %+v, %+v", w.bought, w.state)
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
	if p, _ := w.step(99); p.again <= 0 || p.again > longestLook {
		t.Errorf("it is looked at again in %v", p.again)
	}
}

// TestMovesEnd: whatever is sold and refused meanwhile, and whenever the program is killed, a workload is stopped to go back to spot
// nodes at most as often as its CloudOffer says, and only while it is on demand.
func TestMovesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := runsOnDemand()
		w.moves = rapid.IntRange(0, 3).Draw(t, "moves allowed")
		w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(72 * 3600))
		w.wl.Annotations[cloudv1.DeadlineAnnotation] = noon.Add(300 * time.Hour).Format(time.RFC3339)
		moved := int32(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "minutes")) * time.Minute)
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
			was := w.state
			w.step(rapid.SampledFrom([]int{99, 99, 99, 0, 1, 2}).Draw(t, "writes before it is killed"))
			switch {
			case w.state.State == kueue.CheckStateRetry:
				if strings.HasPrefix(w.state.Message, cloudv1.ReasonBackToSpot+": ") {
					moved++
				}
				if was.State == kueue.CheckStateReady && strings.HasPrefix(w.state.Message, cloudv1.ReasonBackToSpot+": ") && w.bought[len(w.bought)-1].Place.Spot {
					t.Fatalf("it was on spot: %+v", w.state)
				}
				w.phase = gone
				w.step(99)
				w.wl.Status.Conditions = nil
				w.wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: cloudv1.ReasonBackToSpot, Count: moved}}}
				w.phase, w.state = wants, kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStatePending}
			case w.state.State == kueue.CheckStateReady && was.State != kueue.CheckStateReady:
				w.admit()
			}
		}
		if int(moved) > w.moves {
			t.Fatalf("%d moves of %d", moved, w.moves)
		}
	})
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
