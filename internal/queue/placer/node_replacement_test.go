package placer

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// hall is two racks, a and b, of three hosts with four cards each.
func hall(t *testing.T) *Placer {
	t.Helper()
	p := cluster(t, 0)
	for _, host := range []string{"a1", "a2", "a3", "b1", "b2", "b3"} {
		p.Saw(host4(host), false)
	}
	p.Saw(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hall"}, Spec: kueue.TopologySpec{
		Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}},
	}}, false)
	return p
}

func host4(name string) *corev1.Node {
	n := node(name)
	n.Labels["rack"], n.Labels[corev1.LabelHostname] = name[:1], name
	return n
}

// wants asks for pods of one card in the hall.
func wants(pods int32, topology admission.TopologyRequest) admission.PlaceRequest {
	r := asking("job", pods, 1)
	r.PodSets[0].Flavors[0].Topology = "hall"
	r.PodSets[0].Spec.Topology = &topology
	return r
}

// sends is an assignment written as "a1:2 b1:1".
func sends(text string) map[string]*kueue.TopologyAssignment {
	var domains []workload.Domain
	for _, word := range strings.Fields(text) {
		d := workload.Domain{Values: make([]string, 1)}
		_, _ = fmt.Sscanf(strings.Replace(word, ":", " ", 1), "%s %d", &d.Values[0], &d.Count)
		domains = append(domains, d)
	}
	return map[string]*kueue.TopologyAssignment{"main": workload.Encoding{}.Assignment([]string{corev1.LabelHostname}, domains)}
}

func said(named map[string]*kueue.TopologyAssignment) string {
	if named == nil {
		return "nowhere"
	}
	var words []string
	for _, d := range workload.Domains(named["main"]) {
		words = append(words, fmt.Sprintf("%s:%d", d.Values[0], d.Count))
	}
	return strings.Join(words, " ")
}

func TestReplace(t *testing.T) {
	inRack := admission.TopologyRequest{Mode: admission.TopologyRequired, Level: "rack"}
	nearby := admission.TopologyRequest{Mode: admission.TopologyPreferred, Level: "rack"}
	anywhere := admission.TopologyRequest{Mode: admission.TopologyUnconstrained}
	fours := admission.TopologyRequest{Mode: admission.TopologyUnconstrained, Slices: []admission.TopologySlice{{Level: "rack", Size: 4}}}
	sixes := admission.TopologyRequest{Mode: admission.TopologyUnconstrained, Slices: []admission.TopologySlice{{Level: "rack", Size: 6}}}
	layers := admission.TopologyRequest{Mode: admission.TopologyUnconstrained, Slices: []admission.TopologySlice{{Level: "rack", Size: 4}, {Level: corev1.LabelHostname, Size: 2}}}
	for name, test := range map[string]struct {
		request admission.TopologyRequest
		sent    string
		lost    string
		taken   string // others' pods, of four cards or as many as said
		want    string
	}{
		"in its rack":                       {inRack, "b1:4 b2:4", "b1", "", "b2:4 b3:4"},
		"nowhere but in its rack":           {inRack, "b1:4 b2:4", "b1", "b3", "nowhere"},
		"in its rack if it can be":          {nearby, "b1:4 b2:4", "b1", "", "b2:4 b3:4"},
		"elsewhere if it must":              {nearby, "b1:4 b2:4", "b1", "b3 a1 a2", "a3:4 b2:4"},
		"anywhere":                          {anywhere, "a1:4 b2:4", "b2", "a2 a3 b1", "a1:4 b3:4"},
		"no pod is left to be near to":      {inRack, "b1:4", "b1", "b2 b3 a1 a2", "a3:4"},
		"all in one rack, whichever":        {inRack, "b1:8", "b1", "b2 a1", "a2:4 a3:4"},
		"more on a host that is there":      {inRack, "b1:2 b2:1", "b1", "b3", "b2:3"},
		"the rest of a slice goes to it":    {sixes, "b1:2 b2:4", "b1", "b3", "nowhere"},
		"the rest of a slice fits there":    {sixes, "b1:2 b2:4", "b1", "", "b2:4 b3:2"},
		"of a slice's slices each is whole": {layers, "b1:2 b2:2", "b1", "b3:3", "b2:4"},
		"a slice's slice stays with it":     {layers, "b1:2 b2:2", "b1", "b2:1 b3:3", "nowhere"},
		"a whole slice can go anywhere":     {fours, "a1:4 b1:4", "b1", "b2 b3 a2", "a1:4 a3:4"},
	} {
		t.Run(name, func(t *testing.T) {
			p := hall(t)
			named := sends(test.sent)
			pods := int32(0)
			for _, d := range workload.Domains(named["main"]) {
				pods += int32(d.Count)
			}
			r := wants(pods, test.request)
			p.Hold(r.Workload, p.Restore(r, nil, named))
			taken := 0
			for i, word := range strings.Fields(test.taken) {
				host, cards := word, int64(4)
				if name, number, said := strings.Cut(word, ":"); said {
					host, cards = name, int64(number[0]-'0')
				}
				taken += int(cards)
				other := asking(fmt.Sprintf("other-%d", i), 1, cards)
				other.PodSets[0].Flavors[0].NodeLabels = map[string]string{corev1.LabelHostname: host}
				fits(t, p, other)
			}
			p.Saw(host4(test.lost), true)
			if keys := p.AffectedWorkloads(); len(keys) != 1 || keys[0] != r.Workload {
				t.Fatalf("affected are %v", keys)
			}
			if p.Node(test.lost) != nil {
				t.Fatalf("%s is still there", test.lost)
			}
			moved := p.Replace(r, named, test.lost)
			if got := said(moved); got != test.want {
				t.Fatalf("the pods go to %s, want %s", got, test.want)
			}
			if moved == nil {
				return
			}
			// What it says is reserved, and nothing else.
			p.Hold(r.Workload, p.Restore(r, nil, moved))
			free := 0
			for {
				if _, refusal := p.Place(asking(fmt.Sprintf("rest-%d", free), 1, 1)); refusal != nil {
					break
				}
				free++
			}
			if want := 5*4 - int(pods) - taken; free != want {
				t.Errorf("%d cards are free, want %d", free, want)
			}
		})
	}
}

