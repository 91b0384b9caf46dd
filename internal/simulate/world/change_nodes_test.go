package world

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Where one queue has all nodes, it has quota for those that come, and none for those that go, unless its quota is another.
func TestMoreNodesForAll(t *testing.T) {
	c, err := ParseNodes("2x8:H100", "main")
	if err != nil {
		t.Fatal(err)
	}
	tr := trace(t, "a,,main,0,100,16,,,\nb,,main,0,100,16,,,\n")
	for change, want := range map[string]string{
		"":                              "16, a 0-100, b 100-200",
		"+2x8:H100":                     "32, a 0-100, b 0-100",
		"-1x8:H100":                     "8, a -1--1, b -1--1",
		"queue/main.quota=20,+2x8":      "20, a 0-100, b 100-200",
		"+2x8,queue/main.quota=16":      "16, a 0-100, b 100-200",
		"+1x16:B200":                    "32, a 0-100, b 0-100",
		"+2x8:H100,-1x8:H100,+1x8":      "32, a 0-100, b 0-100",
		"+2x8:H100,queue/main.quota=31": "31, a 0-100, b 100-200",
	} {
		variant := set(t, c, change)
		w, _ := simulate(t, tr, variant, Settings{})
		if got := fmt.Sprintf("%d, %s", nominalOf(variant.Queues[0].Groups, c.Cards), starts(w)); got != want {
			t.Errorf("%s: %s, want %s", change, got, want)
		}
	}
	if nominalOf(c.Queues[0].Groups, c.Cards) != 16 {
		t.Error("the cluster itself changed")
	}
}

// byProduct is a cluster as operators label them: a flavor selects the product, nodes have CPU, memory and a taint.
func byProduct() *Cluster {
	c := &Cluster{Cards: CardResource, Flavors: []admission.Flavor{
		{Name: "h100", NodeLabels: map[string]string{productLabel: "H100"}, Tolerations: []admission.Toleration{{Key: "gpu", Operator: "Exists"}}},
		{Name: "b200", NodeLabels: map[string]string{productLabel: "B200", "site": "b"}},
	}}
	q := c.newQueue("q", "h100", 32)
	q.Groups[0].Flavors = append(q.Groups[0].Flavors, admission.FlavorQuotas{Flavor: "b200", Quotas: map[string]admission.Quota{c.Cards: {Nominal: 8}}})
	c.Queues = append(c.Queues, q)
	c.Nodes = []Node{{
		Name: "n1", Cards: 8, Model: "H100", CPU: 64000, Memory: 512 << 30,
		Labels: map[string]string{corev1.LabelHostname: "n1", productLabel: "H100", "rack": "r1"},
		Taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectPreferNoSchedule}},
	}}
	return c
}

// New nodes are like those of their model: what flavors select, what taints they have, and how much CPU and memory.
func TestNewNodesAreLikeThoseThatAreThere(t *testing.T) {
	tr := trace(t, "a,,q,0,100,8,32,200000,\nb,,q,0,100,8,32,200000,\n")
	for change, want := range map[string]string{
		"":                  "a 0-100, b 100-200",
		"+1x8:H100":         "a 0-100, b 0-100",
		"+1x8":              "a 0-100, b 0-100",
		"+1x8@h100":         "a 0-100, b 0-100",
		"+1x8@q":            "a 0-100, b 0-100",
		"+1x8:B200@b200":    "a 0-100, b 0-100 cpu",
		"+1x8:B200@rack=r1": "a 0-100, b 100-200 cpu flavor 8",
		"+1x8:B200":         "a 0-100, b 100-200 cpu flavor 8",
		"+1x8:L40":          "a 0-100, b 100-200 cpu flavor 8",
		"+5x8:H100":         "a 0-100, b 0-100 quota 16",
	} {
		w, r := simulate(t, tr, set(t, byProduct(), change), Settings{})
		got := starts(w)
		for _, note := range r.Notes {
			var n int
			switch {
			case strings.Contains(note, "as much CPU and memory for each card as n1 has"):
				got += " cpu"
			case strings.Contains(note, "match no flavor"):
				_, _ = fmt.Sscan(note, &n)
				got += fmt.Sprint(" flavor ", n)
			case strings.Contains(note, "have no quota in flavor h100"):
				_, _ = fmt.Sscan(note, &n)
				got += fmt.Sprint(" quota ", n)
			default:
				got += " " + note
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", change, got, want)
		}
	}
	c := set(t, byProduct(), "+1x4:H100")
	if n := c.Nodes[1]; n.CPU != 32000 || n.Memory != 256<<30 || n.Labels["rack"] != "r1" || n.Labels[corev1.LabelHostname] != "" || len(n.Taints) != 1 || !n.New {
		t.Errorf("%+v", n)
	}
	for change, want := range map[string]string{"+1x8:H100@x": "there is no queue x, nor a flavor", "-1x8@b200": "not so many nodes"} {
		if _, err := byProduct().Set(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
	// Nodes in the place of those that are there are like them, too.
	replaced := byProduct()
	if err := replaced.ReplaceNodes("2x8:H100"); err != nil {
		t.Fatal(err)
	}
	if w, r := simulate(t, tr, replaced, Settings{}); starts(w) != "a 0-100, b 0-100" || len(replaced.Nodes) != 2 || r.Notes != nil {
		t.Errorf("%s, %v", starts(w), r.Notes)
	}
}
