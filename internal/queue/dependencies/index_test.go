package dependencies

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// work is the workload of job/NAME, called wl-NAME.
func work(namespace, job, after string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name, wl.UID = namespace, "wl-"+job, types.UID(namespace+job)
	wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: wl.UID}}
	if after != "" {
		wl.Annotations = map[string]string{v1alpha1.AfterAnnotation: after}
	}
	return wl
}

func ended(wl *kueue.Workload, reason string) *kueue.Workload {
	wl = wl.DeepCopy()
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: reason}}
	return wl
}

// indexes is the workload of an indexed job some of whose indexes ended.
func indexes(wl *kueue.Workload, text string) *kueue.Workload {
	wl = wl.DeepCopy()
	wl.Annotations = map[string]string{v1alpha1.EndedIndexesAnnotation: text}
	return wl
}

// nowhere lets nobody wait for other namespaces, and data lets all wait for namespace data.
func nowhere(*kueue.Workload, string) bool          { return false }
func data(_ *kueue.Workload, namespace string) bool { return namespace == "data" }
func key(namespace, job string) admission.Key {
	return admission.Key{Namespace: namespace, Name: "wl-" + job}
}
func built(may Policy, list ...*kueue.Workload) *Index { return fill(&Index{}, may, list...) }

func fill(x *Index, may Policy, list ...*kueue.Workload) *Index {
	x.Use()
	for _, wl := range list {
		x.Set(wl, may)
	}
	return x
}

func (s Standing) String() string {
	text := s.Waits + s.Invalid
	if s.InVain {
		text = "in vain: " + text
	}
	for _, d := range s.Met {
		text += " met: " + d.In("ns")
	}
	return strings.TrimSpace(text)
}

