package gpu

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

func fakeClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func TestTop(t *testing.T) {
	held := func(core, memory string) *egpu.PodResource {
		return &egpu.PodResource{Containers: []egpu.ContainerResource{{Resource: corev1.ResourceList{
			egpu.ResourceCore: resource.MustParse(core), egpu.ResourceMemory: resource.MustParse(memory),
		}}}}
	}
	cards, err := read(t.Context(), fakeClient(t,
		&egpu.GPU{
			ObjectMeta: metav1.ObjectMeta{Name: "b-0"}, Spec: egpu.GPUSpec{NodeName: "b", Model: "T4", Memory: 15360},
			Status: egpu.GPUStatus{State: egpu.GPUUnhealthy, Message: "fell off the bus"},
		},
		&egpu.GPU{
			ObjectMeta: metav1.ObjectMeta{Name: "a-10"}, Spec: egpu.GPUSpec{NodeName: "a", Index: 10, Memory: 40960},
			Status: egpu.GPUStatus{State: egpu.GPUReady, Load: &egpu.GPULoad{Core: 71}, Allocated: map[string]*egpu.PodResource{
				"ns/two": held("20", "100"), "ns/one": held("30", "256"),
			}},
		},
		&egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "a-2"}, Spec: egpu.GPUSpec{NodeName: "a", Index: 2, Model: "A100-40G", Memory: 40960}},
	))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	table(cards).Print(output.Writer{Writer: &out}, false)
	want := `
NODE  CARD  MODEL     CORE  MEMORY         LOAD  STATE                        HELD BY
a     2     A100-40G  0%    0/40960 MiB    -     -                            -
a     10    -         50%   356/40960 MiB  71%   Ready                        ns/one (30%, 256 MiB), ns/two (20%, 100 MiB)
b     0     T4        0%    0/15360 MiB    -     Unhealthy: fell off the bus  -
`
	if "\n"+out.String() != want {
		t.Errorf("got\n%s\nwant%s", out.String(), want)
	}
}

func TestTopWithoutCards(t *testing.T) {
	if _, err := read(t.Context(), fakeClient(t)); !errors.Is(err, errNoCards) {
		t.Fatalf("error %v", err)
	}
}
