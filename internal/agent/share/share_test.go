package share_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

var cards = []discovery.Card{
	{Index: 0, UUID: "GPU-0", Model: "A100-40G", MemoryMB: 40960},
	{Index: 1, UUID: "GPU-1", Model: "A100-40G", MemoryMB: 40960},
}

func quantities(pairs map[corev1.ResourceName]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, value := range pairs {
		list[name] = resource.MustParse(value)
	}
	return list
}

func pod(annotations map[string]string, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "u", Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
}

// gpu is a card's object, with what the scheduler recorded for the pod: percent and MiB of the container main.
func gpu(index int, uid types.UID, core, memory int64) egpu.GPU {
	g := egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n-", index)}, Spec: egpu.GPUSpec{Index: index, NodeName: "n", Memory: 40960}}
	if uid != "" {
		g.Status.Allocated = map[string]*egpu.PodResource{"team/p": {Namespace: "team", Pod: "p", UID: uid, Containers: []egpu.ContainerResource{{
			Container: "main", Resource: corev1.ResourceList{
				egpu.ResourceCore: *resource.NewQuantity(core, resource.DecimalSI), egpu.ResourceMemory: *resource.NewQuantity(memory, resource.DecimalSI),
			},
		}}}}
	}
	return g
}

func guessed(g egpu.GPU) egpu.GPU {
	g.Status.Allocated["team/p"].Guessed = true
	return g
}

// The record counts, and what the pod says of itself does not: its author may have written it.
func TestShareOfAContainer(t *testing.T) {
	const core, memory = egpu.ResourceCore, egpu.ResourceMemory
	type list = map[corev1.ResourceName]string
	for name, tc := range map[string]struct {
		annotation string
		limits     list
		gpus       []egpu.GPU
		percent    float64
		memory     int64
		want       string // of the error
	}{
		"core and memory":      {limits: list{core: "30", memory: "1000"}, gpus: []egpu.GPU{gpu(1, "u", 30, 1000)}, percent: 30, memory: 1000},
		"memory alone":         {limits: list{memory: "1000"}, gpus: []egpu.GPU{gpu(1, "u", 0, 1000)}, percent: 100, memory: 1000},
		"a whole card":         {limits: list{core: "100"}, gpus: []egpu.GPU{gpu(1, "u", 100, 40960)}, percent: 100, memory: 40960},
		"qGPU counts GiB":      {limits: list{egpu.ResourceQGPUCore: "20", egpu.ResourceQGPUMemory: "5"}, gpus: []egpu.GPU{gpu(1, "u", 20, 5120)}, percent: 20, memory: 5120},
		"another annotation":   {annotation: "0", limits: list{core: "30"}, gpus: []egpu.GPU{gpu(0, "", 0, 0), gpu(1, "u", 30, 0)}, percent: 30, memory: 40960},
		"more in it":           {annotation: "0,1", limits: list{core: "30"}, gpus: []egpu.GPU{gpu(0, "", 0, 0), gpu(1, "u", 30, 0)}, percent: 30, memory: 40960},
		"annotation alone":     {annotation: "1", limits: list{core: "30"}, gpus: []egpu.GPU{gpu(1, "", 0, 0)}, want: "was it bound by elastic-gpu-scheduler"},
		"another pod's":        {annotation: "1", limits: list{core: "30"}, gpus: []egpu.GPU{gpu(1, "v", 30, 0)}, want: "gives it 0"},
		"a guess":              {annotation: "1", limits: list{core: "30"}, gpus: []egpu.GPU{guessed(gpu(1, "u", 30, 0))}, want: "another scheduler"},
		"one of two":           {limits: list{core: "200"}, gpus: []egpu.GPU{gpu(1, "u", 100, 40960)}, want: "asks for 2 cards"},
		"two of one":           {limits: list{core: "30"}, gpus: []egpu.GPU{gpu(0, "u", 30, 0), gpu(1, "u", 30, 0)}, want: "was given 2 cards and asks for 1"},
		"less core":            {limits: list{core: "30"}, gpus: []egpu.GPU{gpu(1, "u", 20, 0)}, want: "was given 20 percent"},
		"less memory":          {limits: list{memory: "1000"}, gpus: []egpu.GPU{gpu(1, "u", 0, 900)}, want: "900 MiB"},
		"less than whole":      {limits: list{core: "100"}, gpus: []egpu.GPU{gpu(1, "u", 99, 40960)}, want: "was given 99 percent"},
		"a card that is gone":  {limits: list{core: "30"}, gpus: []egpu.GPU{gpu(7, "u", 30, 0)}, want: "none of that index"},
		"nothing is asked for": {gpus: []egpu.GPU{gpu(1, "u", 30, 0)}, want: "asks for no cards"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(map[string]string{egpu.ContainerPrefix + "main": tc.annotation}, quantities(tc.limits))
			got, err := (&share.Resolver{}).Of(t.Context(), p, "main", cards, tc.gpus)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("%v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Cards) != 1 || got.Cards[0].UUID != "GPU-1" || got.Cards[0].Percent != tc.percent || got.Cards[0].MemoryMB != tc.memory {
				t.Fatalf("share %+v", got)
			}
			if !got.Cards[0].Recorded["u"] {
				t.Fatalf("recorded on the card are %v", got.Cards[0].Recorded)
			}
		})
	}
}

