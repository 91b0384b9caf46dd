package workload_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/randfill"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// quantities that people and programs write, and those at which a number ends.
var quantities = []string{"0", "1", "100m", "1Gi", "-1", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e30", "-1e30", "1n", "8Ei", "16Ei"}

// filled objects have any content that their types hold.
func filled(data []byte) *randfill.Filler {
	return randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(quantities[c.Intn(len(quantities))])
		},
		func(at *metav1.Time, c randfill.Continue) { at.Time = time.Unix(int64(c.Int31()), 0) },
		func(*metav1.FieldsV1, randfill.Continue) {},
	)
}

// Any Workload that the API server may hold becomes one for the engine, without a panic and without an amount that is
// negative or beyond what can be counted.
func FuzzWorkload(f *testing.F) {
	for _, seed := range []string{
		"", "a", "\x01\x80\xff\x00\x10\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
	} {
		f.Add([]byte(seed), "")
	}
	for _, text := range []string{
		`{"spec":{"podSets":[{"name":"main","count":2147483647,"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"1e30"}}}]}}}]}}`,
		`{"spec":{"podSets":[{"name":"main","count":1,"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"-1e30","nvidia.com/gpu":"-5"}}}]}}}]}}`,
		`{"spec":{"podSets":[{"name":"main","count":0}]},"status":{"reclaimablePods":[{"name":"main","count":-7}]}}`,
		`{"status":{"conditions":[{"type":"QuotaReserved","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"QuotaReserved","status":"True"},{"type":"Admitted","status":"True"}],"admission":{"clusterQueue":"q","podSetAssignments":[{"name":"main","count":-1,"resourceUsage":{"cpu":"-1"},"topologyAssignment":{"levels":["a","b"],"slices":[{"domainCount":2000000000,"podCounts":{"individual":[1]},"valuesPerLevel":[{"individual":{"roots":["x"]}}]}]}}]}}}`,
		`{"status":{"admission":{"podSetAssignments":[{"topologyAssignment":{"levels":["a"],"slices":[{"domainCount":-3,"podCounts":{},"valuesPerLevel":[]}]}}]}}}`,
	} {
		f.Add([]byte(nil), text)
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		wl := &kueue.Workload{}
		if text == "" {
			filled(data).Fill(wl)
		} else if json.Unmarshal([]byte(text), wl) != nil {
			return // the API server lets no such text through
		}
		check(t, wl)
	})
}

// counted says whether an amount is one.
func counted(amount int64) bool { return amount >= 0 && amount <= math.MaxInt64/4 }

func check(t *testing.T, wl *kueue.Workload) {
	t.Helper()
	w := workload.ForEngine(wl, nil)
	for _, set := range w.PodSets {
		if set.Count < 0 || set.MinCount < 0 || set.Reclaimable < 0 {
			t.Errorf("pod set %q has %d pods, at least %d, %d of them done", set.Name, set.Count, set.MinCount, set.Reclaimable)
		}
		for _, requests := range []admission.Requests{set.Requests, set.NodeRequests} {
			for name, amount := range requests {
				if !counted(amount) {
					t.Errorf("pod set %q asks for %d of %q", set.Name, amount, name)
				}
			}
		}
	}
	if w.Admission != nil {
		for _, set := range w.Admission.PodSets {
			if set.Count < 0 {
				t.Errorf("pod set %q has %d pods", set.Name, set.Count)
			}
			for name, amount := range set.Usage {
				if !counted(amount) {
					t.Errorf("pod set %q uses %d of %q", set.Name, amount, name)
				}
			}
		}
		workload.ForStatus(w.Admission)
	}
	if wl.Status.Admission != nil {
		for _, set := range wl.Status.Admission.PodSetAssignments {
			domains(t, set.TopologyAssignment)
		}
	}
	now := time.Unix(1<<31, 0)
	workload.NextStep(wl, workload.Queues{}, workload.Settings{}, now)
	workload.GPUClaims(wl)
	workload.UsesResourceClaims(wl)
	workload.PriorityBoost(wl)
}

func domains(t *testing.T, a *kueue.TopologyAssignment) {
	t.Helper()
	if a == nil {
		return
	}
	for _, d := range workload.Domains(a) {
		if d.Count < 0 || len(d.Values) != len(a.Levels) {
			t.Errorf("domain %v of levels %v with %d pods", d.Values, a.Levels, d.Count)
		}
		d.Labels(a.Levels)
		d.Matches(map[string]string{}, a.Levels)
	}
}
