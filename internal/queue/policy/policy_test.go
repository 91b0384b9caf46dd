package policy

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// The tree of the tests: LocalQueue team/main in ClusterQueue a in Cohort left below top; ClusterQueue b in top; c alone.
func tree() World {
	return World{
		Cohorts:       map[string]string{"top": "", "left": "top", "x": "y", "y": "x"},
		ClusterQueues: map[string]string{"a": "left", "b": "top", "c": "", "ring": "x"},
		LocalQueues: map[types.NamespacedName]string{
			{Namespace: "team", Name: "main"}: "a", {Namespace: "team", Name: "night"}: "a", {Namespace: "other", Name: "main"}: "b",
			{Namespace: "lost", Name: "main"}: "gone",
		},
		PreemptNobody: map[string]bool{"a": true},
	}
}

// policy made from words: "Cohort/top", "LocalQueue/team/main", "delay=5m", "capacity=DRF", …
func policy(name string, age int, words string) *v1alpha1.QueuePolicy {
	p := &v1alpha1.QueuePolicy{}
	p.Name, p.Generation = name, 7
	p.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-age), 0))
	for _, word := range strings.Fields(words) {
		key, value, set := strings.Cut(word, "=")
		if !set {
			parts := strings.Split(word, "/")
			ref := v1alpha1.TargetRef{Kind: v1alpha1.TargetKind(parts[0]), Name: parts[len(parts)-1]}
			if len(parts) == 3 {
				ref.Namespace = parts[1]
			}
			p.Spec.TargetRefs = append(p.Spec.TargetRefs, ref)
			continue
		}
		assign(&p.Spec, key, value)
	}
	return p
}

func assign(spec *v1alpha1.QueuePolicySpec, key, value string) {
	d := ptr.To(v1alpha1.Duration(value))
	if spec.Preemption == nil {
		spec.Preemption = &v1alpha1.Preemption{}
	}
	if spec.Preemption.MinRuntime == nil {
		spec.Preemption.MinRuntime = &v1alpha1.MinRuntime{}
	}
	switch key {
	case "delay":
		spec.Preemption.Delay = d
	case "cooldown":
		spec.Preemption.Cooldown = d
	case "within":
		spec.Preemption.MinRuntime.WithinClusterQueue = d
	case "reclaim":
		spec.Preemption.MinRuntime.Reclaim = d
	case "borrowed":
		spec.Preemption.MinRuntime.Borrowed = d
	case "backfill", "runtime", "quantile":
		if spec.Backfill == nil {
			spec.Backfill = &v1alpha1.Backfill{}
		}
		switch key {
		case "backfill":
			spec.Backfill.Strategy = v1alpha1.BackfillStrategy(value)
		case "runtime":
			spec.Backfill.RunTime = d
		default:
			n, err := strconv.Atoi(value)
			if err != nil {
				panic(err)
			}
			spec.Backfill.Quantile = ptr.To(int32(n))
		}
	case "share", "headroom", "grace", "window":
		if spec.Quota == nil {
			spec.Quota = &v1alpha1.Quota{}
		}
		n, _ := strconv.Atoi(value)
		switch key {
		case "share":
			spec.Quota.ShareOfNodes = ptr.To(int32(n))
		case "headroom":
			spec.Quota.Headroom = ptr.To(int32(n))
		case "grace":
			spec.Quota.Grace = d
		default: // start, duration and zone, with underscores for spaces
			part := strings.SplitN(strings.ReplaceAll(value, "_", " "), ",", 3)
			spec.Quota.Windows = append(spec.Quota.Windows, v1alpha1.Window{
				Name: "w", Start: part[0], Duration: v1alpha1.Duration(part[1]), TimeZone: part[2], ShareOfNodes: ptr.To[int32](50),
			})
		}
	case "grow":
		spec.ElasticJobs = &v1alpha1.ElasticJobs{GrowAfter: d}
	case "namespaces":
		spec.Dependencies = &v1alpha1.Dependencies{Namespaces: strings.Split(value, ",")}
	case "never":
		spec.Preemption.NeverPreempt = v1alpha1.NeverPreempt(value)
	case "capacity":
		spec.Capacity = v1alpha1.Capacity(value)
	case "order":
		spec.Order = v1alpha1.Order(value)
	default:
		panic(key)
	}
}

