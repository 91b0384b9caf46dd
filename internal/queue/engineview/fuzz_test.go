package engineview_test

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/randfill"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// objects of one small cluster, as the API server may hold them.
type objects struct {
	Cohort       kueue.Cohort
	ClusterQueue kueue.ClusterQueue
	LocalQueue   kueue.LocalQueue
	Flavor       kueue.ResourceFlavor
	Workload     kueue.Workload
}

// FuzzObjects gives arbitrary queues, flavors and a workload of theirs to the engine: it decides, without a panic, and
// admits nothing for less than nothing.
func FuzzObjects(f *testing.F) {
	quantities := []string{"0", "1", "100m", "10", "1Gi", "-1", "9223372036854775807", "1e30", "-1e30"}
	for _, seed := range []string{"", "a", "\x01\x80\xff\x00\x10\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"} {
		f.Add([]byte(seed), "")
	}
	for _, text := range []string{
		`{"ClusterQueue":{"spec":{"namespaceSelector":{},"resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[{"name":"cpu","nominalQuota":"1e30","borrowingLimit":"-1","lendingLimit":"1e30"}]}]}]}},
		  "Workload":{"spec":{"podSets":[{"name":"main","count":2147483647,"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"9223372036854775807"}}}]}}}]}}}`,
		`{"ClusterQueue":{"spec":{"namespaceSelector":{},"cohortName":"c","resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[{"name":"cpu","nominalQuota":"-5"}]},{"name":"f"}]},{"coveredResources":["cpu"]}]}},
		  "Cohort":{"spec":{"parentName":"c","fairSharing":{"weight":"-1"}}},
		  "Workload":{"spec":{"podSets":[{"name":"main","count":1,"minCount":-3,"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"-1"}}}]}}},{"name":"main","count":0}]}}}`,
	} {
		f.Add([]byte(nil), text)
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		o := &objects{}
		if text == "" {
			randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
				func(q *resource.Quantity, c randfill.Continue) {
					*q = resource.MustParse(quantities[c.Intn(len(quantities))])
				},
				func(at *metav1.Time, c randfill.Continue) { at.Time = time.Unix(int64(c.Int31()), 0) },
				func(*metav1.FieldsV1, randfill.Continue) {},
			).Fill(o)
		} else if json.Unmarshal([]byte(text), o) != nil {
			return // the API server lets no such text through
		}
		decide(t, o)
	})
}

// decide with the objects under the names that they have towards each other; the rest of them is as it came.
func decide(t *testing.T, o *objects) {
	t.Helper()
	o.Cohort.Name, o.ClusterQueue.Name, o.Flavor.Name = "c", "q", "f"
	o.LocalQueue.Namespace, o.LocalQueue.Name, o.LocalQueue.Spec.ClusterQueue = "team", "main", "q"
	o.Workload.Namespace, o.Workload.Name, o.Workload.Spec.QueueName = "team", "w", "main"
	known := engineview.NewObjects()
	known.Set(&o.Flavor, false)
	known.Set(&o.Cohort, false)
	known.Set(&o.ClusterQueue, false)
	known.Set(&o.LocalQueue, false)
	engine := admission.New(admission.Options{})
	engine.Apply(admission.NamespaceChanged{Name: "team"})
	for _, obj := range []any{&o.Flavor, &o.Cohort} {
		engine.Apply(engineview.ChangedEvent(obj))
	}
	engine.Apply(admission.QueueChanged{Queue: known.Queue(&o.ClusterQueue)})
	engine.Apply(engineview.ChangedEvent(&o.LocalQueue))
	engine.Apply(admission.WorkloadChanged{Workload: workload.ForEngine(&o.Workload, nil)})
	plan := engine.Decide(time.Unix(1<<31, 0))
	for _, p := range plan.Panics {
		t.Errorf("panic: %s\n%s", p.Value, p.Stack)
	}
	for _, a := range plan.Admit {
		for _, set := range a.Admission.PodSets {
			for name, amount := range set.Usage {
				if amount < 0 {
					t.Errorf("admitted with %d of %q", amount, name)
				}
			}
		}
	}
	known.InactiveReason(&o.ClusterQueue)
	known.ActiveCondition(&o.ClusterQueue)
	known.QueuesOf(&o.Workload)
	known.CohortPath("c")
}