// A job that is to be swapped when it is preempted has shares that can be.
func TestShareThatIsToBeSwapped(t *testing.T) {
	p := pod(map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap}, quantities(map[corev1.ResourceName]string{egpu.ResourceCore: "30"}))
	s, err := (&share.Resolver{}).Of(t.Context(), p, "main", cards, []egpu.GPU{gpu(0, "u", 30, 0)})
	if err != nil || s.Parameters["swap"] != "on" {
		t.Fatalf("%+v: %v", s, err)
	}
}

// What a claim has is in its ElasticGPU, in the words of its provisioner; how it is held is in its class.
func TestShareOfAClaim(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	share30 := map[corev1.ResourceName]string{egpu.ResourceCore: "30", egpu.ResourceMemory: "1000"}
	onto := func(node string) *egpu.GPUNodeAffinity {
		return &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	for name, tc := range map[string]struct {
		capacity map[corev1.ResourceName]string
		change   func(*egpu.ElasticGPU)
		percent  float64
		memory   int64
		want     string
		sharing  string
	}{
		"core and memory": {capacity: share30, percent: 30, memory: 1000},
		"tflops":          {capacity: map[corev1.ResourceName]string{"elasticgpu.io/tflops": "100"}, percent: 32.1, memory: 40960}, // of 312
		"whole cards":     {capacity: map[corev1.ResourceName]string{"elasticgpu.io/gpu": "1"}, percent: 100, memory: 40960},
		"by its GPU object": {capacity: share30, percent: 30, memory: 1000, change: func(e *egpu.ElasticGPU) {
			e.Annotations, e.Spec.GPUShare = nil, &egpu.GPUShareSource{GPUName: "n-1"}
		}},
		"in space, which the class says no more": {capacity: share30, percent: 30, memory: 1000, sharing: "space", change: func(e *egpu.ElasticGPU) {
			e.Annotations[egpu.SharingAnnotation] = egpu.SharingSpace
		}},
		"free":             {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Spec.ClaimRef = nil }, want: "given to no claim"},
		"another's":        {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Spec.ClaimRef.Namespace = "other" }, want: "belongs to claim other/mine"},
		"an earlier one's": {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Spec.ClaimRef.UID = "before" }, want: "another claim that had this name"},
		"another class":    {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Spec.ElasticGPUClassName = "slow" }, want: "is of class slow"},
		"another node":     {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Spec.NodeAffinity = onto("m") }, want: "is on node m"},
		"no cards":         {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Annotations = nil }, want: "does not say which cards"},
		"no number":        {capacity: share30, change: func(e *egpu.ElasticGPU) { e.Annotations[egpu.CardsAnnotation] = "all" }, want: "is no index"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine", UID: "c"}}
			claim.Spec.ElasticGPUName, claim.Spec.ElasticGPUClassName = "e", ptr.To("fast")
			device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e", Annotations: map[string]string{egpu.CardsAnnotation: "1"}}}
			device.Spec.Capacity, device.Spec.NodeAffinity = quantities(tc.capacity), onto("n")
			device.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: "mine", UID: "c"}
			if tc.change != nil {
				tc.change(device)
			}
			class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Parameters: map[string]string{"lend": "on"}}
			resolver := &share.Resolver{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim, device, class).Build()}
			// What the pod says of its cards is not asked.
			p := pod(map[string]string{egpu.ContainerPrefix + "main": "0", egpu.ClaimPrefix + "main": "mine"}, nil)
			p.Spec.NodeName = "n"
			got, err := resolver.Of(t.Context(), p, "main", cards, []egpu.GPU{gpu(0, "", 0, 0), gpu(1, "", 0, 0)})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("%v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c := got.Cards[0]
			if c.Index != 1 || c.Percent != tc.percent || c.MemoryMB != tc.memory || got.Parameters["lend"] != "on" || got.Parameters["sharing"] != tc.sharing || got.Device != "e" {
				t.Fatalf("share %+v", got)
			}
		})
	}
}

