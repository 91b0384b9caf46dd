package admission

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
	"pgregory.net/rapid"
)

// TestMain gives the property tests one seed, so that a run is like the last; -rapid.seed=0 draws a new one.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.seed": "3", "rapid.checks": "300", "rapid.nofailfile": "true"} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// world draws small worlds and the events that happen in them.
type world struct {
	*shell
	t      *rapid.T
	serial int
	cfg    worldConfig
}

type worldConfig struct {
	preemption bool
	policy     CapacityPolicy
	strict     bool
	partial    bool
	flavors    int
	usage      bool
	simple     bool // one pod set per workload
	delay      time.Duration
	weights    bool // fair-sharing weights, 0 among them
	strategies []FairStrategy
	rings      bool // Kueue's rules alone: workloads may preempt each other for ever
	block      bool // nothing is admitted while the pods of an admitted workload are not ready
	backfill   bool // StrictFIFO queues let workloads pass whose run time is known
	extras     bool // some workloads are what elastic jobs have beyond their minimum
	says       bool // workloads say that they are not to be preempted, are swapped then, and when they saved their work
	budgets    bool // workloads use budgets
	advance    bool // quota is reserved ahead of time
	prices     bool // flavors have prices
	after      bool // workloads wait for others to end before they are considered
	shared     bool // who could preempt what is being evicted waits, as in Kueue
	order      bool // some queues let those who have used least go first
	nodes      bool // pods need cards on nodes, of which some are reserved ahead of time with advance
	timing     bool // queues and LocalQueues have their own delays, minimum runtimes and cooldowns
}

func drawWorld(t *rapid.T, cfg worldConfig) *world {
	options := Options{Policy: cfg.policy, UsageHalfLife: time.Hour, UsageSampling: 5 * time.Minute, PreemptionDelay: cfg.delay, FairStrategies: cfg.strategies, BlockUntilReady: cfg.block, AwaitSharedVictims: cfg.shared}
	if !cfg.rings {
		options.NoRings, options.PreemptionCooldown = true, time.Minute
	}
	if cfg.order {
		options.Service = []CardsPerUnit{{Resource: CPU, Cards: 1}}
	}
	if cfg.nodes {
		p := newTestPlacer()
		for _, name := range []string{"n1", "n2", "n3", "n4"} {
			p.node(name, rapid.IntRange(1, 6).Draw(t, name+" cards"), nil)
		}
		options.Placer = p
	}
	w := &world{shell: newShell(options), t: t, cfg: cfg}
	w.namespace("default", nil)
	for i := range cfg.flavors {
		w.flavor(Flavor{Name: fmt.Sprintf("f%d", i)})
	}
	for _, c := range []string{"top", "left", "right"} {
		parent := map[string]string{"left": "top", "right": "top"}[c]
		if rapid.Bool().Draw(t, c+" exists") {
			w.cohort(Cohort{Name: c, Parent: parent, Groups: w.drawGroups(c, 3), FairWeight: w.drawWeight(c)})
		}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "queues") {
		w.drawQueue(i)
	}
	if cfg.budgets {
		w.drawBudget("b0")
	}
	if cfg.advance {
		w.drawAdvance("r0")
	}
	return w
}

// rebuilt is the shell's, with nodes of its own.
func (w *world) rebuilt(o Options) *Engine { return w.shell.rebuilt(apart(o)) }

// apart are options for another engine, with the same nodes: what is on them it hears by objects.
func apart(o Options) Options {
	if p, ok := o.Placer.(*testPlacer); ok {
		o.Placer = p.empty()
	}
	return o
}

// settle is the shell's; where rings are allowed there need not be an end.
func (w *world) settle(limit int) (plans []Plan, quiet bool) {
	plans, quiet = w.shell.settle(limit)
	return plans, quiet || w.cfg.rings
}

func (w *world) drawWeight(label string) *float64 {
	if !w.cfg.weights {
		return nil
	}
	v := rapid.SampledFrom([]float64{0, 0.5, 1, 1, 2}).Draw(w.t, label+" weight")
	return &v
}

func (w *world) drawGroups(label string, top int64) []ResourceGroup {
	var g ResourceGroup
	g.Resources = []string{CPU}
	for i := range w.cfg.flavors {
		q := Quota{Nominal: rapid.Int64Range(0, top).Draw(w.t, label+" nominal")}
		if rapid.IntRange(0, 3).Draw(w.t, label+" limits borrowing") == 0 {
			v := rapid.Int64Range(0, 3).Draw(w.t, label+" borrowing limit")
			q.BorrowingLimit = &v
		}
		if rapid.IntRange(0, 3).Draw(w.t, label+" limits lending") == 0 {
			v := rapid.Int64Range(0, q.Nominal).Draw(w.t, label+" lending limit")
			q.LendingLimit = &v
		}
		g.Flavors = append(g.Flavors, FlavorQuotas{Flavor: fmt.Sprintf("f%d", i), Quotas: map[string]Quota{CPU: q}})
	}
	return []ResourceGroup{g}
}

