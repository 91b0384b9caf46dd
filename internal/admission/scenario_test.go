package admission

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs testdata/*.txt. Directives:
//
//	options  policy=drf strategies=(final,initial) block preemption-delay=1s no-rings cooldown=1m newer-by=5m requeue=creation
//	         undeclared=ignore halflife=1h sampling=5m weights=gpu:2 service=gpu placer
//	do       statements, one per line (below)
//	decide   one decision; with "settle", more of them, with evicted workloads released, until nothing
//	         changes; with "unwritten", nothing of it reaches the objects; with "written=(a,b)", only what
//	         is decided about these does, and the engine is killed; with "counted", only how much was done
//	restart  continues with an engine that knows nothing but the objects
//	explain  workload
//	status, pending, positions  queue
//	cohort, local  name
//
// Statements (amounts: cpu in cores, memory with Ki/Mi/Gi; default namespace and local queue are implied):
//
//	flavor NAME [label=k:v] [taint=k:v:effect] [tolerate=k:v:effect] [topology=NAME]
//	price FLAVOR gpu=N [start=DURATION] [losses=AN-HOUR] [closed=DURATION] [in=CLOUD/REGION:N[xSIZE] ...]   (N for a gpu and hour;
//	      closed from now on; prices of regions, on nodes of so many gpus, to which a GiB costs 0.02 from another region and
//	      0.09 from another cloud) [spot] [largest=RESOURCE:N|RESOURCE:N ...]   (of nodes that are sold)
//	cohort NAME [parent=NAME] [weight=N] [policy=fifo|drf|maxmin]
//	queue NAME [cohort=NAME] [strict] [stop=hold|drain] [within=P] [reclaim=P] [borrowing=PRIORITY|any]
//	      [weight=N] [when-borrow=next] [when-preempt=stay] [prefer=preemption] [selector=k:v] [usage]
//	      [delayed-placement=FLAVOR] [inactive] [order=service] [backfill]
//	      [moves=N lost=DURATION]   (defragmentation)
//	  FLAVOR cpu=10 memory=4Gi/borrow:0/lend:2Gi   (indented under cohort or queue; a new set of
//	                                                resources starts a new group)
//	local NAME queue=NAME [weight=N] [stop=..]
//	budget NAME on=queue:Q|local:L|cohort:C hours=N [for=DURATION] [rate=FLAVOR:RESOURCE:N] [drain]   (from now on, in
//	      hours of gpu, at 1 unless a rate says otherwise)
//	advance NAME on=queue:Q|local:L [named] in=DURATION lasts=DURATION amount=FLAVOR:RESOURCE:N
//	      nodes=A|B   (an advance reservation)
//	namespace NAME k:v...
//	node NAME cards=N label=k:v...
//	workload NAME queue=LOCAL [prio=N] [t=SECONDS] [cpu=1 count=2 min=1 ...] [max=DURATION] [runs=DURATION]
//	      [requeue=SECONDS] [gated] [inactive] [lacks=WORD] [never-preempt] [preemption-gated] [extra] [advance=NAME] [stays]
//	      [input=CLOUD/REGION:GIB] [delay=N-AN-HOUR] [waits] [handed-over]   (for spot, to on demand)
//	  PODSET count=2 cpu=1 [selector=k:v] [in=k:a|b] [tolerate=..] [slice=LEVEL:N] [group=G] [flavors=F|G] [elsewhere]
//	      [topology=required|preferred|unconstrained[:LEVEL]]
//	      [node-cpu=2 ...]   (what a pod requests of its node, where quota counts something else)
//	crowd NAME n=N ...     N workloads, each asking for a thousandth of a cpu more than the one before
//	finish|delete|release|fail|activate|deactivate|ungate|up|touch NAME
//	saved NAME DURATION (after the start)    never-preempt|preemption-gated NAME true|false
//	reclaim NAME PODSET=N      wait DURATION      priority NAME N      evicted NAME by=REASON t=SECONDS
//	no-flavor|no-price|no-queue|no-cohort|no-local|no-budget|no-advance NAME
func TestScenarios(t *testing.T) {
	files := must(filepath.Glob("testdata/*.txt"))
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			sc := &scenario{t: t, placer: newTestPlacer()}
			sc.shell = newShell(Options{})
			sc.shell.namespace("default", nil)
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				return sc.run(d)
			})
		})
	}
}

// The table in testdata/README.md names every scenario, and nothing else.
func TestScenariosAreListed(t *testing.T) {
	table := string(must(os.ReadFile("testdata/README.md")))
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+\\.txt)`").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	for _, path := range must(filepath.Glob("testdata/*.txt")) {
		if name := filepath.Base(path); !listed[name] {
			t.Errorf("%s is not in the table", name)
		} else {
			delete(listed, name)
		}
	}
	for name := range listed {
		t.Errorf("%s is in the table, but there is no such file", name)
	}
}

type scenario struct {
	t      *testing.T
	shell  *shell
	placer *testPlacer
}

func (sc *scenario) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "options":
		sc.options(d)
		return ""
	case "do":
		lines := strings.Split(d.Input, "\n")
		for i := 0; i < len(lines); {
			j := i + 1
			for j < len(lines) && strings.HasPrefix(lines[j], " ") {
				j++
			}
			sc.statement(strings.Fields(lines[i]), lines[i+1:j])
			i = j
		}
		return ""
	case "restart":
		sc.shell.e = sc.shell.rebuilt(sc.shell.opts)
		return ""
	case "decide":
		if d.HasArg("written") {
			p := sc.shell.e.Decide(sc.shell.now)
			sc.shell.write(p, func(k Key) bool { return slices.Contains(d.CmdArgs[0].Vals, k.Name) })
			sc.shell.e = sc.shell.rebuilt(sc.shell.opts)
			return orNothing(sc.format(p))
		}
		if d.HasArg("settle") {
			plans, quiet := sc.shell.settle(50)
			var b strings.Builder
			for i, p := range plans {
				if i > 0 && i < len(plans)-1 {
					b.WriteString("then\n")
				}
				b.WriteString(sc.format(p))
			}
			if !quiet {
				b.WriteString("it never ends\n")
			}
			return orNothing(b.String())
		}
		if d.HasArg("counted") {
			before := sc.shell.e.evals
			p := sc.shell.decide()
			return fmt.Sprintf("%d admitted, %d evicted, %d reported; %d looked at\n", len(p.Admit), len(p.Evict), len(p.Pending), sc.shell.e.evals-before)
		}
		if d.HasArg("unwritten") {
			return orNothing(sc.format(sc.shell.e.Decide(sc.shell.now)))
		}
		return orNothing(sc.format(sc.shell.decide()))
	case "explain":
		return formatExplanation(sc.shell.e.Explain(Key{"default", d.CmdArgs[0].Key}, sc.shell.now), sc.origin())
	case "status":
		s, _ := sc.shell.e.Status(d.CmdArgs[0].Key)
		active := 0
		for _, n := range sc.shell.e.Active(d.CmdArgs[0].Key) {
			active += n
		}
		return formatStatus(s, active)
	case "cohort":
		s, _ := sc.shell.e.CohortStatus(d.CmdArgs[0].Key)
		var b strings.Builder
		fmt.Fprintf(&b, "share=%.0f\n", s.FairShare)
		for _, u := range s.Subtree {
			fmt.Fprintf(&b, "%s %s quota=%s used=%s\n", u.Flavor, u.Resource, formatAmount(u.Resource, u.Quota), formatAmount(u.Resource, u.Used))
		}
		return b.String()
	case "local":
		s, _ := sc.shell.e.LocalStatus(Key{"default", d.CmdArgs[0].Key})
		return fmt.Sprintf("pending=%d reserving=%d\n", s.Pending, s.Reserving) + formatUsage(s.Usage)
	case "positions":
		var b strings.Builder
		for _, p := range sc.shell.e.PendingWorkloads(d.CmdArgs[0].Key) {
			fmt.Fprintf(&b, "%d %s (%d in %s, priority %d)\n", p.Position, p.Workload.Name, p.LocalPosition, p.LocalQueue, p.Priority)
		}
		return b.String()
	case "pending":
		var b strings.Builder
		for i, k := range sc.shell.e.Pending(d.CmdArgs[0].Key) {
			fmt.Fprintf(&b, "%d %s\n", i+1, k.Name)
		}
		return b.String()
	}
	d.Fatalf(sc.t, "unknown directive %s", d.Cmd)
	return ""
}

func orNothing(s string) string {
	if s == "" {
		return "nothing\n"
	}
	return s
}

func (sc *scenario) origin() time.Time { return time.Unix(1_700_000_000, 0).UTC() }

func (sc *scenario) options(d *datadriven.TestData) {
	var o Options
	for _, a := range d.CmdArgs {
		v := ""
		if len(a.Vals) > 0 {
			v = a.Vals[0]
		}
		switch a.Key {
		case "policy":
			o.Policy = policies[v]
		case "strategies":
			for _, x := range a.Vals {
				o.FairStrategies = append(o.FairStrategies, map[string]FairStrategy{"final": LessThanOrEqualToFinalShare, "initial": LessThanInitialShare}[x])
			}
		case "block":
			o.BlockUntilReady = true
		case "preemption-delay":
			o.PreemptionDelay = must(time.ParseDuration(v))
		case "newer-by":
			o.NewerBy = must(time.ParseDuration(v))
		case "no-rings":
			o.NoRings = true
		case "cooldown":
			o.PreemptionCooldown = must(time.ParseDuration(v))
		case "requeue":
			o.RequeueByCreation = v == "creation"
		case "undeclared":
			o.IgnoreUndeclared = v == "ignore"
		case "halflife":
			o.UsageHalfLife = must(time.ParseDuration(v))
		case "sampling":
			o.UsageSampling = must(time.ParseDuration(v))
		case "weights":
			o.UsageWeights = map[string]float64{}
			for _, x := range a.Vals {
				r, n, _ := strings.Cut(x, ":")
				o.UsageWeights[r] = must(strconv.ParseFloat(n, 64))
			}
		case "service":
			o.Service = []CardsPerUnit{{Resource: v, Cards: 1}}
		case "placer":
			o.Placer = sc.placer
		default:
			d.Fatalf(sc.t, "unknown option %s", a.Key)
		}
	}
	sc.shell = newShell(o)
	sc.shell.namespace("default", nil)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var policies = map[string]CapacityPolicy{"fifo": PolicyFIFO, "drf": PolicyDRF, "maxmin": PolicyMaxMin}
var preemptions = map[string]PreemptionPolicy{"Never": PreemptNever, "LowerPriority": PreemptLowerPriority, "LowerOrNewerEqualPriority": PreemptLowerOrNewerEqualPriority, "Any": PreemptAny}
var stops = map[string]StopPolicy{"none": StopNone, "hold": StopHold, "drain": StopHoldAndDrain}

func parseAmount(res, s string) int64 {
	mult := int64(1)
	for suffix, m := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if strings.HasSuffix(s, suffix) {
			s, mult = strings.TrimSuffix(s, suffix), m
		}
	}
	if res == CPU {
		if strings.HasSuffix(s, "m") {
			return must(strconv.ParseInt(strings.TrimSuffix(s, "m"), 10, 64))
		}
		mult = 1000
	}
	return must(strconv.ParseInt(s, 10, 64)) * mult
}

func parseGroups(lines []string) []ResourceGroup {
	var groups []ResourceGroup
	for _, line := range lines {
		f := strings.Fields(line)
		fq := FlavorQuotas{Flavor: f[0], Quotas: map[string]Quota{}}
		var resources []string
		for _, kv := range f[1:] {
			res, v, _ := strings.Cut(kv, "=")
			parts := strings.Split(v, "/")
			q := Quota{Nominal: parseAmount(res, parts[0])}
			for _, p := range parts[1:] {
				what, n, _ := strings.Cut(p, ":")
				x := parseAmount(res, n)
				if what == "borrow" {
					q.BorrowingLimit = &x
				} else {
					q.LendingLimit = &x
				}
			}
			fq.Quotas[res] = q
			resources = append(resources, res)
		}
		if n := len(groups); n > 0 && slices.Equal(groups[n-1].Resources, resources) {
			groups[n-1].Flavors = append(groups[n-1].Flavors, fq)
			continue
		}
		groups = append(groups, ResourceGroup{Resources: resources, Flavors: []FlavorQuotas{fq}})
	}
	return groups
}

type arguments map[string][]string

func parseArgs(fields []string) arguments {
	a := arguments{}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		a[k] = append(a[k], v)
	}
	return a
}

func (a arguments) has(k string) bool { return len(a[k]) > 0 }

func (a arguments) str(k string) string {
	if a.has(k) {
		return a[k][0]
	}
	return ""
}

func (a arguments) num(k string) int64 {
	if !a.has(k) {
		return 0
	}
	return must(strconv.ParseInt(a.str(k), 10, 64))
}

func (a arguments) weight() *float64 {
	if !a.has("weight") {
		return nil
	}
	w := must(strconv.ParseFloat(a.str("weight"), 64))
	return &w
}

func (a arguments) duration(k string) time.Duration {
	if !a.has(k) {
		return 0
	}
	return must(time.ParseDuration(a.str(k)))
}

// timing of a queue: delay, cooldown, and the minimum runtimes safe-within, safe-reclaim, safe-borrowed.
func (a arguments) timing() *Timing {
	t := Timing{
		Delay: a.duration("delay"), Cooldown: a.duration("cooldown"),
		MinRuntime: MinRuntime{a.duration("safe-within"), a.duration("safe-reclaim"), a.duration("safe-borrowed")},
	}
	for _, k := range []string{"delay", "cooldown", "safe-within", "safe-reclaim", "safe-borrowed"} {
		if a.has(k) {
			return &t
		}
	}
	return nil
}

func labels(pairs []string) map[string]string {
	m := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, ":")
		m[k] = v
	}
	return m
}

func (sc *scenario) statement(f, more []string) {
	if len(f) == 0 || strings.HasPrefix(f[0], "#") {
		return
	}
	a := parseArgs(f[2:])
	s := sc.shell
	name := f[1]
	key := Key{"default", name}
	switch f[0] {
	case "flavor":
		fl := Flavor{Name: name, NodeLabels: labels(a["label"]), Topology: a.str("topology"), Tolerations: parseTolerations(a["tolerate"])}
		for _, t := range a["taint"] {
			p := strings.Split(t, ":")
			fl.NodeTaints = append(fl.NodeTaints, Taint{Key: p[0], Value: p[1], Effect: p[2]})
		}
		s.flavor(fl)
	case "price":
		sc.priceStatement(name, a)
	case "no-price":
		s.noPrice(name)
	case "no-flavor":
		delete(s.flavors, name)
		s.e.Apply(FlavorGone{name})
	case "cohort":
		s.cohort(Cohort{Name: name, Parent: a.str("parent"), Groups: parseGroups(more), FairWeight: a.weight(), Policy: policies[a.str("policy")]})
	case "no-cohort":
		delete(s.cohorts, name)
		s.e.Apply(CohortGone{name})
	case "queue":
		sc.queueStatement(name, a, more)
	case "no-queue":
		delete(s.queues, name)
		s.e.Apply(QueueGone{name})
	case "local":
		s.local(LocalQueue{Key: key, Queue: a.str("queue"), FairWeight: a.weight(), Stop: stops[a.str("stop")], Timing: a.timing()})
	case "no-local":
		delete(s.locals, key)
		s.e.Apply(LocalQueueGone{key})
	case "namespace":
		s.namespace(name, labels(f[2:]))
	case "node":
		sc.placer.node(name, int(a.num("cards")), labels(a["label"]))
		sc.placer.nodes[name].leaving = int(a.num("leaving"))
		s.e.Apply(CapacityChanged{})
	case "workload":
		s.workload(sc.workloadStatement(name, a, more))
	case "budget":
		sc.budgetStatement(name, a)
	case "advance":
		sc.advanceStatement(name, a)
	case "no-advance":
		s.dropAdvance(name)
	case "no-budget":
		delete(s.budgets, name)
		s.apply(BudgetGone{name})
	case "crowd":
		n := a.num("n")
		delete(a, "n")
		for i := range n {
			w := sc.workloadStatement(fmt.Sprintf("%s%d", name, i), a, more)
			w.Created = w.Created.Add(time.Duration(i))
			w.PodSets[0].Requests[CPU] += i // each has its own request shape
			s.workload(w)
		}
	default:
		sc.changeStatement(f, key, a)
	}
}

func (sc *scenario) priceStatement(flavor string, a arguments) {
	p := FlavorPrice{Flavor: flavor, Resource: "gpu", Price: must(strconv.ParseFloat(a.str("gpu"), 64)), StartUp: a.duration("start"), Spot: a.has("spot")}
	if a.has("losses") {
		p.LossRate = must(strconv.ParseFloat(a.str("losses"), 64))
	}
	for _, at := range a["in"] { // cloud/region:price, and xSIZE where nodes have one
		where, price, _ := strings.Cut(at, ":")
		cloud, region, _ := strings.Cut(where, "/")
		price, size, sized := strings.Cut(price, "x")
		r := RegionPrice{Cloud: cloud, Region: region, Price: must(strconv.ParseFloat(price, 64)), StartUp: p.StartUp, LossRate: p.LossRate}
		if sized {
			r.Size = must(strconv.ParseFloat(size, 64))
		}
		p.Regions = append(p.Regions, r)
		p.OtherRegion, p.OtherCloud = 0.02, 0.09
	}
	for _, of := range a["largest"] {
		node := Requests{}
		for _, part := range strings.Split(of, "|") {
			resource, n, _ := strings.Cut(part, ":")
			node[resource] = parseAmount(resource, n)
		}
		p.Largest = append(p.Largest, node)
	}
	if a.has("closed") {
		p.ClosedUntil = sc.shell.now.Add(a.duration("closed"))
	}
	sc.shell.price(p)
}

func (sc *scenario) queueStatement(name string, a arguments, more []string) {
	s := sc.shell
	sel := &Term{}
	for _, kv := range a["selector"] {
		k, v, _ := strings.Cut(kv, ":")
		*sel = append(*sel, Requirement{Key: k, Operator: "In", Values: []string{v}})
	}
	q := Queue{
		Name: name, Cohort: a.str("cohort"), Groups: parseGroups(more), NamespaceSelector: sel, StrictFIFO: a.has("strict"),
		Stop: stops[a.str("stop")], Inactive: a.has("inactive"), FairWeight: a.weight(), UsageFairSharing: a.has("usage"), DelayedPlacement: a["delayed-placement"],
		Backfill:    a.has("backfill"),
		Order:       map[string]Order{"service": OrderLeastAttainedService}[a.str("order")],
		Timing:      a.timing(),
		Preemption:  Preemption{WithinQueue: preemptions[a.str("within")], ReclaimWithinCohort: preemptions[a.str("reclaim")]},
		Fungibility: Fungibility{BorrowTryNext: a.str("when-borrow") == "next", PreemptStay: a.str("when-preempt") == "stay", PreferPreemption: a.str("prefer") == "preemption"},
	}
	if a.has("moves") {
		q.Defragmentation = &Defragmentation{Moves: int(a.num("moves")), LostWork: a.duration("lost")}
	}
	if a.has("borrowing") {
		q.Preemption.BorrowWithinCohort = true
		if a.str("borrowing") != "any" {
			p := a.num("borrowing")
			q.Preemption.BorrowMaxPriority = &p
		}
	}
	s.queue(q)
	if k := (Key{"default", name}); s.locals[k].Queue == "" {
		s.local(LocalQueue{Key: k, Queue: name})
	}
}

func parseTolerations(list []string) []Toleration {
	var out []Toleration
	for _, t := range list {
		p := strings.Split(t, ":")
		out = append(out, Toleration{Key: p[0], Value: p[1], Effect: p[2]})
	}
	return out
}

var podSetWords = []string{"count", "min", "selector", "in", "tolerate", "topology", "slice", "group", "queue", "prio", "t", "max", "runs", "requeue", "gated", "inactive", "lacks", "after", "in-vain", "flavors", "ns", "never-preempt", "extra", "advance", "stays", "preemption-gated", "elsewhere", "input", "delay", "waits", "handed-over"}

func parsePodSet(name string, a arguments) PodSet {
	ps := PodSet{Name: name, Count: 1, MinCount: int32(a.num("min")), Requests: Requests{}, Group: a.str("group"), NodeSelector: labels(a["selector"]), Tolerations: parseTolerations(a["tolerate"]), Elsewhere: a.has("elsewhere")}
	if a.has("count") {
		ps.Count = int32(a.num("count"))
	}
	if a.has("flavors") {
		ps.Flavors = strings.Split(a.str("flavors"), "|")
	}
	for _, in := range a["in"] {
		k, v, _ := strings.Cut(in, ":")
		ps.Affinity = append(ps.Affinity, Term{{Key: k, Operator: "In", Values: strings.Split(v, "|")}})
	}
	if a.has("topology") {
		m, level, _ := strings.Cut(a.str("topology"), ":")
		ps.Topology = &TopologyRequest{Level: level, Mode: map[string]TopologyMode{"required": TopologyRequired, "preferred": TopologyPreferred, "unconstrained": TopologyUnconstrained}[m]}
		if a.has("slice") {
			level, n, _ := strings.Cut(a.str("slice"), ":")
			ps.Topology.Slices = []TopologySlice{{level, int32(must(strconv.Atoi(n)))}}
		}
	}
	for k := range a {
		if res, ok := strings.CutPrefix(k, "node-"); ok {
			if ps.NodeRequests == nil {
				ps.NodeRequests = Requests{}
			}
			ps.NodeRequests[res] = parseAmount(res, a.str(k))
			continue
		}
		if !slices.Contains(podSetWords, k) {
			ps.Requests[k] = parseAmount(k, a.str(k))
		}
	}
	return ps
}

func (sc *scenario) workloadStatement(name string, a arguments, more []string) Workload {
	w := Workload{
		Key: Key{"default", name}, UID: name, LocalQueue: a.str("queue"), Priority: a.num("prio"),
		Created: sc.origin().Add(time.Duration(a.num("t")) * time.Second), Gated: a.has("gated"), Inactive: a.has("inactive"), Unready: a.str("lacks"),
		Awaits: a.str("after"), AwaitsInVain: a.has("in-vain"),
		MaxRunTime: a.duration("max"), ExpectedRunTime: a.duration("runs"), NeverPreempt: a.has("never-preempt"), PreemptionGated: a.has("preemption-gated"), Extra: a.has("extra"), AdvanceReservation: a.str("advance"), Stays: a.has("stays"),
		Waits: a.has("waits"), HandedOver: a.has("handed-over"),
	}
	if at, size, ok := strings.Cut(a.str("input"), ":"); ok { // cloud/region:GiB
		w.Input.Cloud, w.Input.Region, _ = strings.Cut(at, "/")
		w.Input.GiB = must(strconv.ParseFloat(size, 64))
	}
	if a.has("delay") {
		w.DelayPrice = must(strconv.ParseFloat(a.str("delay"), 64))
	}
	if a.has("ns") {
		w.Namespace = a.str("ns")
	}
	if a.has("requeue") {
		w.RequeueAt = sc.origin().Add(time.Duration(a.num("requeue")) * time.Second)
	}
	if len(more) == 0 {
		w.PodSets = []PodSet{parsePodSet("main", a)}
	}
	for _, line := range more {
		f := strings.Fields(line)
		w.PodSets = append(w.PodSets, parsePodSet(f[0], parseArgs(f[1:])))
	}
	return w
}

func (sc *scenario) changeStatement(f []string, key Key, a arguments) {
	s := sc.shell
	if f[0] == "wait" {
		s.now = s.now.Add(must(time.ParseDuration(f[1])))
		return
	}
	w, ok := s.workloads[key]
	if !ok {
		sc.t.Fatalf("no workload %s", key.Name)
	}
	switch f[0] {
	case "finish":
		s.finish(key)
	case "delete":
		s.gone(key)
	case "release":
		s.release(key)
	case "fail":
		s.e.Apply(DecisionDropped{key})
	case "activate", "deactivate":
		w.Inactive = f[0] == "deactivate"
		s.workload(w)
	case "touch":
		s.workload(w)
	case "up":
		w.PodsReady = true
		s.workload(w)
	case "ungate":
		w.Gated = false
		s.workload(w)
	case "priority":
		w.Priority = must(strconv.ParseInt(f[2], 10, 64))
		s.workload(w)
	case "saved":
		w.CheckpointedAt = sc.origin().Add(must(time.ParseDuration(f[2])))
		s.workload(w)
	case "stays":
		w.Stays = f[2] == "true"
		s.workload(w)
	case "preemption-gated":
		w.PreemptionGated = f[2] == "true"
		s.workload(w)
	case "never-preempt":
		w.NeverPreempt = f[2] == "true"
		s.workload(w)
	case "reclaim":
		w.PodSets = slices.Clone(w.PodSets)
		for i := range w.PodSets {
			w.PodSets[i].Reclaimable = int32(a.num(w.PodSets[i].Name))
		}
		s.workload(w)
	case "evicted":
		w.Admission, w.Evicting = nil, false
		w.EvictedBy, w.EvictedAt = a.str("by"), sc.origin().Add(time.Duration(a.num("t"))*time.Second)
		s.workload(w)
	default:
		sc.t.Fatalf("unknown statement %v", f)
	}
}

func (sc *scenario) format(p Plan) string {
	var b strings.Builder
	for _, v := range p.Evict {
		fmt.Fprintf(&b, "evict %s: %s", v.Workload.Name, v.Reason)
		if v.Reason == ReasonPreempted {
			fmt.Fprintf(&b, " %s for %s", v.Preempted, v.Preemptor.Name)
		}
		b.WriteString("\n")
	}
	for _, a := range p.Admit {
		fmt.Fprintf(&b, "admit %s on %s:", a.Workload.Name, a.Admission.Queue)
		for _, ps := range a.Admission.PodSets {
			fmt.Fprintf(&b, " %s×%d", ps.Name, ps.Count)
			for _, r := range slices.Sorted(maps.Keys(ps.Flavors)) {
				fmt.Fprintf(&b, " %s=%s", r, ps.Flavors[r])
			}
		}
		if a.Admission.Placement != nil {
			fmt.Fprintf(&b, " at %v", a.Admission.Placement)
		}
		if len(a.Admission.AvoidNodes) > 0 {
			fmt.Fprintf(&b, ", not on %s", strings.Join(a.Admission.AvoidNodes, " "))
		}
		for word, on := range map[string]bool{" (borrows)": a.Borrows} {
			if on {
				b.WriteString(word)
			}
		}
		if a.Partial {
			b.WriteString(" (partial)")
		}
		if a.Backfill {
			b.WriteString(" (backfill)")
		}
		b.WriteString("\n")
	}
	for _, k := range p.Pending {
		fmt.Fprintf(&b, "pending %s: %s: %s\n", k.Workload.Name, k.Reason, k.Message)
	}
	if !p.NextAt.IsZero() {
		fmt.Fprintf(&b, "next at %v\n", p.NextAt.Sub(sc.origin()))
	}
	return b.String()
}

func formatStatus(s QueueStatus, active int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pending=%d active=%d reserving=%d share=%.0f\n", s.Pending, active, s.Reserving, s.FairShare)
	b.WriteString(formatUsage(s.Usage))
	return b.String()
}

func formatUsage(list []FlavorUsage) string {
	var b strings.Builder
	for _, u := range list {
		fmt.Fprintf(&b, "%s %s used=%s borrowed=%s\n", u.Flavor, u.Resource, formatAmount(u.Resource, u.Used), formatAmount(u.Resource, u.Borrowed))
	}
	return b.String()
}

func formatExplanation(x Explanation, origin time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s: %s", x.Workload.Name, x.Queue, x.State)
	if x.Reason != "" {
		fmt.Fprintf(&b, ", %s: %s", x.Reason, x.Message)
	}
	b.WriteString("\n")
	if x.Position > 0 {
		fmt.Fprintf(&b, "position %d", x.Position)
		for i, k := range x.Ahead {
			if i == 0 {
				b.WriteString(", after")
			}
			b.WriteString(" " + k.Name)
		}
		b.WriteString("\n")
	}
	if x.ExpectedCost != nil {
		fmt.Fprintf(&b, "expected cost %.2f\n", *x.ExpectedCost)
	}
	if x.Cost != "" {
		fmt.Fprintf(&b, "cost: %s\n", x.Cost)
	}
	if x.Backfill != "" {
		fmt.Fprintf(&b, "backfill: %s\n", x.Backfill)
	}
	if x.Shares != "" {
		fmt.Fprintf(&b, "shares: %s\n", x.Shares)
	}
	if x.Moves != "" {
		fmt.Fprintf(&b, "moves: %s\n", x.Moves)
	}
	if x.Order != "" {
		fmt.Fprintf(&b, "%s\n", x.Order)
	}
	for _, m := range x.Missing {
		if m.Resource == "" {
			fmt.Fprintf(&b, "missing for %s: %s\n", m.PodSet, m.Reason)
			continue
		}
		fmt.Fprintf(&b, "missing for %s: %s of %s in %s at %s (%s)\n", m.PodSet, formatAmount(m.Resource, m.Amount), m.Resource, m.Flavor, m.At, m.Reason)
	}
	for _, v := range x.Blockers {
		fmt.Fprintf(&b, "blocked by %s in %s, priority %d\n", v.Workload.Name, v.Queue, v.Priority)
	}
	for _, v := range x.PreemptionTargets {
		fmt.Fprintf(&b, "would preempt %s in %s, priority %d: %s\n", v.Workload.Name, v.Queue, v.Priority, v.Rule)
	}
	for _, h := range x.Suggestions {
		fmt.Fprintf(&b, "would help: %s\n", h)
	}
	if !x.StartsAt.IsZero() {
		fmt.Fprintf(&b, "starts at %v\n", x.StartsAt.Sub(origin))
	}
	return b.String()
}
