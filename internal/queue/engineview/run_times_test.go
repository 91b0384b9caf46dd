package engineview

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/admission"
)

func likeWorkload(name string, cpu int64) *admission.Workload {
	return &admission.Workload{
		Key: admission.Key{Namespace: "ns", Name: name}, LocalQueue: "main",
		PodSets: []admission.PodSet{{Name: "main", Count: 1, Requests: admission.Requests{"cpu": cpu}}},
	}
}

func TestRunTimesAreLearned(t *testing.T) {
	r := &RunTimes{}
	w := likeWorkload("w", 1)
	for i := range 10 {
		if got := r.Quantile(w, 90); i < enoughRunTimes && got != 0 {
			t.Errorf("%s is learned from %d", got, i)
		}
		r.Ended(likeWorkload(fmt.Sprint(i), 1), time.Duration(i+1)*time.Minute)
	}
	for percent, want := range map[int]time.Duration{1: 64 * time.Second, 50: 320 * time.Second, 90: 640 * time.Second, 100: 640 * time.Second} {
		if got := r.Quantile(w, percent); got != want {
			t.Errorf("%d of 100 take no longer than %s, not %s", percent, got, want)
		}
	}
	if r.Quantile(likeWorkload("w", 2), 90) != 0 || r.Quantile(&admission.Workload{}, 90) != 0 {
		t.Error("another shape learned as well")
	}
	r.Live(w)
	if got := r.Others(w); len(got) != 1 || got[0] != w.Key {
		t.Errorf("not ended: %v", got)
	}
}

// Whatever came and went before, what is learned is that of the workloads which are there.
func TestRunTimesAreThoseOfTheObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, objects := &RunTimes{}, map[string]time.Duration{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			name := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "which"))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				r.Live(likeWorkload(name, 1))
				delete(objects, name)
				r.Gone(admission.Key{Namespace: "ns", Name: name})
			case 1:
				r.Live(likeWorkload(name+"-live", int64(rapid.IntRange(1, 2).Draw(t, "cpu"))))
			default:
				objects[name] = time.Duration(rapid.IntRange(1, 10000).Draw(t, "ran")) * time.Second
				r.Ended(likeWorkload(name, 1), objects[name])
			}
		}
		fresh := &RunTimes{}
		for name, ran := range objects {
			fresh.Ended(likeWorkload(name, 1), ran)
		}
		for _, percent := range []int{1, 50, 90, 100} {
			if a, b := r.Quantile(likeWorkload("x", 1), percent), fresh.Quantile(likeWorkload("x", 1), percent); a != b {
				t.Fatalf("%s, and %s after a restart", a, b)
			}
		}
	})
}