func (w *world) drawQueue(i int) {
	name := fmt.Sprintf("q%d", i)
	q := Queue{
		Name: name, Cohort: rapid.SampledFrom([]string{"", "top", "left", "left", "right"}).Draw(w.t, name+" cohort"),
		Groups: w.drawGroups(name, 6), NamespaceSelector: &Term{}, UsageFairSharing: w.cfg.usage,
		FairWeight: w.drawWeight(name), Timing: w.drawTiming(name),
	}
	if w.cfg.strict {
		q.StrictFIFO = rapid.Bool().Draw(w.t, name+" strict")
		q.Backfill = w.cfg.backfill && rapid.Bool().Draw(w.t, name+" backfill")
	}
	if w.cfg.preemption {
		q.Preemption.WithinQueue = rapid.SampledFrom([]PreemptionPolicy{PreemptNever, PreemptLowerPriority, PreemptLowerOrNewerEqualPriority}).Draw(w.t, name+" within")
		q.Preemption.ReclaimWithinCohort = rapid.SampledFrom([]PreemptionPolicy{PreemptNever, PreemptLowerPriority, PreemptAny}).Draw(w.t, name+" reclaim")
		if w.cfg.policy == PolicyFIFO && q.Preemption.ReclaimWithinCohort != PreemptNever && rapid.Bool().Draw(w.t, name+" borrows while preempting") {
			q.Preemption.BorrowWithinCohort = true
			if rapid.Bool().Draw(w.t, name+" up to") {
				v := rapid.Int64Range(0, 2).Draw(w.t, name+" max priority")
				q.Preemption.BorrowMaxPriority = &v
			}
		}
	}
	if w.cfg.order && rapid.Bool().Draw(w.t, name+" by service") {
		q.Order = OrderLeastAttainedService
	}
	q.Fungibility = Fungibility{
		BorrowTryNext:    rapid.Bool().Draw(w.t, name+" borrow next"),
		PreemptStay:      rapid.Bool().Draw(w.t, name+" preempt stay"),
		PreferPreemption: rapid.Bool().Draw(w.t, name+" prefer preemption"),
	}
	w.queue(q)
	if _, ok := w.locals[Key{"default", name}]; !ok {
		w.local(LocalQueue{Key: Key{"default", name}, Queue: name, Timing: w.drawTiming(name + " local")})
		if w.cfg.usage || w.cfg.timing {
			w.local(LocalQueue{Key: Key{"default", name + "-2"}, Queue: name, Timing: w.drawTiming(name + " second local")})
		}
	}
}

// drawTiming draws a queue's own timing, or none.
func (w *world) drawTiming(label string) *Timing {
	if !w.cfg.timing || rapid.Bool().Draw(w.t, label+" has no timing") {
		return nil
	}
	draw := func(what string) time.Duration {
		return rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second, time.Minute, 5 * time.Minute}).Draw(w.t, label+" "+what)
	}
	return &Timing{
		Delay: draw("delay"), Cooldown: draw("cooldown"),
		MinRuntime: MinRuntime{draw("within"), draw("reclaim"), draw("borrowed")},
	}
}