func TestStanding(t *testing.T) {
	const ok, failed = kueue.WorkloadFinishedReasonSucceeded, kueue.WorkloadFinishedReasonFailed
	later := func(wl *kueue.Workload) *kueue.Workload {
		wl.Name += "-again"
		wl.CreationTimestamp = metav1.NewTime(time.Unix(100, 0))
		return wl
	}
	for name, test := range map[string]struct {
		after  string
		others []*kueue.Workload
		may    Policy
		want   string
	}{
		"nothing":               {"", nil, nowhere, ""},
		"index not ended":       {"ok job/a[3]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok 0-2,4")}, nowhere, "It comes after ok job/a[3] (has not ended)"},
		"index ended":           {"ok job/a[3]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok 0-2,3-5")}, nowhere, "All that it comes after has ended met: ok job/a[3]"},
		"index failed":          {"ok job/a[3]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok 0-2 notok 3")}, nowhere, "in vain: It comes after ok job/a[3] (failed)"},
		"index failed as asked": {"notok job/a[3]", []*kueue.Workload{indexes(work("ns", "a", ""), "notok 3")}, nowhere, "All that it comes after has ended met: notok job/a[3]"},
		"index of a failed job": {"ok job/a[1], ok job/a[2]", []*kueue.Workload{ended(indexes(work("ns", "a", ""), "ok 1"), failed)}, nowhere, "in vain: It comes after ok job/a[2] (failed) met: ok job/a[1]"},
		"index of an ended job": {"any job/a[7]", []*kueue.Workload{ended(work("ns", "a", ""), ok)}, nowhere, "All that it comes after has ended met: any job/a[7]"},
		"index of one again":    {"ok job/a[1]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok 1"), later(work("ns", "a", ""))}, nowhere, "It comes after ok job/a[1] (has not ended)"},
		"range of indexes":      {"ok job/a[0-2]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok 0-1")}, nowhere, "It comes after ok job/a[2] (has not ended) met: ok job/a[0] met: ok job/a[1]"},
		"a forged list":         {"ok job/a[1]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok -,x,1-, 2-1 notok")}, nowhere, "It comes after ok job/a[1] (has not ended)"},
		"a forged long list":    {"ok job/a[1]", []*kueue.Workload{indexes(work("ns", "a", ""), "ok "+strings.Repeat("1,", 50_000))}, nowhere, "It comes after ok job/a[1] (has not ended)"},
		"not there":             {"ok job/a", nil, nowhere, "It comes after ok job/a (not in a queue)"},
		"not ended":             {"ok job/a", []*kueue.Workload{work("ns", "a", "")}, nowhere, "It comes after ok job/a (has not ended)"},
		"ended":                 {"ok job/a", []*kueue.Workload{ended(work("ns", "a", ""), ok)}, nowhere, "All that it comes after has ended met: ok job/a"},
		"failed":                {"ok job/a", []*kueue.Workload{ended(work("ns", "a", ""), failed)}, nowhere, "in vain: It comes after ok job/a (failed)"},
		"succeeded":             {"notok job/a", []*kueue.Workload{ended(work("ns", "a", ""), ok)}, nowhere, "in vain: It comes after notok job/a (succeeded)"},
		"failed as asked":       {"notok job/a", []*kueue.Workload{ended(work("ns", "a", ""), failed)}, nowhere, "All that it comes after has ended met: notok job/a"},
		"either way":            {"any job/a", []*kueue.Workload{ended(work("ns", "a", ""), failed)}, nowhere, "All that it comes after has ended met: any job/a"},
		"refused is failed":     {"ok job/a", []*kueue.Workload{ended(work("ns", "a", ""), kueue.WorkloadFinishedReasonOutOfSync)}, nowhere, "in vain: It comes after ok job/a (failed)"},
		"deleted before":        {"any job/a", []*kueue.Workload{ended(work("ns", "a", ""), kueue.WorkloadFinishedReasonOwnerNotFound)}, nowhere, "It comes after any job/a (not in a queue)"},
		"grown":                 {"any job/a", []*kueue.Workload{ended(work("ns", "a", ""), kueue.WorkloadSliceReplaced), later(work("ns", "a", ""))}, nowhere, "It comes after any job/a (has not ended)"},
		"run again":             {"ok job/a", []*kueue.Workload{later(ended(work("ns", "a", ""), ok)), ended(work("ns", "a", ""), failed)}, nowhere, "All that it comes after has ended met: ok job/a"},
		"runs again":            {"ok job/a", []*kueue.Workload{ended(work("ns", "a", ""), ok), later(work("ns", "a", ""))}, nowhere, "It comes after ok job/a (has not ended)"},
		"by its workload":       {"any workload/wl-a", []*kueue.Workload{work("ns", "a", "")}, nowhere, "It comes after any workload/wl-a (has not ended)"},
		"another kind":          {"ok jobset/a", []*kueue.Workload{work("ns", "a", "")}, nowhere, "It comes after ok jobset/a (not in a queue)"},
		"some":                  {"ok job/a, any job/b", []*kueue.Workload{ended(work("ns", "a", ""), ok)}, nowhere, "It comes after any job/b (not in a queue) met: ok job/a"},
		"what is in vain first": {"ok job/b, ok job/a", []*kueue.Workload{ended(work("ns", "a", ""), failed)}, nowhere, "in vain: It comes after ok job/a (failed), ok job/b (not in a queue)"},
		"many":                  {"ok job/a, ok job/b, ok job/c, ok job/d, ok job/e", nil, nowhere, "It comes after ok job/a (not in a queue), ok job/b (not in a queue), ok job/c (not in a queue) and 2 more"},
		"itself":                {"ok job/x", nil, nowhere, "in vain: It comes after ok job/x (which it is itself)"},
		"each other":            {"ok job/a", []*kueue.Workload{work("ns", "a", "any workload/wl-x")}, nowhere, "in vain: It comes after ok job/a (which comes after it)"},
		"in a ring":             {"ok job/a", []*kueue.Workload{work("ns", "a", "ok job/b"), work("ns", "b", "any job/x")}, nowhere, "in vain: It comes after ok job/a (which comes after it)"},
		"behind a ring":         {"ok job/a", []*kueue.Workload{work("ns", "a", "ok job/b"), work("ns", "b", "any job/a")}, nowhere, "It comes after ok job/a (has not ended)"},
		"not allowed, is there": {"ok job/data/a", []*kueue.Workload{ended(work("data", "a", ""), ok)}, nowhere, "in vain: It comes after ok job/data/a (no QueuePolicy lets jobs of this queue wait for those of namespace data)"},
		"not allowed, is not":   {"ok job/data/a", nil, nowhere, "in vain: It comes after ok job/data/a (no QueuePolicy lets jobs of this queue wait for those of namespace data)"},
		"allowed":               {"ok job/data/a", []*kueue.Workload{ended(work("data", "a", ""), ok)}, data, "All that it comes after has ended met: ok job/data/a"},
		"allowed elsewhere":     {"ok job/secret/a", []*kueue.Workload{ended(work("secret", "a", ""), ok)}, data, "in vain: It comes after ok job/secret/a (no QueuePolicy lets jobs of this queue wait for those of namespace secret)"},
		"wrong":                 {"job/a", nil, nowhere, `annotation elasticai.io/after: "job/a" is not of the form "ok job/prepare"`},
	} {
		t.Run(name, func(t *testing.T) {
			x := built(test.may, append(test.others, work("ns", "x", test.after))...)
			if got := x.Of(key("ns", "x")).String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			again := built(test.may, append([]*kueue.Workload{work("ns", "x", test.after)}, test.others...)...)
			if got := again.Of(key("ns", "x")).String(); got != test.want {
				t.Errorf("first come, it says %s", got)
			}
		})
	}
}

