package workload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func cpu(amount string) corev1.ResourceList {
	if amount == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func limitRange(name string, item corev1.LimitRangeItem) *corev1.LimitRange {
	r := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	r.Namespace, r.Name = "ns", name
	if item.Type == "" {
		r.Spec.Limits[0].Type = corev1.LimitTypeContainer
	}
	return r
}

func podsWith(requests, limits string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Namespace = "ns"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	wl.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpu(requests), Limits: cpu(limits)}}}
	return wl
}

// Quota counts pods as they will be created, and refuses those that cannot be.
func TestPodsCountAsTheyWillBe(t *testing.T) {
	kata := &nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: cpu("500m")}}
	kata.Name = "kata"
	inKata := podsWith("1", "")
	inKata.Spec.PodSets[0].Template.Spec.RuntimeClassName = ptr.To("kata")
	own := podsWith("1", "")
	own.Spec.PodSets[0].Template.Spec.RuntimeClassName = ptr.To("kata")
	own.Spec.PodSets[0].Template.Spec.Overhead = cpu("100m")
	podLevel := func(requests, limits string) *kueue.Workload {
		wl := podsWith("", "")
		wl.Spec.PodSets[0].Template.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu(requests), Limits: cpu(limits)}
		return wl
	}
	huge := podsWith("1", "")
	huge.Spec.PodSets[0].Template.Spec.RuntimeClassName = ptr.To("huge")
	huge.Spec.PodSets[0].Count = 1_000_000
	hugeClass := &nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: cpu("1000T")}}
	hugeClass.Name = "huge"
	elsewhere := podsWith("", "")
	elsewhere.Namespace = "other"
	const over, outside = "resources validation failed: ", "resources didn't satisfy LimitRange constraints: "
	for name, tc := range map[string]struct {
		wl      *kueue.Workload
		limits  corev1.LimitRangeItem
		want    string // CPUs of one pod
		refused string
	}{
		"a default":                 {wl: podsWith("", ""), limits: corev1.LimitRangeItem{DefaultRequest: cpu("3")}, want: "3"},
		"of another namespace":      {wl: elsewhere, limits: corev1.LimitRangeItem{DefaultRequest: cpu("3")}, want: "0"},
		"not for who asks":          {wl: podsWith("1", ""), limits: corev1.LimitRangeItem{DefaultRequest: cpu("3")}, want: "1"},
		"a default limit":           {wl: podsWith("", ""), limits: corev1.LimitRangeItem{Default: cpu("2")}, want: "2"},
		"not for other types":       {wl: podsWith("", ""), limits: corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Default: cpu("2")}, want: "0"},
		"overhead":                  {wl: inKata, want: "1500m"},
		"overhead of its own":       {wl: own, want: "1100m"},
		"a limit of the pod":        {wl: podLevel("", "2"), want: "2"},
		"a request of the pod":      {wl: podLevel("1", "2"), want: "1"},
		"a default of the pod":      {wl: podLevel("", ""), limits: corev1.LimitRangeItem{Type: corev1.LimitTypePod, DefaultRequest: cpu("2")}, want: "2"},
		"over its limit":            {wl: podsWith("3", "2"), want: "3", refused: over + `spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests must not exceed its limits`},
		"pod over its limit":        {wl: podLevel("3", "2"), want: "3", refused: over + "spec.podSets[0].template.spec.resources: Invalid value"},
		"over a default limit":      {wl: podsWith("3", ""), limits: corev1.LimitRangeItem{Default: cpu("2")}, want: "3", refused: over},
		"above the most":            {wl: podsWith("1", "3"), limits: corev1.LimitRangeItem{Max: cpu("2")}, want: "1", refused: outside + `spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests must not be above the limitRange max`},
		"below the least":           {wl: podsWith("1", "3"), limits: corev1.LimitRangeItem{Min: cpu("2")}, want: "1", refused: outside + `spec.podSets[0].template.spec.containers[0]: Invalid value: ["cpu"]: requests must not be below the limitRange min`},
		"within":                    {wl: podsWith("2", "3"), limits: corev1.LimitRangeItem{Min: cpu("1"), Max: cpu("4")}, want: "2"},
		"a pod above the most":      {wl: podsWith("3", ""), limits: corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: cpu("2")}, want: "3", refused: outside + "spec.podSets[0].template.spec: Invalid value"},
		"more than can be counted":  {wl: huge, refused: over + "spec.podSets[0].count: Invalid value: 1000000"},
		"a bound on something else": {wl: podsWith("", ""), limits: corev1.LimitRangeItem{Min: cpu("1")}, want: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewPodResources()
			r.Set(kata, false)
			r.Set(hugeClass, false)
			r.Set(limitRange("limits", tc.limits), false)
			before := tc.wl.DeepCopy()
			applied := r.Apply(tc.wl)
			if got := PodRequests(&applied.Spec.PodSets[0].Template.Spec)[corev1.ResourceCPU]; tc.want != "" && got.Cmp(resource.MustParse(tc.want)) != 0 {
				t.Errorf("a pod has %s CPUs, want %s", got.String(), tc.want)
			}
			if got := r.Refusal(applied); (got == "") != (tc.refused == "") || !strings.HasPrefix(got, tc.refused) {
				t.Errorf("refused: %q\nwant:    %q", got, tc.refused)
			}
			if !equality.Semantic.DeepEqual(before, tc.wl) {
				t.Errorf("the workload itself was changed: %v", tc.wl)
			}
		})
	}
}

// Of several LimitRanges the tightest bounds hold, and the defaults of the first by name; those that are
// deleted are forgotten.
func TestLimitRangesAreJoined(t *testing.T) {
	r := NewPodResources()
	b := limitRange("b", corev1.LimitRangeItem{DefaultRequest: cpu("1"), Max: cpu("8"), Min: cpu("1")})
	a := limitRange("a", corev1.LimitRangeItem{DefaultRequest: cpu("2"), Max: cpu("9"), Min: cpu("2")})
	r.Set(b, false)
	if concerns := r.Set(a, false); !concerns(podsWith("", "")) {
		t.Error("a LimitRange does not concern its namespace")
	}
	joined := r.limits["ns"][corev1.LimitTypeContainer]
	for what, got := range map[string]resource.Quantity{
		"2": joined.DefaultRequest[corev1.ResourceCPU], "8": joined.Max[corev1.ResourceCPU],
	} {
		if got.String() != what {
			t.Errorf("%s, want %s", got.String(), what)
		}
	}
	if least := joined.Min[corev1.ResourceCPU]; least.String() != "2" {
		t.Errorf("the least is %s", least.String())
	}
	r.Set(a, true)
	r.Set(b, true)
	if wl := podsWith("", ""); r.Apply(wl) != wl || len(r.ranges)+len(r.limits) > 0 {
		t.Errorf("%v %v are left", r.ranges, r.limits)
	}
}
