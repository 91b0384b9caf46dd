package migrate

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// What devices count as is added to their pods' requests, and stands in the
// place of the resource that they were asked for by.
func TestDevicesAreAdded(t *testing.T) {
	sets := []admission.PodSet{
		{Name: "driver", Requests: admission.Requests{"cpu": 1000}},
		{Name: "workers", Requests: admission.Requests{"cpu": 1000, "vendor.com/gpu": 2}},
	}
	im := &importer{formats: map[string]resource.Format{}}
	err := im.addDevices(sets, []v1alpha1.Device{
		{PodSet: "driver", Resource: "gpu.memory", Amount: "4Gi"},
		{PodSet: "workers", Resource: "example.com/gpu", Amount: "1"},
		{PodSet: "workers", Resource: "example.com/gpu", Amount: "2", Instead: "vendor.com/gpu"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []admission.Requests{{"cpu": 1000, "gpu.memory": 4 << 30}, {"cpu": 1000, "example.com/gpu": 3}} {
		if !maps.Equal(sets[i].Requests, want) {
			t.Errorf("pods of %s take %v, want %v", sets[i].Name, sets[i].Requests, want)
		}
	}
	if got := im.quantity("gpu.memory", 4<<30) + " " + im.quantity("example.com/gpu", 2000) + " " + im.quantity("cpu", 1500); got != "4Gi 2k 1500m" {
		t.Errorf("amounts are written %s", got)
	}
	if err := im.addDevices(sets, []v1alpha1.Device{{PodSet: "driver", Resource: "gpu.memory", Amount: "much"}}); err == nil {
		t.Error("what is no amount must not be taken for one")
	}
}