// Quota ends what a workload waits for, for good: it said so itself, or had quota.
func TestWhatIsMetStaysMet(t *testing.T) {
	wl := work("ns", "x", "ok job/a, any job/b")
	workload.SetMet(wl, []workload.Dependency{{When: workload.WhenOK, Kind: "job", Namespace: "ns", Name: "a"}})
	x := built(nowhere, wl)
	if got := x.Of(key("ns", "x")).String(); got != "It comes after any job/b (not in a queue)" {
		t.Error(got)
	}
	wl = wl.DeepCopy()
	wl.Status.Admission = &kueue.Admission{}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	x.Set(wl, nowhere)
	if got := x.Of(key("ns", "x")).String(); got != "" {
		t.Error(got)
	}
}

// Whatever happened before, the index says what one says that is told of the workloads there are now, in any order; and
// it names all for which that has changed.
func TestIndexForgetsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := []string{"a", "b", "c", "d", "e"}
		x, now := built(data), map[admission.Key]*kueue.Workload{}
		may := data
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			namespace := rapid.SampledFrom([]string{"ns", "ns", "data", "secret"}).Draw(t, "namespace")
			job := rapid.SampledFrom(jobs).Draw(t, "job")
			k := key(namespace, job)
			before := standings(x, now)
			var touched []admission.Key
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				delete(now, k)
				touched = x.Gone(k)
			case 1:
				if now[k] == nil {
					continue
				}
				now[k] = ended(now[k], rapid.SampledFrom([]string{kueue.WorkloadFinishedReasonSucceeded, kueue.WorkloadFinishedReasonFailed, kueue.WorkloadFinishedReasonOwnerNotFound}).Draw(t, "how"))
				touched = x.Set(now[k], may)
			case 2:
				may = nowhere
				if rapid.Bool().Draw(t, "policy") {
					may = data
				}
				touched = x.Recheck(func(k admission.Key) *kueue.Workload { return now[k] }, may)
			case 3:
				if now[k] == nil {
					continue
				}
				now[k] = now[k].DeepCopy()
				if met := x.Of(k).Met; len(met) > 0 {
					workload.SetMet(now[k], met)
				}
				touched = x.Set(now[k], may)
			case 4:
				if now[k] == nil {
					continue
				}
				now[k] = now[k].DeepCopy()
				if now[k].Annotations == nil {
					now[k].Annotations = map[string]string{}
				}
				now[k].Annotations[v1alpha1.EndedIndexesAnnotation] = rapid.SampledFrom([]string{"", "ok 0", "ok 0-1", "ok 0 notok 1", "notok 0-2"}).Draw(t, "indexes")
				touched = x.Set(now[k], may)
			default:
				var after []string
				for range rapid.IntRange(0, 3).Draw(t, "others") {
					entry := rapid.SampledFrom([]string{"ok job/", "notok job/", "any job/", "ok job/data/", "any job/secret/", "any workload/wl-"}).Draw(t, "when") + rapid.SampledFrom(jobs).Draw(t, "whom")
					if strings.Contains(entry, " job/") {
						entry += rapid.SampledFrom([]string{"", "", "[1]", "[0-2]"}).Draw(t, "which")
					}
					after = append(after, entry)
				}
				now[k] = work(namespace, job, strings.Join(after, ", "))
				touched = x.Set(now[k], may)
			}
			is := standings(x, now)
			fresh := built(may, shuffled(t, now)...)
			if want := standings(fresh, now); fmt.Sprint(want) != fmt.Sprint(is) {
				t.Fatalf("it says\n%v\nand one that begins anew\n%v", is, want)
			}
			for other, standing := range is {
				if before[other] != standing && !slices.Contains(touched, other) && now[other] != nil && standing != "" {
					t.Fatalf("%s was %q and is %q, which nobody is told; told are %v", other, before[other], standing, touched)
				}
			}
		}
		for k := range now {
			x.Gone(k)
		}
		if len(x.nodes)+len(x.named)+len(x.waiting)+len(x.cycles) > 0 {
			t.Fatalf("all are gone, and it knows %+v", x)
		}
	})
}