func show(s Settings) string {
	var b strings.Builder
	for _, v := range s {
		fmt.Fprintf(&b, "%s=%s (%s, %s) ", v.Field, v.Value, v.Policy, v.From)
	}
	return strings.TrimSpace(b.String())
}

func TestNearestWinsFieldByField(t *testing.T) {
	for name, test := range map[string]struct {
		policies []string // name: words; the first is the oldest
		at       string
		want     string
	}{
		"none":                        {nil, "LocalQueue/team/main", ""},
		"honoured here, not above":    {[]string{"p: Cohort/top never=Ignore", "q: LocalQueue/team/main never=Honor"}, "LocalQueue/team/main", "preemption.neverPreempt=Honor (q, LocalQueue/team/main)"},
		"backfill":                    {[]string{"p: Cohort/top backfill=EASY runtime=4h", "q: LocalQueue/team/main quantile=90"}, "LocalQueue/team/main", "backfill.strategy=EASY (p, Cohort/top) backfill.runTime=4h (p, Cohort/top) backfill.quantile=90 (q, LocalQueue/team/main)"},
		"from the root":               {[]string{"p: Cohort/top delay=5m"}, "LocalQueue/team/main", "preemption.delay=5m (p, Cohort/top)"},
		"nearer cohort":               {[]string{"p: Cohort/top delay=5m", "q: Cohort/left delay=1m"}, "LocalQueue/team/main", "preemption.delay=1m (q, Cohort/left)"},
		"cluster queue before cohort": {[]string{"p: Cohort/left delay=5m", "q: ClusterQueue/a delay=0s"}, "LocalQueue/team/main", "preemption.delay=0s (q, ClusterQueue/a)"},
		"local queue before all":      {[]string{"p: ClusterQueue/a delay=5m", "q: LocalQueue/team/main delay=1m"}, "LocalQueue/team/main", "preemption.delay=1m (q, LocalQueue/team/main)"},
		"not its sibling's":           {[]string{"q: LocalQueue/team/main delay=1m"}, "LocalQueue/team/night", ""},
		"not what is below":           {[]string{"q: LocalQueue/team/main delay=1m"}, "ClusterQueue/a", ""},
		"field by field": {[]string{"p: Cohort/top delay=5m cooldown=10m within=1m", "q: ClusterQueue/a within=2m borrowed=3m", "r: LocalQueue/team/main delay=1m"}, "LocalQueue/team/main",
			"preemption.delay=1m (r, LocalQueue/team/main) preemption.minRuntime.withinClusterQueue=2m (q, ClusterQueue/a) preemption.minRuntime.borrowed=3m (q, ClusterQueue/a) preemption.cooldown=10m (p, Cohort/top)"},
		"the older of two":              {[]string{"q: Cohort/top delay=5m", "p: Cohort/top delay=1m cooldown=1m"}, "ClusterQueue/b", "preemption.delay=5m (q, Cohort/top)"},
		"capacity at the root":          {[]string{"p: Cohort/top capacity=DRF"}, "LocalQueue/team/main", "capacity=DRF (p, Cohort/top)"},
		"capacity below the root":       {[]string{"p: Cohort/left capacity=DRF", "q: Cohort/top capacity=MaxMin"}, "ClusterQueue/a", "capacity=MaxMin (q, Cohort/top)"},
		"capacity of a lone queue":      {[]string{"p: ClusterQueue/c capacity=DRF"}, "ClusterQueue/c", ""},
		"order from a cohort":           {[]string{"p: Cohort/top order=LeastAttainedService", "q: Cohort/left order=Age"}, "ClusterQueue/a", "order=Age (q, Cohort/left)"},
		"quota":                         {[]string{"p: Cohort/top share=50 headroom=10", "q: ClusterQueue/a share=25 grace=1h"}, "ClusterQueue/a", "quota.shareOfNodes=25 (q, ClusterQueue/a) quota.headroom=10 (p, Cohort/top) quota.grace=1h (q, ClusterQueue/a)"},
		"a ring of cohorts":             {[]string{"p: Cohort/y delay=1m capacity=DRF"}, "ClusterQueue/ring", "preemption.delay=1m (p, Cohort/y)"},
		"a queue that is gone":          {[]string{"p: ClusterQueue/gone delay=1m"}, "LocalQueue/lost/main", "preemption.delay=1m (p, ClusterQueue/gone)"},
		"a wrong value leaves it above": {[]string{"p: Cohort/top delay=5m", "q: ClusterQueue/a delay=soon"}, "ClusterQueue/a", "preemption.delay=5m (p, Cohort/top)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Resolve(policies(test.policies), tree())
			if got := show(r.at(targetOf(policy("", 0, test.at).Spec.TargetRefs[0]))); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

func policies(lines []string) []*v1alpha1.QueuePolicy {
	var list []*v1alpha1.QueuePolicy
	for i, line := range lines {
		name, words, _ := strings.Cut(line, ": ")
		list = append(list, policy(name, len(lines)-i, words))
	}
	return list
}

func TestStatus(t *testing.T) {
	for name, test := range map[string]struct {
		policies        []string
		reason, message string // of the last policy
	}{
		"accepted":          {[]string{"p: Cohort/top delay=5m"}, "Accepted", "In force at all targets"},
		"no such target":    {[]string{"p: Cohort/top ClusterQueue/zz delay=5m"}, "TargetNotFound", "spec.targetRefs[1]: there is no ClusterQueue/zz"},
		"another namespace": {[]string{"p: LocalQueue/nobody/main delay=5m"}, "TargetNotFound", "spec.targetRefs[0]: there is no LocalQueue/nobody/main"},
		"conflict":          {[]string{"q: Cohort/top delay=5m", "p: Cohort/top Cohort/left delay=1m"}, "Conflicted", "spec.targetRefs[0]: Cohort/top has an older policy, q"},
		"wrong value":       {[]string{"p: Cohort/top Cohort/zz delay=5x"}, "Invalid", `spec.preemption.delay: "5x" is no time span such as 90s, 10m, 36h; spec.targetRefs[1]: there is no Cohort/zz`},
		"too long":          {[]string{"p: Cohort/top cooldown=721h"}, "Invalid", "spec.preemption.cooldown: 721h must be at least 0s and at most 720h"},
		"negative":          {[]string{"p: Cohort/top reclaim=-1s"}, "Invalid", "spec.preemption.minRuntime.reclaim: -1s must be at least 0s and at most 720h"},
		"empty":             {[]string{"p: Cohort/top delay="}, "Invalid", `spec.preemption.delay: "\"\"" is no time span such as 90s, 10m, 36h`},
		"capacity":          {[]string{"p: Cohort/top capacity=Lottery"}, "Invalid", `spec.capacity: "Lottery" is none of FIFO, DRF, MaxMin`},
		"order":             {[]string{"p: Cohort/top order=Best"}, "Invalid", `spec.order: "Best" is none of Age, LeastAttainedService`},
		"order too low":     {[]string{"p: LocalQueue/team/main order=Age"}, "NoEffect", "spec.targetRefs[0]: spec.order means something at a Cohort or a ClusterQueue alone, and LocalQueue/team/main is none"},
		"share":             {[]string{"p: Cohort/top share=101"}, "Invalid", "spec.quota.shareOfNodes: 101 must be at least 1 and at most 100"},
		"share too low":     {[]string{"p: LocalQueue/team/main share=10"}, "NoEffect", "spec.targetRefs[0]: spec.quota.shareOfNodes means something at a Cohort or a ClusterQueue alone, and LocalQueue/team/main is none"},
		"a window":          {[]string{"p: Cohort/top window=0_20_*_*_1-5,12h,Europe/Berlin"}, "Accepted", "In force at all targets"},
		"no such time":      {[]string{"p: Cohort/top window=0_25_*_*_*,12h,"}, "Invalid", `spec.quota.windows: w: start: end of range (25) above maximum (23): 25`},
		"no such zone":      {[]string{"p: Cohort/top window=0_20_*_*_*,12h,Mars/North"}, "Invalid", `spec.quota.windows: w: timeZone: unknown time zone Mars/North`},
		"zone in the start": {[]string{"p: Cohort/top window=TZ=UTC_0_20_*_*_*,12h,"}, "Invalid", `spec.quota.windows: w: start: say the time zone in timeZone`},
		"never":             {[]string{"p: Cohort/top window=0_0_31_2_*,12h,"}, "Invalid", `spec.quota.windows: w: start: 0 0 31 2 * never comes`},
		"too short":         {[]string{"p: Cohort/top window=0_20_*_*_*,1s,"}, "Invalid", `spec.quota.windows: w: duration: 1s is less than a minute`},
		"no effect":         {[]string{"p: Cohort/left capacity=DRF"}, "NoEffect", "spec.targetRefs[0]: spec.capacity means something at the root Cohort of a tree alone, and Cohort/left is none"},
		"grows in vain":     {[]string{"p: ClusterQueue/a ClusterQueue/b grow=1m"}, "NoEffect", "spec.targetRefs[0]: spec.elasticJobs.growAfter: ClusterQueue a preempts nobody of its own (withinClusterQueue), so what jobs grow into could not be taken back"},
		"local in vain":     {[]string{"p: LocalQueue/team/main grow=1m"}, "NoEffect", "spec.targetRefs[0]: spec.elasticJobs.growAfter: ClusterQueue a preempts nobody of its own (withinClusterQueue), so what jobs grow into could not be taken back"},
		"grows":             {[]string{"p: Cohort/top ClusterQueue/b grow=1m"}, "Accepted", "In force at all targets"},
		"share of nothing":  {[]string{"p: ClusterQueue/a headroom=5 grace=1m"}, "NoEffect", "spec.targetRefs[0]: spec.quota.grace: no quota of ClusterQueue/a is a share of nodes (quota.shareOfNodes); spec.targetRefs[0]: spec.quota.headroom: no quota of ClusterQueue/a is a share of nodes (quota.shareOfNodes)"},
		"share from above":  {[]string{"q: Cohort/top share=50", "p: ClusterQueue/a headroom=5"}, "Accepted", "In force at all targets"},
		"share in a window": {[]string{"q: Cohort/top window=0_20_*_*_*,12h,", "p: ClusterQueue/a grace=1m"}, "Accepted", "In force at all targets"},
		"headroom for all":  {[]string{"p: Cohort/top headroom=5"}, "Accepted", "In force at all targets"},
		"effect elsewhere":  {[]string{"p: Cohort/top Cohort/left capacity=DRF delay=1m"}, "Accepted", "In force at all targets"},
	} {
		t.Run(name, func(t *testing.T) {
			list := policies(test.policies)
			targets, condition := Resolve(list, tree()).Status(list[len(list)-1])
			if condition.Reason != test.reason || condition.Message != test.message {
				t.Errorf("%s: %s\nwant %s: %s", condition.Reason, condition.Message, test.reason, test.message)
			}
			if accepted := condition.Status == metav1.ConditionTrue; accepted != (test.reason == "Accepted") || condition.ObservedGeneration != 7 {
				t.Errorf("%+v", condition)
			}
			if len(targets) != len(list[len(list)-1].Spec.TargetRefs) {
				t.Errorf("%d targets", len(targets))
			}
		})
	}
}

// A policy is told what is in force at its target by whatever policy.
func TestStatusShowsWhatIsInForce(t *testing.T) {
	list := policies([]string{"p: Cohort/top cooldown=10m", "q: ClusterQueue/b delay=1m"})
	targets, _ := Resolve(list, tree()).Status(list[1])
	want := "preemption.delay=1m (q, ClusterQueue/b) preemption.cooldown=10m (p, Cohort/top)"
	if got := show(targets[0].InForce); got != want || targets[0].Target != "ClusterQueue/b" {
		t.Errorf("%s: %s\nwant %s", targets[0].Target, got, want)
	}
}

// Whatever order policies come in, the same is in force and the same is told; and a value in force is that of the
// nearest target which has one.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	targets := []string{"Cohort/top", "Cohort/left", "Cohort/x", "Cohort/y", "ClusterQueue/a", "ClusterQueue/b", "ClusterQueue/ring", "LocalQueue/team/main", "LocalQueue/team/night", "LocalQueue/zz/zz"}
	values := []string{"delay=1m", "delay=2m", "cooldown=3m", "within=4m", "reclaim=0s", "borrowed=bad", "never=Honor", "never=Maybe", "namespaces=data", "namespaces=*", "namespaces=No!", "backfill=EASY", "backfill=None", "runtime=1h", "quantile=101", "quantile=90", "share=50", "share=0", "headroom=99", "grace=5m", "capacity=DRF", "capacity=MaxMin"}
	rapid.Check(t, func(t *rapid.T) {
		var list []*v1alpha1.QueuePolicy
		for i := range rapid.IntRange(0, 6).Draw(t, "policies") {
			words := append(rapid.SliceOfNDistinct(rapid.SampledFrom(targets), 1, 3, rapid.ID[string]).Draw(t, "targets"),
				rapid.SliceOfN(rapid.SampledFrom(values), 1, 4).Draw(t, "values")...)
			list = append(list, policy(fmt.Sprintf("p%d", i), rapid.IntRange(0, 2).Draw(t, "age"), strings.Join(words, " ")))
		}
		one, other := Resolve(list, tree()), Resolve(rapid.Permutation(list).Draw(t, "order"), tree())
		for _, name := range targets {
			at := targetOf(policy("", 0, name).Spec.TargetRefs[0])
			if a, b := one.at(at), other.at(at); !reflect.DeepEqual(a, b) {
				t.Fatalf("at %s: %s or %s", name, show(a), show(b))
			}
			nearest(t, one, at)
		}
		for _, p := range list {
			a, ca := one.Status(p)
			b, cb := other.Status(p)
			if !reflect.DeepEqual(a, b) || ca != cb {
				t.Fatalf("%s is told %v %v or %v %v", p.Name, a, ca, b, cb)
			}
		}
	})
}

// nearest fails if a value in force at a target does not come from the nearest policy that sets it rightly.
func nearest(t *rapid.T, r *Resolved, at target) {
	path := r.path(at)
	got := map[string]v1alpha1.Value{}
	for _, v := range r.at(at) {
		got[v.Field] = v
	}
	for _, f := range fields {
		want := ""
		for _, step := range path {
			if p := r.counts[step]; want == "" && p != nil && r.means(&f, step) && f.text(&p.Spec) != "" && f.problem(&p.Spec) == nil {
				want = step.String()
			}
		}
		if got[f.path].From != want {
			t.Fatalf("%s at %s comes from %q, not %q", f.path, at, got[f.path].From, want)
		}
	}
}

// Jobs may wait for those of namespaces that the nearest policy names.
func TestMayWaitFor(t *testing.T) {
	r := Resolve([]*v1alpha1.QueuePolicy{
		policy("p", 2, "Cohort/top namespaces=data,ingest"), policy("q", 1, "ClusterQueue/b namespaces=*"), policy("r", 1, "ClusterQueue/c namespaces=No!"),
	}, tree())
	for _, test := range []struct {
		settings  Settings
		namespace string
		want      bool
	}{
		{r.ClusterQueue("a"), "data", true},
		{r.ClusterQueue("a"), "ingest", true},
		{r.ClusterQueue("a"), "dat", false},
		{r.ClusterQueue("a"), "*", false},
		{r.ClusterQueue("b"), "anything", true},
		{r.ClusterQueue("c"), "data", false},
		{nil, "data", false},
	} {
		if got := test.settings.MayWaitFor(test.namespace); got != test.want {
			t.Errorf("%v %s: %v", test.settings, test.namespace, got)
		}
	}
}