// Pods that run are counted, by whichever workload they name; those that end or are about to are not.
func TestRuns(t *testing.T) {
	pod := func(how func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "x", Annotations: map[string]string{kueue.WorkloadAnnotation: "job"}, Labels: map[string]string{kueuelabels.PodSet: "main"},
		}, Spec: corev1.PodSpec{NodeName: "a1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		how(pod)
		return pod
	}
	running, leaving := func(*corev1.Pod) {}, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }
	over := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	for name, test := range map[string]struct {
		pods []func(*corev1.Pod)
		want bool
	}{
		"none":                      {},
		"one":                       {pods: []func(*corev1.Pod){running}, want: true},
		"one that is leaving":       {pods: []func(*corev1.Pod){leaving}},
		"one that leaves":           {pods: []func(*corev1.Pod){running, leaving}},
		"one that has ended":        {pods: []func(*corev1.Pod){running, over}},
		"one of another workload":   {pods: []func(*corev1.Pod){func(p *corev1.Pod) { p.Annotations = nil }}},
		"one that names no pod set": {pods: []func(*corev1.Pod){func(p *corev1.Pod) { p.Labels = nil }}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := hall(t)
			r := wants(2, admission.TopologyRequest{Mode: admission.TopologyUnconstrained})
			p.Hold(r.Workload, p.Restore(r, nil, sends("a1:1 a2:1")))
			n := host4("a1")
			n.Spec.Taints = []corev1.Taint{{Key: "repair", Effect: corev1.TaintEffectNoSchedule}}
			p.Saw(n, false)
			if affected := p.AffectedWorkloads(); len(affected) != 1 {
				t.Errorf("the workload on a tainted node is affected: %v", affected)
			}
			for _, how := range test.pods {
				p.Saw(pod(how), false)
			}
			if p.Runs(r.Workload, "a1") != test.want || p.Runs(r.Workload, "a2") {
				t.Errorf("runs there: %t, want %t", !test.want, test.want)
			}
			if free := p.reservations[gangKey(r.Workload)].places(); free[place{"main", "a2"}] != 1 || test.want && free[place{"main", "a1"}] != 0 {
				t.Errorf("reserved for pods to come: %v", free)
			}
			if affected := p.AffectedWorkloads(); len(test.pods) == 2 && len(affected) != 1 {
				t.Errorf("the workload is affected when its last pod there leaves: %v", affected)
			}
		})
	}
}

