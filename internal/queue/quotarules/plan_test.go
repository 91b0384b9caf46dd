package quotarules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// node made from words: its model, its cards, and "cordoned", "lost", "leaving", "taint=KEY".
func node(name, words string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	ready := corev1.ConditionTrue
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("15500m")}
	for i, word := range strings.Fields(words) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case i == 0:
			n.Labels["model"] = word
		case word == "cordoned":
			n.Spec.Unschedulable = true
		case word == "lost":
			ready = corev1.ConditionUnknown
		case word == "leaving":
			n.DeletionTimestamp = ptr.To(metav1.Now())
		case key == "taint":
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: value, Effect: corev1.TaintEffectNoSchedule})
		default:
			n.Status.Allocatable[gpu] = resource.MustParse(word)
		}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func nodesOf(lines ...string) []corev1.Node {
	var list []corev1.Node
	for i, words := range lines {
		list = append(list, node(fmt.Sprintf("n%d", i), words))
	}
	return list
}

var flavors = []kueue.ResourceFlavor{
	{ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"model": "H100"}}},
	{ObjectMeta: metav1.ObjectMeta{Name: "spot"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"model": "H100"}, NodeTaints: []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoSchedule}},
	}},
}

func queue(quota string) *kueue.ClusterQueue {
	resources := func(name string) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{
			{Name: gpu, NominalQuota: resource.MustParse(quota)}, {Name: "example.com/licenses", NominalQuota: resource.MustParse("7")},
		}}
	}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{
		{CoveredResources: []corev1.ResourceName{gpu, "example.com/licenses"}, Flavors: []kueue.FlavorQuotas{resources("h100"), resources("spot")}},
	}
	return cq
}

func quotaOf(cq *kueue.ClusterQueue, flavor int) *kueue.ResourceQuota {
	return &cq.Spec.ResourceGroups[0].Flavors[flavor].Resources[0]
}

func from(share int64, grace time.Duration) Rule {
	return Rule{share: share, grace: grace, Follows: true}
}

// look is one look at a queue at a time.
func look(t interface{ Fatal(...any) }, cq *kueue.ClusterQueue, r Rule, at time.Time, nodes []corev1.Node) (string, time.Time) {
	changes, again, err := Plan(cq, r, CapacityOf(flavors, nodes), at)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(changes, ", "), again
}

var start = time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC)

func TestNodesThatCount(t *testing.T) {
	for name, test := range map[string]struct {
		nodes      []corev1.Node
		h100, spot string
	}{
		"all of them":             {nodesOf("H100 8", "H100 8", "A100 8"), "16", "0"},
		"none":                    {nil, "100", "100"}, // nothing is known of cards
		"none of the flavor":      {nodesOf("A100 8"), "0", "0"},
		"cordoned, lost, leaving": {nodesOf("H100 8", "H100 8 cordoned", "H100 8 lost", "H100 8 leaving"), "8", "0"},
		"taints of the flavor":    {nodesOf("H100 8", "H100 4 taint=spot"), "12", "4"},
		"a taint pods tolerate":   {nodesOf("H100 8 taint=nvidia.com/gpu"), "8", "0"},
		"less than nothing":       {nodesOf("H100 8", "H100 -4"), "8", "0"},
		"without cards":           {nodesOf("H100", "A100 1"), "0", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			cq := queue("100")
			look(t, cq, from(100, 0), start, test.nodes)
			if h, s := quotaOf(cq, 0).NominalQuota.String(), quotaOf(cq, 1).NominalQuota.String(); h != test.h100 || s != test.spot {
				t.Errorf("h100 %s, spot %s; want %s, %s", h, s, test.h100, test.spot)
			}
			if l := cq.Spec.ResourceGroups[0].Flavors[0].Resources[1].NominalQuota.String(); l != "7" {
				t.Errorf("licenses, which no node has, are %s", l)
			}
		})
	}
}

func TestShareIsRoundedDown(t *testing.T) {
	for _, test := range []struct {
		of                string
		name              corev1.ResourceName
		percent, headroom int64
		want              string
	}{
		{"10", gpu, 100, 0, "10"}, {"10", gpu, 50, 10, "4"}, {"10", gpu, 1, 0, "0"}, {"0", gpu, 100, 0, "0"},
		{"15500m", corev1.ResourceCPU, 50, 0, "7750m"}, {"1Ti", corev1.ResourceMemory, 25, 0, "256Gi"},
		{"9223372036854775807", gpu, 100, 0, "9223372036854775807"},
	} {
		if got := share(resource.MustParse(test.of), test.name, test.percent, test.headroom); got.String() != test.want {
			t.Errorf("%d %% of %s less %d %%: %s, want %s", test.percent, test.of, test.headroom, got.String(), test.want)
		}
	}
}