func (w *world) drawWorkload() {
	w.serial++
	w.now = w.now.Add(time.Second)
	name := fmt.Sprintf("w%03d", w.serial)
	lq := rapid.SampledFrom(sortedKeys(w.locals)).Draw(w.t, "local queue")
	wl := Workload{
		Key: Key{"default", name}, UID: name, LocalQueue: lq.Name,
		Priority: rapid.Int64Range(0, 2).Draw(w.t, "priority"),
		Created:  w.now,
	}
	if w.cfg.backfill {
		wl.ExpectedRunTime = rapid.SampledFrom([]time.Duration{0, time.Minute, 5 * time.Minute, time.Hour}).Draw(w.t, "expected")
		wl.MaxRunTime = rapid.SampledFrom([]time.Duration{0, 0, 0, 2 * time.Minute, time.Hour}).Draw(w.t, "declared")
	}
	if w.cfg.prices {
		wl.Waits, wl.HandedOver = rapid.Bool().Draw(w.t, "waits"), rapid.IntRange(0, 3).Draw(w.t, "handed over") == 0
		wl.Input = rapid.SampledFrom([]Input{{}, {}, {"aws", "east", 100}, {"aws", "west", 1}, {"gcp", "east", 10}}).Draw(w.t, "input")
	}
	wl.NeverPreempt = w.cfg.says && rapid.IntRange(0, 2).Draw(w.t, "never preempt") == 0
	wl.Stays = w.cfg.says && rapid.IntRange(0, 3).Draw(w.t, "is swapped") == 0
	if w.cfg.extras && rapid.IntRange(0, 2).Draw(w.t, "extra") == 0 {
		wl.Extra, wl.NeverPreempt, wl.Priority = true, false, math.MinInt32
	}
	w.drawAwaits(&wl)
	if w.cfg.advance && rapid.IntRange(0, 4).Draw(w.t, "names an advance reservation") == 0 {
		wl.AdvanceReservation = "r0"
	}
	most := 2
	if w.cfg.simple {
		most = 1
	}
	for i := range rapid.IntRange(1, most).Draw(w.t, "pod sets") {
		ps := PodSet{Name: fmt.Sprintf("ps%d", i), Count: rapid.Int32Range(1, 3).Draw(w.t, "count"), Requests: Requests{CPU: rapid.Int64Range(1, 3).Draw(w.t, "cpu")}}
		if w.cfg.nodes {
			ps.NodeRequests = Requests{"gpu": rapid.Int64Range(0, 3).Draw(w.t, "cards")}
		}
		if w.cfg.partial && rapid.Bool().Draw(w.t, "may shrink") {
			ps.MinCount = 1
		}
		if w.cfg.flavors > 1 && rapid.IntRange(0, 4).Draw(w.t, "picky") == 0 {
			ps.Tolerations = []Toleration{{Key: "x"}}
		}
		wl.PodSets = append(wl.PodSets, ps)
	}
	w.workload(wl)
}

// drawAwaits draws whether a workload waits for others to end, which says nothing of one that has its quota.
func (w *world) drawAwaits(wl *Workload) {
	if w.cfg.after {
		wl.Awaits = rapid.SampledFrom([]string{"", "", "job/a", "job/b"}).Draw(w.t, "after")
		wl.AwaitsInVain = wl.Awaits == "job/b"
	}
}

// step makes one change that the engine did not decide.
func (w *world) step() {
	keys := sortedKeys(w.workloads)
	what := rapid.SampledFrom([]string{"new", "new", "new", "finish", "finish", "delete", "quota", "cohort", "priority", "deactivate", "reclaim", "later"}).Draw(w.t, "step")
	if w.cfg.timing && rapid.IntRange(0, 9).Draw(w.t, "another timing") == 0 {
		lq := w.locals[rapid.SampledFrom(sortedKeys(w.locals)).Draw(w.t, "whose")]
		lq.Timing = w.drawTiming("again")
		w.local(lq)
	}
	if w.cfg.budgets && rapid.IntRange(0, 7).Draw(w.t, "another budget") == 0 {
		w.drawBudget(rapid.SampledFrom([]string{"b0", "b1"}).Draw(w.t, "which budget"))
	}
	if w.cfg.advance && rapid.IntRange(0, 7).Draw(w.t, "another advance reservation") == 0 {
		w.drawAdvance(rapid.SampledFrom([]string{"r0", "r1"}).Draw(w.t, "which advance reservation"))
	}
	if w.cfg.prices && rapid.IntRange(0, 5).Draw(w.t, "another price") == 0 {
		w.drawPrice()
	}
	if w.cfg.says && len(keys) > 0 && rapid.IntRange(0, 3).Draw(w.t, "says something") == 0 {
		w.saysSomething(w.workloads[rapid.SampledFrom(keys).Draw(w.t, "who")])
	}
	if w.cfg.after && len(keys) > 0 && rapid.Bool().Draw(w.t, "another end") {
		wl := w.workloads[rapid.SampledFrom(keys).Draw(w.t, "of what it waits for")]
		w.drawAwaits(&wl)
		w.workload(wl)
	}
	if len(keys) == 0 && what != "quota" && what != "cohort" {
		what = "new"
	}
	if w.cfg.block && rapid.Bool().Draw(w.t, "pods become ready") {
		for _, k := range keys {
			if wl := w.workloads[k]; wl.Admission != nil {
				wl.PodsReady = true
				w.workload(wl)
			}
		}
	}
	pick := func() Workload { return w.workloads[rapid.SampledFrom(keys).Draw(w.t, "which")] }
	switch what {
	case "new":
		w.drawWorkload()
	case "finish":
		if wl := pick(); wl.Admission != nil {
			w.finish(wl.Key)
		}
	case "delete":
		w.gone(pick().Key)
	case "quota":
		w.drawQueue(rapid.IntRange(0, len(w.queues)-1).Draw(w.t, "queue"))
	case "cohort":
		c := rapid.SampledFrom([]string{"top", "left", "right"}).Draw(w.t, "cohort")
		w.cohort(Cohort{Name: c, Parent: map[string]string{"left": "top", "right": "top"}[c], Groups: w.drawGroups(c, 3), FairWeight: w.drawWeight(c)})
	case "priority":
		wl := pick()
		wl.Priority = rapid.Int64Range(0, 2).Draw(w.t, "priority")
		w.workload(wl)
	case "deactivate":
		wl := pick()
		wl.Inactive = !wl.Inactive
		w.workload(wl)
	case "reclaim":
		wl := pick()
		wl.PodSets = slices.Clone(wl.PodSets)
		if wl.PodSets[0].Reclaimable < wl.PodSets[0].Count-1 {
			wl.PodSets[0].Reclaimable++
		}
		w.workload(wl)
	case "later":
		w.now = w.now.Add(time.Minute)
		if w.cfg.order { // levels are powers of service, and lead up after days
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Hour, 50 * time.Hour}).Draw(w.t, "much later"))
		}
	}
	w.nextPeriods()
}

