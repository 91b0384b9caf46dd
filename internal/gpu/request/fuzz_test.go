package request_test

import (
	"encoding/json"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/randfill"

	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// FuzzPod reads what any pod asks of cards: it is a request that makes sense, or refused with a reason.
func FuzzPod(f *testing.F) {
	quantities := []string{"0", "1", "30", "100", "250", "800", "-1", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e30", "500m"}
	names := append(request.Resources(), "cpu", "memory", "elasticgpu.io/", "/", "x/tflops", "x/gpu", "x/qgpu-memory")
	f.Add([]byte("a"), "")
	for _, text := range []string{
		`{"metadata":{"annotations":{"egpuc.elasticgpu.io/main":"mine"}}}`,
		`{"metadata":{"annotations":{"elasticgpu.io/container-main":"0,1,99999999999999999999"}},"spec":{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"92233720368547759"}}}]}}`,
		`{"spec":{"containers":[{"name":"main","resources":{"limits":{"tke.cloud.tencent.com/qgpu-memory":"9007199254740993"}}}]}}`,
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1e30","memory":"1e30"}}}],"overhead":{"cpu":"-1e30"}}}`,
		`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":null}}}}`,
	} {
		f.Add([]byte(nil), text)
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		pod := &corev1.Pod{}
		if text == "" {
			randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(8).Funcs(
				func(list *corev1.ResourceList, c randfill.Continue) {
					*list = corev1.ResourceList{}
					for range c.Intn(4) {
						(*list)[names[c.Intn(len(names))]] = resource.MustParse(quantities[c.Intn(len(quantities))])
					}
				},
				func(q *resource.Quantity, c randfill.Continue) {
					*q = resource.MustParse(quantities[c.Intn(len(quantities))])
				},
			).Fill(&pod.Spec)
		} else if json.Unmarshal([]byte(text), pod) != nil {
			return // the API server lets no such text through
		}
		request.Uses(pod)
		p, err := request.Pod(pod, nil)
		if err != nil {
			return
		}
		for name, amount := range p.Resources {
			if amount < 0 || amount > math.MaxInt64/4 {
				t.Errorf("it asks for %d of %s", amount, name)
			}
		}
		for i := range pod.Spec.Containers {
			if cpu := pod.Spec.Containers[i].Resources.Requests.Cpu(); cpu.Cmp(resource.MustParse("1e9")) > 0 && pod.Spec.Overhead.Cpu().Sign() >= 0 && p.Resources["cpu"] == 0 {
				t.Errorf("%s cores are none", cpu)
			}
		}
		for i := range p.Containers {
			valid(t, p.Containers[i].Cards)
		}
		request.Grants(pod, p.Containers)
		for i := range pod.Spec.Containers {
			list := pod.Spec.Containers[i].Resources.Requests
			request.Quota(list)
			if asked, err := request.List(list, request.Share); err == nil {
				valid(t, asked)
			}
		}
	})
}

func valid(t *testing.T, asked placement.CardRequest) {
	t.Helper()
	if err := asked.Validate(); err != nil {
		t.Errorf("%+v was taken: %v", asked, err)
	}
	if asked.Memory > math.MaxInt64/4 {
		t.Errorf("%d MiB of a card", asked.Memory)
	}
}

// FuzzCards reads card indexes as annotations have them, and writes them again.
func FuzzCards(f *testing.F) {
	for _, text := range []string{"", "0,1", " 3 ,, 4", "-1", "99999999999999999999", "0x1", "1,1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		indexes, err := request.ParseCards(text)
		if err != nil {
			return
		}
		var cards []placement.CardGrant
		for _, index := range indexes {
			if index < 0 {
				t.Errorf("%q has the index %d", text, index)
			}
			cards = append(cards, placement.CardGrant{Index: index})
		}
		again, err := request.ParseCards(request.FormatCards(cards))
		if err != nil || len(again) != len(indexes) {
			t.Errorf("%v, written and read: %v %v", indexes, again, err)
		}
	})
}