// A node that goes and comes back changes nothing; one that stays away does when the grace ends, and not what went later.
func TestGrace(t *testing.T) {
	cq, r := queue("100"), from(100, 10*time.Minute)
	for _, step := range []struct {
		minute     int
		nodes      []corev1.Node
		quota      string
		againAfter int // minutes from the start; 0: not
	}{
		{0, nodesOf("H100 8", "H100 8"), "16", 0},
		{1, nodesOf("H100 8", "H100 8 lost"), "16", 11},
		{2, nodesOf("H100 8", "H100 8"), "16", 0},
		{5, nodesOf("H100 8", "H100 8 lost"), "16", 15},
		{14, nodesOf("H100 8 lost", "H100 8 lost"), "16", 15},
		{15, nodesOf("H100 8 lost", "H100 8 lost"), "8", 24},
		{16, nodesOf("H100 8", "H100 8 lost", "H100 4"), "12", 0},
		{17, nodesOf("A100 8"), "12", 27},
		{27, nil, "0", 0},
		{28, nodesOf("H100 8"), "8", 0},
	} {
		_, again := look(t, cq, r, start.Add(time.Duration(step.minute)*time.Minute), step.nodes)
		want := time.Time{}
		if step.againAfter > 0 {
			want = start.Add(time.Duration(step.againAfter) * time.Minute)
		}
		if got := quotaOf(cq, 0).NominalQuota.String(); got != step.quota || !again.Equal(want) {
			t.Fatalf("minute %d: %s, again at %s; want %s, %s", step.minute, got, again, step.quota, want)
		}
	}
}

// What was declared comes back with the last policy, also what somebody declared meanwhile.
func TestDeclaredQuotaComesBack(t *testing.T) {
	nodes := nodesOf("H100 8")
	cq := queue("100")
	quotaOf(cq, 0).LendingLimit = ptr.To(resource.MustParse("50"))
	changes, _ := look(t, cq, from(50, 0), start, nodes)
	if want := "nvidia.com/gpu of h100: 4 instead of 100, nvidia.com/gpu of spot: 0 instead of 100"; changes != want {
		t.Errorf("%s\nwant %s", changes, want)
	}
	if limit := quotaOf(cq, 0).LendingLimit.String(); limit != "4" {
		t.Errorf("a lending limit of %s beside a quota of 4", limit)
	}
	quotaOf(cq, 1).NominalQuota = resource.MustParse("3") // by hand, and not in force
	look(t, cq, from(50, 0), start, nodes)
	if got := quotaOf(cq, 1).NominalQuota.String(); got != "0" {
		t.Errorf("%s by hand", got)
	}
	look(t, cq, Rule{}, start, nodes)
	if a, b, limit := quotaOf(cq, 0).NominalQuota.String(), quotaOf(cq, 1).NominalQuota.String(), quotaOf(cq, 0).LendingLimit.String(); a != "100" || b != "3" || limit != "50" {
		t.Errorf("%s, %s, lends %s", a, b, limit)
	}
	if cq.Annotations[Annotation] != "" {
		t.Errorf("left behind: %v", cq.Annotations)
	}
}

// An annotation that somebody broke is none.
func TestBrokenRecord(t *testing.T) {
	for _, text := range []string{"{", "null", "[]", `{"h100":null}`, `{"h100":{"nvidia.com/gpu":null}}`, `{"h100":{"nvidia.com/gpu":{"nodes":{"now":"x"}}}}`} {
		cq := queue("100")
		cq.Annotations = map[string]string{Annotation: text}
		if look(t, cq, from(100, 0), start, nodesOf("H100 8")); quotaOf(cq, 0).NominalQuota.String() != "8" {
			t.Errorf("%s: %s", text, quotaOf(cq, 0).NominalQuota.String())
		}
	}
	// Amounts that are held for a century are held for the grace.
	cq := queue("1000")
	cq.Annotations = map[string]string{Annotation: `{"h100":{"nvidia.com/gpu":{"declared":"5","written":"1k","nodes":{"now":"8","held":[{"amount":"1000","until":"2126-01-01T00:00:00Z"}]}}}}`}
	if _, again := look(t, cq, from(100, time.Minute), start, nodesOf("H100 8")); !again.Equal(start.Add(time.Minute)) {
		t.Errorf("again at %s", again)
	}
}