var worldConfigs = map[string]worldConfig{
	"quota":      {flavors: 1, policy: PolicyFIFO},
	"flavors":    {flavors: 2, policy: PolicyFIFO, strict: true, partial: true},
	"preemption": {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true},
	"everything": {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true},
	"drf":        {flavors: 1, policy: PolicyDRF, preemption: true},
	"drf2":       {flavors: 2, policy: PolicyDRF, preemption: true, strict: true, partial: true},
	"weights":    {flavors: 1, policy: PolicyDRF, preemption: true, weights: true},
	"maxmin":     {flavors: 1, policy: PolicyMaxMin, preemption: true},
	"usage":      {flavors: 1, policy: PolicyFIFO, preemption: true, usage: true},
	"usage2":     {flavors: 2, policy: PolicyDRF, preemption: true, strict: true, partial: true, usage: true, delay: time.Minute},
	"delay":      {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, delay: time.Minute},
	"blocked":    {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, block: true},
	"delay-drf":  {flavors: 1, policy: PolicyDRF, preemption: true, delay: time.Minute},
	"timing":     {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, timing: true},
	"timing2":    {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, timing: true, delay: time.Minute},
	"timing-drf": {flavors: 1, policy: PolicyDRF, preemption: true, timing: true},
	"backfill":   {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, backfill: true},
	"backfill2":  {flavors: 2, policy: PolicyDRF, preemption: true, strict: true, partial: true, backfill: true},
	"extras":     {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, extras: true},
	"extras2":    {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, timing: true, extras: true},
	"extras-drf": {flavors: 1, policy: PolicyDRF, preemption: true, extras: true},
	"says":       {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, says: true},
	"says2":      {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, timing: true, says: true},
	"says-drf":   {flavors: 1, policy: PolicyDRF, preemption: true, says: true},
	"budgets":    {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, backfill: true, budgets: true},
	"budgets2":   {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, backfill: true, timing: true, budgets: true},
	"advance":    {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, backfill: true, advance: true},
	"advance2":   {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, backfill: true, timing: true, advance: true, budgets: true},
	"advance3":   {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, delay: time.Minute, advance: true},
	"prices":     {flavors: 2, policy: PolicyFIFO, strict: true, partial: true, backfill: true, prices: true},
	"prices2":    {flavors: 3, policy: PolicyFIFO, preemption: true, strict: true, timing: true, prices: true},
	"prices-drf": {flavors: 2, policy: PolicyDRF, preemption: true, delay: time.Minute, prices: true},
	"says-usage": {flavors: 1, policy: PolicyFIFO, preemption: true, usage: true, says: true, delay: time.Minute},
	"after":      {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, after: true},
	"after2":     {flavors: 2, policy: PolicyDRF, preemption: true, strict: true, partial: true, timing: true, after: true},
	"after-fill": {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, backfill: true, delay: time.Minute, after: true},
	"order":      {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, order: true},
	"order2":     {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, timing: true, order: true},
	"order-drf":  {flavors: 1, policy: PolicyDRF, preemption: true, usage: true, order: true},
	"nodes":      {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, nodes: true},
	"reserved":   {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, backfill: true, advance: true, nodes: true},
	"reserved2":  {flavors: 2, policy: PolicyDRF, preemption: true, partial: true, advance: true, budgets: true, nodes: true},
	"kueue":      {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, rings: true},
	"kueue-drf":  {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, rings: true},
	"shared":     {flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true, rings: true, shared: true},
	"shared-drf": {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, rings: true, shared: true},
	"shared-one": {flavors: 1, policy: PolicyFIFO, preemption: true, strict: true, shared: true},
}