// A container whose card is on another node has none of this one; the pod that serves it there has the claim's share, and no
// other pod says so of itself.
func TestShareOfARemoteCard(t *testing.T) {
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: "claim"}}
	claim.Spec.ElasticGPUName, claim.Spec.ElasticGPUClassName = "e", ptr.To("far")
	device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e", Annotations: map[string]string{egpu.CardsAnnotation: "1"}}}
	device.Spec.RemoteGPU, device.Spec.ElasticGPUClassName = &egpu.RemoteGPUSource{NodeName: "n", GPUName: "n-1"}, "far"
	device.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: "c", UID: "claim"}
	device.Spec.Capacity = quantities(map[corev1.ResourceName]string{egpu.ResourceCore: "30", egpu.ResourceMemory: "1000"})
	class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Parameters: map[string]string{"sharing": "remote", "lend": "on"}}
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &share.Resolver{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim, device, class).Build(), ServerNamespace: "system"}

	user := pod(map[string]string{egpu.ClaimPrefix + "main": "c"}, nil)
	user.Spec.NodeName = "elsewhere"
	s, err := r.Of(t.Context(), user, "main", nil, nil)
	if err != nil || len(s.Cards) != 0 || s.Remote == nil || *s.Remote != (share.Remote{Claim: "claim", Device: "e", Engine: "elastic"}) {
		t.Fatalf("%+v %v", s, err)
	}

	server := pod(map[string]string{egpu.ServesAnnotation: "e"}, nil)
	server.Namespace, server.Name, server.Spec.NodeName = "system", "remote-e", "n"
	s, err = r.Of(t.Context(), server, "main", cards, []egpu.GPU{gpu(1, "", 0, 0)})
	if err != nil || s.Serves != "claim" || len(s.Cards) != 1 || s.Cards[0].Index != 1 || s.Cards[0].Percent != 30 || s.Cards[0].MemoryMB != 1000 {
		t.Fatalf("%+v %v", s, err)
	}
	if s.Parameters["sharing"] != "" || s.Parameters["lend"] != "on" {
		t.Errorf("parameters %v", s.Parameters)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a tenant's namespace": func(p *corev1.Pod) { p.Namespace = "team" },
		"another name":         func(p *corev1.Pod) { p.Name = "remote-x" },
		"another node":         func(p *corev1.Pod) { p.Spec.NodeName = "m" },
	} {
		forged := server.DeepCopy()
		change(forged)
		if s, err := r.Of(t.Context(), forged, "main", cards, nil); err == nil {
			t.Errorf("%s: it has %+v", name, s)
		}
	}
}
