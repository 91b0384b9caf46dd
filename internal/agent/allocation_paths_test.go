package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/dra"
)

// Of two cards, which the scheduler may give out, and which are offered to claims.
func TestACardHasOneAllocationPath(t *testing.T) {
	first := conformance.Card(0).UUID
	for name, tc := range map[string]struct {
		node, config            string // "-" is a node that does not say
		claims, pods, allocated bool   // what has the first card
		scheduler, offered      string // indexes; one that is closed is followed by a dash
		whyFirst, errContains   string
	}{
		"not said":                     {node: "-", scheduler: "01"},
		"by configuration":             {node: "-", config: "1", scheduler: "0", offered: "1"},
		"all":                          {node: "all", offered: "01", whyFirst: byClaim},
		"the node knows better":        {node: "none", config: "all", scheduler: "01"},
		"one of them":                  {node: "0", scheduler: "1", offered: "0"},
		"pods have it":                 {node: "all", pods: true, offered: "1", whyFirst: byClaimYet},
		"the scheduler allocated it":   {node: "all", allocated: true, offered: "1", whyFirst: byClaimYet},
		"claims have it, as they may":  {node: "all", claims: true, offered: "01"},
		"claims have it, and it is to": {node: "none", claims: true, scheduler: "1", offered: "0-", whyFirst: closing},
		"nonsense":                     {node: "most", errContains: "write all, none, or indexes"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
			if tc.node != "-" {
				node.Annotations = map[string]string{egpu.DRACardsAnnotation: tc.node}
			}
			offered := ""
			paths := &AllocationPaths{
				Cards: tc.config,
				Held: func() (map[string]bool, map[string]bool, error) {
					return map[string]bool{first: tc.claims}, map[string]bool{first: tc.pods}, nil
				},
				Offer: func(_ context.Context, cards []dra.Card) error {
					for _, c := range cards {
						offered += fmt.Sprint(c.Index)
						if c.Closed != "" {
							offered += "-"
						}
					}
					return nil
				},
			}
			object := egpu.GPU{Spec: egpu.GPUSpec{UUID: first}}
			if tc.allocated {
				object.Status.Allocated = map[string]*egpu.PodResource{"team/pod": {}}
			}
			cards := []discovery.Card{conformance.Card(0), conformance.Card(1)}
			err := paths.choose(t.Context(), node, cards, []egpu.GPU{object})
			if tc.errContains != "" {
				if err == nil || !strings.Contains(err.Error(), tc.errContains) {
					t.Fatalf("%v, want %q", err, tc.errContains)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			scheduler := ""
			for _, c := range cards {
				if Object(node, c).Status.State == egpu.GPUReady {
					scheduler += fmt.Sprint(c.Index)
				}
			}
			if scheduler != tc.scheduler || offered != tc.offered {
				t.Errorf("the scheduler has %q, claims %q, want %q and %q", scheduler, offered, tc.scheduler, tc.offered)
			}
			if tc.whyFirst != "" && cards[0].Elsewhere != tc.whyFirst {
				t.Errorf("the first card: %q", cards[0].Elsewhere)
			}
			count := Capacity(cards, false)[egpu.ResourceCore]
			if count.Value() != int64(100*len(tc.scheduler)) {
				t.Errorf("the node offers %s percent", count.String())
			}
		})
	}
}