func forAllWorlds(t *testing.T, check func(t *rapid.T, cfg worldConfig)) {
	for name, cfg := range worldConfigs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { check(t, cfg) })
		})
	}
}

func planText(p Plan) string {
	var b strings.Builder
	for _, a := range p.Admit {
		fmt.Fprintf(&b, "admit %s %v at %v, not on %v\n", a.Workload.Name, a.Admission.PodSets, a.Admission.Placement, a.Admission.AvoidNodes)
	}
	for _, v := range p.Evict {
		fmt.Fprintf(&b, "evict %s %s %s %s\n", v.Workload.Name, v.Reason, v.Preempted, v.Preemptor.Name)
	}
	return b.String()
}

// Usage never exceeds what the tree allows, and the engine's state agrees with the objects.
func TestUsageStaysWithinQuota(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step()
			decideWithinQuota(t, w)
			w.releaseSome()
		}
	})
}

// decideWithinQuota decides, and fails if anything admitted exceeds what the tree allows.
func decideWithinQuota(t *rapid.T, w *world) {
	before := newModel(w.shell)
	awaited := w.e.unready > 0
	p := w.decide()
	if w.cfg.block && (len(p.Admit) > 1 || awaited && len(p.Admit) > 0) {
		t.Fatalf("pods are awaited: %v, admitted are\n%s", awaited, planText(p))
	}
	for _, a := range p.Admit {
		if why := before.admit(a); why != "" {
			t.Fatalf("admitting %s: %s\nplan:\n%s", a.Workload.Name, why, planText(p))
		}
	}
	checkCache(t, w)
}

// Writes that fail are undone: the engine's state stays right, no workload is lost, and once writes
// succeed again all is decided as if nothing had happened.
func TestFailedWritesAreUndone(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		w.failing = func() bool { return rapid.IntRange(0, 2).Draw(t, "write fails") == 0 }
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			w.step()
			decideWithinQuota(t, w)
			for _, k := range w.leaving() {
				w.release(k)
			}
		}
		w.failing = nil
		if _, quiet := w.settle(3*len(w.workloads) + 10); !quiet {
			t.Fatal("no end")
		}
		checkCache(t, w)
	})
}

// Writes take their time: events that still show a workload pending, or not yet
// leaving, come between a decision and its confirmation or failure.
func TestWritesInFlight(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		flying := map[Key]*Admission{} // admissions on their way
		land := func(k Key, ok bool) {
			adm := flying[k]
			delete(flying, k)
			wl, exists := w.workloads[k]
			switch {
			case !exists:
			case ok:
				wl.Admission, wl.StartedAt = adm, w.now
				w.workload(wl)
			default:
				w.e.Apply(DecisionDropped{k})
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			w.step() // may touch workloads whose admission is on its way
			p := w.e.Decide(w.now)
			for _, a := range p.Admit {
				flying[a.Workload] = a.Admission
			}
			for _, v := range p.Evict {
				if flying[v.Workload] != nil {
					land(v.Workload, true)
				}
				wl := w.workloads[v.Workload]
				if rapid.Bool().Draw(t, "eviction fails") {
					w.workload(wl) // an event from before
					w.e.Apply(DecisionDropped{v.Workload})
					continue
				}
				wl.Evicting = true
				w.workload(wl)
			}
			for _, k := range sortedKeys(flying) {
				if what := rapid.IntRange(0, 3).Draw(t, "write"); what < 2 {
					land(k, what == 0)
				}
			}
			w.releaseSome()
			for _, k := range sortedKeys(flying) {
				if in := w.e.workloads[k]; in != nil && !in.hasQuota() {
					t.Fatalf("%s lost its admission while it was being written", k)
				}
			}
		}
		for _, k := range sortedKeys(flying) {
			land(k, true)
		}
		if _, quiet := w.settle(3*len(w.workloads) + 10); !quiet {
			t.Fatal("no end")
		}
		checkCache(t, w)
	})
}

