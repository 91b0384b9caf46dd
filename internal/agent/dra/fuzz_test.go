package dra

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// FuzzClaim prepares any claim: what comes out is shares of cards that the node has, or an error.
func FuzzClaim(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"status":{"allocation":{}}}`,
		`{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0","consumedCapacity":{"core":"-50","memory":"-1"}}]}}}}`,
		`{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0","consumedCapacity":{"core":"1e30","memory":"1e30"}}]}}}}`,
		`{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0","adminAccess":true}]}}}}`,
		`{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0"}],"config":[{"source":"FromClass","opaque":{"driver":"gpu.elasticgpu.io","parameters":{"backend":7}}}]}}}}`,
		`{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0"}],"config":[{"source":"FromClass","opaque":{"driver":"gpu.elasticgpu.io","parameters":null}}]}}}}`,
		`{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0"},{"request":"r","driver":"gpu.elasticgpu.io","pool":"here","device":"gpu-0-1g-20gb-0"}]}}}}`,
	} {
		f.Add([]byte(nil), text)
	}
	f.Add([]byte("a"), "")
	c := newCatalog(cards(2), halves)
	var names []string
	for name := range c.targets {
		names = append(names, name)
	}
	quantities := []string{"0", "1", "30", "100", "-1", "1Gi", "1e30", "-1e30", "9223372036854775807"}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		claim := &resourceapi.ResourceClaim{}
		if text == "" {
			randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
				func(q *resource.Quantity, c randfill.Continue) {
					*q = resource.MustParse(quantities[c.Intn(len(quantities))])
				},
				func(raw *runtime.RawExtension, c randfill.Continue) { raw.Raw = []byte(c.String(40)) },
				func(r *resourceapi.DeviceRequestAllocationResult, c randfill.Continue) {
					c.FillNoCustom(r)
					r.Driver, r.Pool, r.Device = Driver, node, names[c.Intn(len(names))]
				},
			).Fill(&claim.Status)
		} else if json.Unmarshal([]byte(text), claim) != nil {
			return // the API server lets no such text through
		}
		pod := corev1.Pod{}
		list, err := c.shares(claim, node, []corev1.Pod{pod})
		if err != nil {
			return
		}
		for _, one := range list {
			for _, card := range one.share.Cards {
				if card.Percent < 0 || card.MemoryMB < 0 || card.MemoryMB > 1<<43 {
					t.Errorf("a share of %g percent and %d MiB", card.Percent, card.MemoryMB)
				}
			}
		}
	})
}
