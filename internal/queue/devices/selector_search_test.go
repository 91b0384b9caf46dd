package devices

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// costly is a selector that chooses everything. Of 28 numbers it costs a fifth of
// what Kubernetes lets it, of 46 nearly all.
func costly(numbers, n int) string {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", numbers), ",") + "]"
	return fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, a + b + c < %[2]d)))", list, n+10)
}

// nodeSlice is a node's, with eight cards.
func nodeSlice(name, model string) *resourceapi.ResourceSlice {
	s := slice(name, 1)
	s.Spec.Pool.Name = name
	for c := range 8 {
		s.Spec.Devices = append(s.Spec.Devices, card(fmt.Sprint("card-", c), model))
	}
	return s
}

// hall has so many nodes.
func hall(nodes int) []client.Object {
	list := []client.Object{deviceClass(class, "", 0)}
	for i := range nodes {
		list = append(list, nodeSlice(fmt.Sprint("node-", i), "a"))
	}
	return list
}

func counterOf(t testing.TB, seen ...client.Object) *Counter {
	t.Helper()
	b, err := New([]kueueconfig.DeviceClassMapping{counts("example.com/gpu", class)}, features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range seen {
		b.ObjectChanged(object, false)
	}
	return b
}

func counted(b *Counter, wl *kueue.Workload) admission.Workload {
	w := workload.ForEngine(wl, nil)
	b.Count(&w, wl)
	return w
}

// of a namespace.
func of[O client.Object](namespace string, object O) O {
	object.SetNamespace(namespace)
	return object
}

// outside runs searches in the background.
type outside struct{ line []*Search }

func (o *outside) search(s *Search) { o.line = append(o.line, s) }

// finish the first search.
func (o *outside) finish(b *Counter) {
	first := o.line[0]
	o.line = o.line[1:]
	for !first.Step(context.Background()) {
	}
	b.SearchDone(first)
}

// searchedElsewhere is what a workload counts as when nothing is found at once.
func searchedElsewhere(t *testing.T, mappings []kueueconfig.DeviceClassMapping, gates features.Set, seen []client.Object, wl *kueue.Workload) admission.Workload {
	t.Helper()
	counter, err := New(mappings, gates)
	if err != nil {
		t.Fatal(err)
	}
	var o outside
	counter.SearchInBackground(o.search)
	counter.budget = 0
	for _, object := range seen {
		counter.ObjectChanged(object, false)
	}
	for {
		w := counted(counter, wl)
		if w.Unready == "" {
			return w
		}
		if len(o.line) == 0 {
			t.Fatal("it waits for nothing")
		}
		o.finish(counter)
		if concerns := counter.Changed(); concerns == nil || !concerns(wl) {
			t.Fatal("its search is done, but the workload is not among the changed ones")
		}
	}
}

// A claim with costly selectors waits until its devices are counted. Who has
// others is not held up, and in each namespace one search is under way.
func TestCostlySelectorsHoldUpNobody(t *testing.T) {
	counter := counterOf(t, deviceClass(class, "", 0), slice("node", 1, card("0", "a"), card("1", "a")),
		of("greedy", template("first", request(class, 1, selecting(costly(28, 1))))),
		of("greedy", template("second", request(class, 2, selecting(costly(28, 2))))),
		of("greedy", template("third", request(class, 2, selecting(costly(28, 3))))),
		of("modest", template("quick", request(class, 1, selecting("true")))),
		of("modest", template("late", request(class, 2, selecting("1 == 1")))),
	)
	counter.Changed()
	var o outside
	counter.SearchInBackground(o.search)
	waits := func(namespace, template string) bool {
		return counted(counter, of(namespace, using(template))).Unready != ""
	}
	if !waits("greedy", "first") || !waits("greedy", "second") || !waits("greedy", "third") || !waits("greedy", "first") {
		t.Error("it counts at once")
	}
	if waits("modest", "quick") {
		t.Error("a workload with cheap selectors waits")
	}
	counter.budget = 0 // as others have spent it
	if !waits("modest", "late") || len(o.line) != 2 {
		t.Fatalf("%d searches are under way, want one of each namespace", len(o.line))
	}
	greedy, modest := o.line[0], o.line[1]
	if !greedy.Costly() || modest.Costly() || greedy.For() != (client.ObjectKey{Namespace: "greedy", Name: "first"}) {
		t.Errorf("costly: %t of %s, %t of %s", greedy.Costly(), greedy.For(), modest.Costly(), modest.For())
	}
	if greedy.Step(t.Context()) || greedy.device > 1 {
		t.Error("a step is more than one selector at the limit")
	}
	if !modest.Step(t.Context()) {
		t.Error("a step is not enough for what costs little")
	}
	counter.SearchDone(modest)
	if w := counted(counter, of("modest", using("late"))); w.PodSets[0].Requests["example.com/gpu"] != 2 {
		t.Errorf("counted as %+v", w)
	}

	o.line = o.line[:1]
	o.finish(counter)
	concerns := counter.Changed()
	if !concerns(of("greedy", using("first"))) || concerns(of("greedy", using("second"))) || waits("greedy", "first") {
		t.Error("the first has been searched for, the second has not")
	}
	if len(o.line) != 1 || o.line[0].of.selectors[1] != costly(28, 2) {
		t.Fatal("the second search is next")
	}
	counter.ObjectChanged(of("greedy", template("third")), true)
	o.finish(counter)
	if waits("greedy", "second") || len(o.line) != 0 {
		t.Error("a search that is not needed any more is made")
	}
}

// What is spent is for what is new: a selector is compiled once, and not
// evaluated again on devices that are as they were.
func TestOnlyNewsCosts(t *testing.T) {
	const selector = `device.driver != "another"`
	counter := counterOf(t, append(hall(2), template("one", request(class, 1, selecting(selector))))...)
	counter.SearchInBackground(func(*Search) { t.Error("it is not done at once") })
	spent := func() int64 {
		before := counter.budget
		counted(counter, using("one"))
		return before - counter.budget
	}
	text := int64(letterCost * len(selector+counter.classes[class].Spec.Selectors[0].CEL.Expression))
	first := spent()
	counter.ObjectChanged(nodeSlice("node-1", "b"), false)
	if second := spent(); second == 0 || first != 2*second+text {
		t.Errorf("%d at first, of which %d for the text, and %d for half of the devices", first, text, second)
	}
	if again := spent(); again != 0 {
		t.Errorf("%d for nothing new", again)
	}
}

// What may be spent at once comes back with time, not with turns.
func TestWhatIsSpentComesBack(t *testing.T) {
	counter, now := counterOf(t), time.Unix(1e9, 0)
	counter.SearchInBackground(func(*Search) {})
	for _, step := range []struct {
		after time.Duration
		want  int64
	}{{0, initialBudget}, {time.Second / 2, 0}, {time.Second, budgetPerSecond}, {time.Second * 3 / 2, 0}} {
		if counter.RefillBudget(now.Add(step.after)); counter.budget != step.want {
			t.Errorf("after %s %d may be spent, want %d", step.after, counter.budget, step.want)
		}
		counter.budget = 0
	}
	var none *Counter
	none.RefillBudget(now)
}

// What changes while devices are searched for is searched for after that, and
// it alone. Until then what was counted before counts.
func TestSearchesFollowDevices(t *testing.T) {
	selector := selecting(fmt.Sprintf("device.attributes[%q].model == %q", driver, "a"))
	counter := counterOf(t, append(hall(3), template("one", request(class, 17, selector)))...)
	var o outside
	counter.SearchInBackground(o.search)
	counter.budget = 0
	count := func() string {
		w := counted(counter, using("one"))
		return fmt.Sprintf("%d %s%s", w.PodSets[0].Requests["example.com/gpu"], w.Unready, w.Refused)
	}
	wait := "0 " + errUnfinished.Error()
	if got := count(); got != wait {
		t.Fatal(got)
	}
	counter.ObjectChanged(nodeSlice("node-1", "b"), false)
	counter.ObjectChanged(nodeSlice("node-2", "a"), true)
	o.finish(counter)
	if got := count(); got != wait || len(o.line) != 1 || len(o.line[0].slices) != 1 || o.line[0].slices[0].Name != "node-1" {
		t.Fatalf("counted as %s, left to look at: %v", got, o.line)
	}
	o.finish(counter)
	if got := count(); !strings.Contains(got, "8 device(s) match in the cluster but 17 requested") {
		t.Error(got)
	}
	counter.ObjectChanged(nodeSlice("node-1", "a"), false)
	counter.ObjectChanged(nodeSlice("node-2", "a"), false)
	count()
	o.finish(counter)
	if got := count(); got != "17 " {
		t.Error(got)
	}
	counter.ObjectChanged(nodeSlice("node-2", "b"), false)
	if got := count(); got != "17 " || len(o.line) != 1 {
		t.Errorf("while it is searched for anew it counts as %s", got)
	}
	o.finish(counter)
	if got := count(); !strings.Contains(got, "16 device(s) match in the cluster but 17 requested") {
		t.Error(got)
	}
}

// BenchmarkCostlySelectors is how long one claim keeps the loop: 20 selectors at
// the limit, 1,000 devices.
func BenchmarkCostlySelectors(b *testing.B) {
	r := request(class, 1)
	for n := range 20 {
		selecting(costly(46, n))(r.Exactly)
	}
	wl := using("one")
	for b.Loop() {
		counter := counterOf(b, append(hall(125), template("one", r))...)
		counter.SearchInBackground(func(*Search) {})
		counter.budget = budgetPerSecond
		counted(counter, wl)
	}
}