// checkCache compares what the engine knows with the objects.
func checkCache(t *rapid.T, w *world) {
	e := w.e
	e.rebuild()
	m := newModel(w.shell)
	for _, q := range e.queues {
		for fr := range q.node.Cells {
			key := e.frs[fr]
			if got, want := q.node.Cells[fr].Use[quota.Now], m.used(q.name, e.flavors[key.Flavor].spec.Name, e.resources[key.Resource]); got != want {
				t.Fatalf("queue %s uses %d, the objects say %d", q.name, got, want)
			}
		}
	}
	for _, tr := range e.trees {
		checkSums(t, tr.root.Node)
		checkBorrowIndex(t, tr)
	}
	if len(e.workloads) != len(w.workloads) {
		t.Fatalf("the engine knows %d workloads, there are %d", len(e.workloads), len(w.workloads))
	}
	heldBack := map[*queue]int{}
	for k, wl := range w.workloads {
		in := e.workloads[k]
		lists := map[phase]bool{
			phaseReserved:  slices.Contains(e.queueOf(in).quotaReserved, in),
			phasePending:   in.class != nil && slices.Contains(in.class.members, in),
			phaseNominated: in.queue != nil && slices.Contains(in.queue.tree.nominated, in),
		}
		for p, listed := range lists {
			if is := in.phase == p || p == phaseReserved && in.phase == phaseEvicting; is != listed {
				t.Fatalf("%s is %s; listed as %s: %v", k, in.phase, p, listed)
			}
		}
		if in.hasQuota() != (wl.Admission != nil) {
			t.Fatalf("%s is %s; admitted %v", k, in.phase, wl.Admission != nil)
		}
		why := e.heldBack(in, in.local.queue)
		if !in.hasQuota() && (why.reason == "") != in.waits() {
			t.Fatalf("%s is lost: held back %q, %s", k, why.reason, in.phase)
		}
		if why.counted && in.phase == phaseHeldBack {
			heldBack[in.local.queue]++
		}
	}
	for _, q := range e.queues {
		if q.heldBack != heldBack[q] {
			t.Fatalf("queue %s counts %d workloads that are held back, not %d", q.name, q.heldBack, heldBack[q])
		}
	}
	if e.tx.Checkpoint() != 0 {
		t.Fatal("a what-if was not rolled back")
	}
}

// queueOf is where a workload's quota is reserved; an empty queue if it has none.
func (e *Engine) queueOf(w *workload) *queue {
	if w.queue == nil {
		return &queue{}
	}
	return w.queue
}

// checkBorrowIndex checks which queues are listed with unused quota, and which as borrowing.
func checkBorrowIndex(t *rapid.T, tr *tree) {
	for fr, b := range tr.borrowIndex {
		for _, q := range tr.queues {
			c := &q.node.Cells[fr]
			unused, borrows := slices.Contains(b.unused, q), slices.Contains(b.borrowing, q)
			if unused != (c.Use[quota.Future] < c.Nominal) || borrows != (c.Use[quota.Future] > c.Nominal) {
				t.Fatalf("queue %s uses %d of its %d: listed with unused quota %v, as borrower %v", q.name, c.Use[quota.Future], c.Nominal, unused, borrows)
			}
		}
		if len(b.unused)+len(b.borrowing) > len(tr.queues) {
			t.Fatalf("%d queues have quota left and %d borrow, of %d", len(b.unused), len(b.borrowing), len(tr.queues))
		}
	}
}

// checkSums checks that every cohort's usage is what its children need from it.
func checkSums(t *rapid.T, n *quota.Node) {
	for _, ch := range n.Children {
		checkSums(t, ch)
	}
	if n.Leaf {
		return
	}
	for fr := range n.Cells {
		for _, k := range []quota.View{quota.Now, quota.Future} {
			sum := int64(0)
			for _, ch := range n.Children {
				sum += max(0, ch.Cells[fr].Use[k]-ch.Cells[fr].Local)
			}
			if n.Cells[fr].Use[k] != sum {
				t.Fatalf("cohort %s uses %d, its children %d (%d)", n.Name, n.Cells[fr].Use[k], sum, k)
			}
		}
	}
}

// Without anything new happening, decisions come to an end.
func TestDecisionsComeToAnEnd(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step()
		}
		limit := 3*len(w.workloads) + 5
		if plans, quiet := w.settle(limit); !quiet {
			var b strings.Builder
			for _, p := range plans {
				b.WriteString(planText(p) + "--\n")
			}
			t.Fatalf("still busy after %d decisions:\n%s", limit, b.String())
		}
	})
}

