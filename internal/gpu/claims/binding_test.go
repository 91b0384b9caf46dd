package claims

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

func amounts(core, memory string) corev1.ResourceList {
	return corev1.ResourceList{egpu.ResourceCore: resource.MustParse(core), egpu.ResourceMemory: resource.MustParse(memory)}
}

// A claim's author names any ElasticGPU; the claim gets it only if it is nobody else's and just what was asked for.
func TestMayHave(t *testing.T) {
	share := "share"
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}
	claim.Spec.ElasticGPUClassName = &share
	claim.Spec.Resources.Requests = amounts("30", "4096")
	ref := func(namespace, name, uid string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Namespace: namespace, Name: name, UID: types.UID(uid)}
	}
	for name, test := range map[string]struct {
		ref   *corev1.ObjectReference
		class string
		has   corev1.ResourceList
		why   string // "" where it may
	}{
		"free and just so":          {class: share, has: amounts("30", "4096")},
		"more compute":              {class: share, has: amounts("31", "4096"), why: "more than the claim asks for"},
		"more memory":               {class: share, has: amounts("30", "4097"), why: "more than the claim asks for"},
		"less compute":              {class: share, has: amounts("29", "4096"), why: "less than the claim asks for"},
		"less memory":               {class: share, has: amounts("30", "4095"), why: "less than the claim asks for"},
		"another class":             {class: "gold", has: amounts("30", "4096"), why: "of class"},
		"made for it":               {ref: ref("ns", "c", "1"), class: share, has: amounts("30", "4096")},
		"made for one of that name": {ref: ref("ns", "c", ""), class: share, has: amounts("30", "4096")},
		"of one deleted since":      {ref: ref("ns", "c", "2"), class: share, has: amounts("30", "4096"), why: "belongs to claim ns/c"},
		"another's":                 {ref: ref("ns", "d", "1"), class: share, has: amounts("30", "4096"), why: "belongs to claim ns/d"},
		"another namespace's":       {ref: ref("other", "c", "1"), class: share, has: amounts("30", "4096"), why: "belongs to claim other/c"},
	} {
		device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
		device.Spec.ElasticGPUClassName, device.Spec.Capacity, device.Spec.ClaimRef = test.class, test.has, test.ref
		err := mayHave(claim, device)
		if got := err == nil; got != (test.why == "") || err != nil && !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v, want %q", name, err, test.why)
		}
	}
}