// At every look the quota is the most that nodes gave within the grace, and looking again at the same changes nothing.
func TestQuotaIsTheMostWithinTheGrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type seen struct {
			at     time.Time
			amount int
		}
		cq, grace := queue("100"), time.Duration(rapid.IntRange(0, 30).Draw(t, "grace"))*time.Second
		at, gave := start, []seen{}
		for range rapid.IntRange(1, most).Draw(t, "looks") { // so many that none are merged
			at = at.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "pause")) * time.Second)
			cards := rapid.IntRange(0, 9).Draw(t, "cards")
			nodes := nodesOf(fmt.Sprintf("H100 %d", cards))
			look(t, cq, from(100, grace), at, nodes)
			want := cards
			for i, s := range gave {
				// An amount is given until the look that sees another, and counts for the grace from then on.
				until := at
				if i+1 < len(gave) {
					until = gave[i+1].at
				}
				if s.amount > want && until.Add(grace).After(at) {
					want = s.amount
				}
			}
			gave = append(gave, seen{at, cards})
			if got := quotaOf(cq, 0).NominalQuota.Value(); got != int64(want) {
				t.Fatalf("%d, want %d", got, want)
			}
			text := cq.Annotations[Annotation]
			if changes, _ := look(t, cq, from(100, grace), at, nodes); changes != "" || cq.Annotations[Annotation] != text {
				t.Fatalf("the same look again: %q", changes)
			}
		}
	})
}

// However often nodes go, what is stored is bounded, and the quota never smaller than it should be.
func TestRecordIsBounded(t *testing.T) {
	cq := queue("0")
	for i := range 1000 {
		look(t, cq, from(100, time.Hour), start.Add(time.Duration(i)*time.Second), nodesOf(fmt.Sprintf("H100 %d", 1000-i)))
	}
	if got := quotaOf(cq, 0).NominalQuota.String(); got != "1k" || len(cq.Annotations[Annotation]) > 2048 {
		t.Errorf("%s, %d bytes stored", got, len(cq.Annotations[Annotation]))
	}
}

// Quotas of a window hold while it is open, in its time zone, and what nodes had is not held for the grace when it closes.
func TestWindows(t *testing.T) {
	spec := &v1alpha1.QueuePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.QueuePolicySpec{
		TargetRefs: []v1alpha1.TargetRef{{Kind: v1alpha1.KindClusterQueue, Name: "a"}},
		Quota: &v1alpha1.Quota{ShareOfNodes: ptr.To[int32](50), Windows: []v1alpha1.Window{
			{Name: "deadline", Start: "0 21 17 11 *", Duration: "1h", Quotas: []v1alpha1.WindowQuota{{Flavor: "spot", Resource: string(gpu), NominalQuota: resource.MustParse("3")}}},
			{Name: "nights", Start: "0 20 * * *", Duration: "10h", TimeZone: "Europe/Berlin", ShareOfNodes: ptr.To[int32](100), Quotas: []v1alpha1.WindowQuota{
				{Flavor: "spot", Resource: string(gpu), NominalQuota: resource.MustParse("1")},
				{Flavor: "spot", Resource: "example.com/licenses", NominalQuota: resource.MustParse("0")},
			}},
		}},
	}}
	resolved := policy.Resolve([]*v1alpha1.QueuePolicy{spec}, policy.World{ClusterQueues: map[string]string{"a": ""}})
	r, err := RuleOf(resolved.ClusterQueue("a"), map[string]*v1alpha1.QueuePolicy{"p": spec})
	if err != nil {
		t.Fatal(err)
	}
	cq := queue("9")
	hour := func(h, m int) time.Time { return start.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute) }
	for _, step := range []struct {
		at                   time.Time
		h100, spot, licenses string
		again                time.Time
	}{
		{hour(12, 0), "4", "0", "7", hour(19, 0)}, // 20:00 in Berlin is 19:00
		{hour(19, 0), "8", "1", "0", hour(21, 0)},
		{hour(21, 0), "8", "3", "0", hour(22, 0)},
		{hour(22, 0), "8", "1", "0", hour(29, 0)},
		{hour(28, 59), "8", "1", "0", hour(29, 0)},
		{hour(29, 0), "4", "0", "7", hour(43, 0)},
	} {
		_, again := look(t, cq, r, step.at, nodesOf("H100 8"))
		h, s, l := quotaOf(cq, 0).NominalQuota.String(), quotaOf(cq, 1).NominalQuota.String(), cq.Spec.ResourceGroups[0].Flavors[1].Resources[1].NominalQuota.String()
		if h != step.h100 || s != step.spot || l != step.licenses || !again.Equal(step.again) {
			t.Errorf("at %s: %s, %s, %s, again at %s; want %+v", step.at, h, s, l, again, step)
		}
	}
	look(t, cq, Rule{}, hour(30, 0), nodesOf("H100 8"))
	if got := quotaOf(cq, 1).NominalQuota.String(); got != "9" || len(cq.Annotations) > 0 {
		t.Errorf("%s comes back, %v", got, cq.Annotations)
	}
}