// A restarted engine decides as the old one would have: no workload that could be helped is left
// inadmissible, and what the old one knew is in the objects, also while evicted workloads are leaving.
func TestRestartChangesNothing(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		for range rapid.IntRange(1, 6).Draw(t, "times") {
			for range rapid.IntRange(1, 6).Draw(t, "steps") {
				w.step()
			}
			want := planText(w.rebuilt(w.opts).Decide(w.now))
			got := planText(w.decide())
			if got != want {
				t.Fatalf("the old engine says\n%s\nthe restarted one\n%s", got, want)
			}
			if rapid.Bool().Draw(t, "evictions stay in flight") {
				w.releaseSome()
			} else if _, quiet := w.settle(100); !quiet {
				t.Fatal("no end")
			}
		}
	})
}

func (w *world) releaseSome() {
	for _, k := range w.leaving() {
		if rapid.Bool().Draw(w.t, "released") {
			w.release(k)
		}
	}
}

// An engine is killed while its evictions are being written, between any two writes. The next one
// evicts those whose eviction was not written yet, and no others. It may leave some of them out: with
// several preemptors, or a choice of flavors, the first one to be nominated again can find a better
// place; and a victim may get another preemptor.
func TestKilledBetweenWrites(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		for range rapid.IntRange(1, 8).Draw(t, "times") {
			for range rapid.IntRange(1, 6).Draw(t, "steps") {
				w.step()
			}
			p := w.e.Decide(w.now)
			p.Admit, p.Evict = slices.Clone(p.Admit), slices.Clone(p.Evict)
			before := maps.Clone(w.workloads)
			w.write(p, func(Key) bool { return true })
			more := w.rebuilt(w.opts).Decide(w.now)
			final := len(p.Admit)+len(more.Admit)+len(more.Evict) == 0

			w.workloads = before
			w.write(Plan{Admit: p.Admit}, func(Key) bool { return true })
			w.write(Plan{Evict: p.Evict, Pending: p.Pending}, func(Key) bool { return rapid.Bool().Draw(t, "written") })
			w.e = w.rebuilt(w.opts)
			unreported, preemptors := map[Key]Key{}, map[Key]bool{}
			for _, v := range p.Evict {
				if preemptors[v.Preemptor] = true; !w.workloads[v.Workload].Evicting {
					unreported[v.Workload] = v.Preemptor
				}
			}
			again := map[Key]Key{}
			for _, v := range w.decide().Evict {
				again[v.Workload] = v.Preemptor
				if _, ok := unreported[v.Workload]; final && !ok {
					t.Fatalf("%s is evicted, the plan had\n%s", v.Workload.Name, planText(p))
				}
			}
			if plain := cfg.policy == PolicyFIFO && cfg.flavors == 1 && len(preemptors) == 1; final && plain && !slices.Equal(sortedKeys(again), sortedKeys(unreported)) {
				t.Fatalf("evicted are %v, of the plan there was left %v", again, unreported)
			}
			w.releaseSome()
		}
	})
}

// Explain changes nothing: the plans are the same, whatever is explained in between.
func TestExplainChangesNothing(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		asked := New(apart(w.opts))
		w.mirror = asked
		w.restartWithMirror()
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step()
			for _, k := range sortedKeys(w.workloads) {
				if rapid.Bool().Draw(t, "explained") {
					asked.Explain(k, w.now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "seconds later"))*time.Second))
				}
			}
			want := asked.Decide(w.now)
			p := w.e.Decide(w.now)
			if got, want := fmt.Sprintf("%s%v %v", planText(p), p.Pending, p.NextAt), fmt.Sprintf("%s%v %v", planText(want), want.Pending, want.NextAt); got != want {
				t.Fatalf("without Explain:\n%s\nwith Explain:\n%s", got, want)
			}
			if w.e.evals != asked.evals {
				t.Fatalf("%d evaluations, %d with Explain", w.e.evals, asked.evals)
			}
			w.write(p, func(Key) bool { return true })
			w.releaseSome()
		}
	})
}

// The same events give the same plans.
func TestDeterministic(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step()
		}
		want := planText(w.rebuilt(w.opts).Decide(w.now))
		for range 3 {
			if got := planText(w.rebuilt(w.opts).Decide(w.now)); got != want {
				t.Fatalf("first\n%s\nthen\n%s", want, got)
			}
		}
	})
}

