package web

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/randfill"

	"k8s.io/apimachinery/pkg/api/resource"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// What a watch reads of an object makes the same record as the whole object: no field that a record shows is left out.
func TestShownFieldsMakeTheSameRecord(t *testing.T) {
	fill := randfill.NewWithSeed(24).NilChance(0).NumElements(1, 3).MaxDepth(20).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(int64(1+c.Intn(100)), resource.DecimalSI)
		},
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(int64(1+c.Intn(1e9)), 0) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = *metav1.NewFieldsV1(`{"f:spec":{}}`) },
		func(raw *runtime.RawExtension, _ randfill.Continue) { raw.Raw = []byte(`{}`) },
	)
	for what, full := range map[string]client.Object{
		"nodes": &corev1.Node{}, "gpus": &egpu.GPU{}, "workloads": &kueue.Workload{}, "pods": podMetadata(),
		"clusterqueues": &kueue.ClusterQueue{}, "cohorts": &kueue.Cohort{}, "localqueues": &kueue.LocalQueue{}, "resourceflavors": &kueue.ResourceFlavor{},
	} {
		src := sinkOf(t, NewState(), what).source
		for range 200 {
			kind := full.GetObjectKind().GroupVersionKind()
			fill.Fill(full)
			full.GetObjectKind().SetGroupVersionKind(kind)
			arrange(full, fill)
			data, err := json.Marshal(full)
			must(t, err)
			read, err := src.read(data)
			must(t, err)
			want, got := stateWith(src, full), stateWith(src, read.(client.Object))
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: reading a part of it changes its record\n got %s\nwant %s", what, got, want)
			}
		}
	}
}

// arrange gives values to what shows only with others: resources that are cards, conditions that are known.
func arrange(o client.Object, fill *randfill.Filler) {
	var some struct{ One, Two, Three bool }
	fill.Fill(&some)
	switch o := o.(type) {
	case *corev1.Node:
		o.Status.Conditions[0].Type = corev1.NodeReady
		if some.One {
			o.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		o.Labels[modelLabel] = "H100-80G"
	case *egpu.GPU:
		for _, pod := range o.Status.Allocated {
			for i := range pod.Containers {
				pod.Containers[i].Resource = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("40"), egpu.ResourceMemory: resource.MustParse("1024")}
			}
		}
	case *kueue.Workload:
		o.Spec.PodSets[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, Requests: corev1.ResourceList{egpu.ResourceCore: resource.MustParse("50")},
		}
		for i, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted} {
			if i < len(o.Status.Conditions) {
				o.Status.Conditions[i].Type, o.Status.Conditions[i].Status = kind, metav1.ConditionTrue
				if i == 0 && some.Two {
					o.Status.Conditions[i].Status = metav1.ConditionFalse
				}
			}
		}
		o.OwnerReferences[0].Controller = &some.Three
		check := &o.Status.AdmissionChecks[0]
		check.PodSetUpdates[0].NodeSelector, check.PodSetUpdates[0].Annotations = map[string]string{cloud.PurchaseLabel: "uid-1"}, map[string]string{cloud.PriceAnnotation: "40.50"}
		if some.Three {
			o.Status.AdmissionChecks = nil // a condition says it
			last := &o.Status.Conditions[len(o.Status.Conditions)-1]
			*last = metav1.Condition{Type: "elasticai.io/EarlierRunsCost", Status: metav1.ConditionTrue, Message: "12.500000 US dollars"}
		}
	}
}

// stateWith is what a tab would be sent of one object, and what other records are made with.
func stateWith(src *source, o client.Object) []string {
	s := NewState()
	if src.what == "nodes" { // one without cards is not shown
		s.setCard(o.GetName(), cardRecord{Name: "c"})
	}
	src.show(o)(s)
	_, all := s.subscribe()
	var shown []string
	for _, message := range all {
		shown = append(shown, string(message.data))
	}
	return append(shown, string(fmt.Appendf(nil, "%v", s.pods)), string(encode(s.locals)), string(encode(s.prices.models)))
}