// Pods took what was reserved, ended, and their node is lost before anything is reserved for those that come after them: nothing is
// on that node then, and the workload is still sent there.
func TestAffectedAfterItsPodsEnded(t *testing.T) {
	p := hall(t)
	r := wants(2, admission.TopologyRequest{Mode: admission.TopologyUnconstrained})
	p.Hold(r.Workload, p.Restore(r, nil, sends("a1:2")))
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed} {
		for _, name := range []string{"x", "y"} {
			p.Saw(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, Annotations: map[string]string{kueue.WorkloadAnnotation: "job"}, Labels: map[string]string{kueuelabels.PodSet: "main"},
			}, Spec: corev1.PodSpec{NodeName: "a1"}, Status: corev1.PodStatus{Phase: phase}}, false)
		}
	}
	n := host4("a1")
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	p.Saw(n, false)
	if affected := p.AffectedWorkloads(); len(affected) != 1 || affected[0] != r.Workload {
		t.Errorf("the workload whose pods ended on a node that is lost now is affected: %v", affected)
	}
}

// As Kueue does it, a preferred topology does not keep the pods of a lost node near the rest.
func TestReplaceAnywhere(t *testing.T) {
	for everywhere, want := range map[bool]string{false: "b2:4 b3:1", true: "a1:1 b2:4"} {
		p := hall(t)
		p.options.ReplaceAnywhere = everywhere
		named, r := sends("b1:1 b2:4"), wants(5, admission.TopologyRequest{Mode: admission.TopologyPreferred, Level: "rack"})
		p.Hold(r.Workload, p.Restore(r, nil, named))
		for host, cards := range map[string]int64{"a1": 3, "a2": 4, "a3": 4} {
			other := asking("in-"+host, 1, cards)
			other.PodSets[0].Flavors[0].NodeLabels = map[string]string{corev1.LabelHostname: host}
			fits(t, p, other)
		}
		p.Saw(host4("b1"), true)
		if got := said(p.Replace(r, named, "b1")); got != want {
			t.Errorf("anywhere %t: the pods go to %s, not %s", everywhere, got, want)
		}
	}
}

// Racks of one name in two blocks are two racks.
func TestReplaceInTheSameBlock(t *testing.T) {
	inRack := admission.TopologyRequest{Mode: admission.TopologyRequired, Level: "rack"}
	sixes := admission.TopologyRequest{Mode: admission.TopologyUnconstrained, Slices: []admission.TopologySlice{{Level: "rack", Size: 6}}}
	for name, request := range map[string]admission.TopologyRequest{"required": inRack, "slices": sixes} {
		t.Run(name, func(t *testing.T) {
			p := cluster(t, 0)
			for _, host := range []string{"a1", "a2", "b1", "b2", "b3"} {
				n := host4(host)
				n.Labels["block"], n.Labels["rack"] = host[:1], "r"
				p.Saw(n, false)
			}
			p.Saw(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hall"}, Spec: kueue.TopologySpec{
				Levels: []kueue.TopologyLevel{{NodeLabel: "block"}, {NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}},
			}}, false)
			named := sends("b1:2 b2:4")
			r := wants(6, request)
			p.Hold(r.Workload, p.Restore(r, nil, named))
			other := asking("other", 1, 4)
			other.PodSets[0].Flavors[0].NodeLabels = map[string]string{corev1.LabelHostname: "a2"}
			fits(t, p, other) // what is left of the other block is as tight
			p.Saw(host4("b1"), true)
			if got := said(p.Replace(r, named, "b1")); got != "b2:4 b3:2" {
				t.Errorf("the pods go to %s", got)
			}
		})
	}
}