// Every victim is preempted for a workload that gets in by it, and every one was needed.
func TestPreemptionIsNeededAndEnough(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		preemptors := map[Key]bool{} // all so far
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			w.step()
			p := w.decide()
			byPreemptor := map[Key][]Key{}
			for _, v := range p.Evict {
				if v.Reason == ReasonPreempted {
					byPreemptor[v.Preemptor] = append(byPreemptor[v.Preemptor], v.Workload)
					preemptors[v.Preemptor] = true
				}
			}
			for k := range byPreemptor {
				in := w.e.workloads[k]
				if in.phase != phaseNominated && !in.hasQuota() {
					t.Fatalf("%s preempted %v and was not even nominated", k, byPreemptor[k])
				}
			}
			if len(byPreemptor) == 1 && len(p.Admit) == 0 && len(w.leaving()) == len(p.Evict) {
				for k, victims := range byPreemptor {
					if in := w.e.workloads[k]; in.phase == phaseNominated { // else its nomination was overridden
						checkMinimal(t, w, in, victims)
					}
				}
			}
			for _, k := range w.leaving() {
				w.release(k)
			}
			if rapid.Bool().Draw(t, "restarted") {
				w.e = w.rebuilt(w.opts)
			}
			for _, v := range w.decide().Evict {
				preemptors[v.Preemptor] = true
			}
			for k := range byPreemptor {
				wl := w.workloads[k]
				outdone := w.outdone(w.e.workloads[k], preemptors) || w.e.unready > 0
				if wl.Admission == nil && w.e.workloads[k].phase != phaseNominated && !outdone {
					t.Fatalf("%s preempted %v and was not admitted", k, byPreemptor[k])
				}
			}
			for _, k := range w.leaving() {
				w.release(k)
			}
		}
	})
}

// outdone: in the last decision a workload was admitted or nominated that comes before p in queue
// order, or may preempt it.
func (w *world) outdone(p *workload, preemptors map[Key]bool) bool {
	for _, o := range w.e.workloads {
		better := queueOrder(o, p) < 0 || preemptors[o.spec.Key] || w.e.inCooldown(p, false)
		if o != p && better && (o.phase == phaseNominated || o.in.admitted == w.e.decision) {
			return true
		}
	}
	return false
}

// checkMinimal: if any one of the victims stayed, the preemptor would not fit, or would have to
// borrow where it need not.
func checkMinimal(t *rapid.T, w *world, p *workload, victims []Key) {
	for _, v := range victims {
		in := w.e.workloads[v]
		mark := w.e.tx.Checkpoint()
		w.e.tx.Add(in.queue.node, in.usage, quota.Future)
		fits := true
		for _, u := range p.nominatedUsage {
			// The nomination is counted already: nothing more must fit.
			if n := p.queue.node; !n.Fits(u.FR, 0, quota.Future) || p.nomination.borrow == 0 && n.Borrowing(u.FR, 0, quota.Future) {
				fits = false
			}
		}
		w.e.tx.Rollback(mark)
		if fits && len(victims) > 1 && victims[len(victims)-1] != v {
			t.Fatalf("%s need not have been preempted for %s", v, p.spec.Key)
		}
	}
}

// With more quota, no workload loses the quota it has.
func TestMoreQuotaPreemptsNobody(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		cfg.preemption = false
		w := drawWorld(t, cfg)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			w.step()
		}
		w.settle(100)
		name := fmt.Sprintf("q%d", rapid.IntRange(0, len(w.queues)-1).Draw(t, "queue"))
		q := w.queues[name]
		q.Groups = slices.Clone(q.Groups)
		q.Groups[0].Flavors = slices.Clone(q.Groups[0].Flavors)
		quota := q.Groups[0].Flavors[0].Quotas[CPU]
		quota.Nominal += rapid.Int64Range(1, 5).Draw(t, "more")
		q.Groups[0].Flavors[0].Quotas = map[string]Quota{CPU: quota}
		w.queue(q)
		if p := w.decide(); len(p.Evict) > 0 {
			t.Fatalf("evicted %v", p.Evict)
		}
	})
}

// Who is left out of a search beforehand would not have been preempted: the plans are the same without that.
func TestPruningChangesNothing(t *testing.T) {
	forAllWorlds(t, func(t *rapid.T, cfg worldConfig) {
		w := drawWorld(t, cfg)
		unpruned := apart(w.opts)
		unpruned.unpruned = true
		w.mirror = New(unpruned)
		w.restartWithMirror()
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step()
			want := planText(w.mirror.Decide(w.now))
			p := w.e.Decide(w.now)
			if got := planText(p); got != want {
				t.Fatalf("searches leave some out:\n%s\nall are looked at:\n%s", got, want)
			}
			w.write(p, func(Key) bool { return true })
			w.releaseSome()
		}
	})
}