// standings are what an index says of all.
func standings(x *Index, of map[admission.Key]*kueue.Workload) map[admission.Key]string {
	out := map[admission.Key]string{}
	for k := range of {
		out[k] = x.Of(k).String()
	}
	return out
}

func shuffled(t *rapid.T, of map[admission.Key]*kueue.Workload) []*kueue.Workload {
	var list []*kueue.Workload
	for _, wl := range of {
		list = append(list, wl)
	}
	slices.SortFunc(list, func(a, b *kueue.Workload) int { return strings.Compare(a.Namespace+a.Name, b.Namespace+b.Name) })
	if len(list) > 1 {
		list = rapid.Permutation(list).Draw(t, "order")
	}
	return list
}

// A thousand that wait for one job, and one that waits for a thousand, look at those whom a change concerns alone.
func TestManyWait(t *testing.T) {
	var all []string
	x := built(nowhere)
	for i := range 1000 {
		if touched := x.Set(work("ns", fmt.Sprint("w", i), "ok job/first"), nowhere); len(touched) != 1 {
			t.Fatalf("%d are looked at", len(touched))
		}
		all = append(all, fmt.Sprint("any job/w", i))
	}
	x.Set(work("ns", "last", strings.Join(all, ",")), nowhere)
	if touched := x.Set(work("ns", "else", ""), nowhere); len(touched) != 0 {
		t.Errorf("nobody waits for it, and %d are looked at", len(touched))
	}
	if touched := x.Set(work("ns", "first", ""), nowhere); len(touched) != 1000 {
		t.Errorf("a thousand wait for it, and %d are looked at", len(touched))
	}
	if touched := x.Set(ended(work("ns", "w7", "ok job/first"), kueue.WorkloadFinishedReasonFailed), nowhere); len(touched) != 1 || touched[0] != key("ns", "last") {
		t.Errorf("one waits for it, and %v are looked at", touched)
	}
	if s := x.Of(key("ns", "last")); len(s.Met) != 1 || !strings.HasSuffix(s.Waits, "and 996 more") {
		t.Errorf("%+v", s)
	}
	if list, err := workload.Dependencies(strings.Join(append(all, "ok job/x"), ","), "ns"); err == nil {
		t.Errorf("%d are taken", len(list))
	}
}
