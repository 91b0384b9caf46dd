package explain

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; commit only what you understand")

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time {
	t := metav1.NewTime(noon.Add(d))
	return &t
}

// waiting is a job that waits for a reason.
func waiting(reason, message string, change func(x *v1alpha1.WorkloadStanding)) *Answer {
	x := &v1alpha1.WorkloadStanding{State: "Pending", Reason: reason, Message: message, LocalQueue: "main", ClusterQueue: "team-a", Position: 1}
	if change != nil {
		change(x)
	}
	return &Answer{Job: "pytorchjob/llm", Namespace: "nlp", Status: "QUEUING", Workload: "pytorchjob-llm-12345", Standing: x}
}

var (
	mine   = v1alpha1.WorkloadRef{Namespace: "nlp", Name: "job-a-1", Job: "job/a", ClusterQueue: "team-a"}
	urgent = v1alpha1.WorkloadRef{Namespace: "nlp", Name: "job-u-1", Job: "tfjob/urgent", ClusterQueue: "team-a", Priority: 1000}
	bare   = v1alpha1.WorkloadRef{Namespace: "nlp", Name: "by-hand", ClusterQueue: "team-b"}
	secret = v1alpha1.WorkloadRef{ClusterQueue: "team-b"}
)

// Every refusal the queue has, and every other place a job can be in.
var answers = map[string]*Answer{
	"Pending": waiting("Pending", "It can be admitted when its turn comes", func(x *v1alpha1.WorkloadStanding) {
		x.Position, x.Ahead, x.StartsAt = 13, []v1alpha1.WorkloadRef{mine, urgent}, at(0)
		x.PodSets = []v1alpha1.PodSet{{Name: "worker", Count: 4, Flavors: map[string]string{"nvidia.com/gpu": "h100", "cpu": "default"},
			Nodes: []v1alpha1.Node{{Name: "n1", Pods: 2, Cards: []int{0, 1}}, {Name: "n2", Pods: 2, Cards: []int{4, 5}}}}}
	}),
	"WaitingForQuota-policy": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.HeldBy = []v1alpha1.WorkloadRef{mine}
		x.Suggestions = []string{"waiting until 2026-01-01T12:05:00Z, when it may preempt others: its preemption delay is 10m0s"}
		x.Policies = []v1alpha1.PolicyValue{
			{Field: "preemption.delay", Value: "10m", Policy: "vision", From: "LocalQueue/nlp/main"},
			{Field: "preemption.minRuntime.reclaim", Value: "30m", Policy: "research", From: "Cohort/research"},
			{Field: "preemption.cooldown", Value: "5m", Policy: "research", From: "Cohort/research"},
		}
	}),
	"WaitingForQuota-backfill": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.HeldBy = []v1alpha1.WorkloadRef{mine}
		x.Backfill = "its quota is reserved from 2026-01-01T13:00:00Z on, when nlp/job-a-1 ends at the latest; started ahead of it, and do not delay it: nlp/job-b-2"
		x.StartsAt = at(time.Hour)
		x.Policies = []v1alpha1.PolicyValue{{Field: "backfill.strategy", Value: "EASY", Policy: "easy", From: "ClusterQueue/team-a"}}
	}),
	"WaitingForQuota-may-not-pass": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Position, x.Ahead = 2, []v1alpha1.WorkloadRef{mine}
		x.Backfill = "nlp/job-a-1 is before it, and starts at 2026-01-01T13:00:00Z at the latest; it may not pass, because nobody knows how long it runs"
		x.Policies = []v1alpha1.PolicyValue{{Field: "backfill.strategy", Value: "EASY", Policy: "easy", From: "ClusterQueue/team-a"}}
	}),
	"WaitingForQuota-shares": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Shares = "the smallest share of all that is used goes first: with it team-a would have 800 thousandths; team-b, where others wait, has 300 thousandths"
		x.Policies = []v1alpha1.PolicyValue{{Field: "capacity", Value: "MaxMin", Policy: "research", From: "Cohort/research"}}
	}),
	"WaitingForQuota-lost-nodes": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Quota = "8 nvidia.com/gpu in flavor h100 instead of 16 from 2026-01-01T12:10:00Z on, as QueuePolicies say"
		x.Policies = []v1alpha1.PolicyValue{{Field: "quota.shareOfNodes", Value: "100", Policy: "nodes", From: "ClusterQueue/team-a"}}
	}),
	"ExceedsMaxQuota-window": waiting("ExceedsMaxQuota", "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (8) > maximum capacity (4)", func(x *v1alpha1.WorkloadStanding) {
		x.Missing = []v1alpha1.Missing{{PodSet: "main", Resource: "nvidia.com/gpu", Flavor: "h100", Amount: "4", ClusterQueue: "team-a", Reason: "ExceedsMaxQuota"}}
		x.Quota = "16 nvidia.com/gpu in flavor h100 instead of 4 from 2026-01-01T19:00:00Z on, as QueuePolicies say"
		x.Suggestions = []string{"quota or a borrowing limit of at least 8 nvidia.com/gpu in flavor h100 for queue team-a", "waiting until 2026-01-01T19:00:00Z, when its quota suffices"}
		x.StartsAt = at(7 * time.Hour)
		x.Policies = []v1alpha1.PolicyValue{{Field: "quota.windows", Value: "nights (0 19 * * *, 10h, UTC)", Policy: "nights", From: "ClusterQueue/team-a"}}
	}),
	"WaitingForQuota-min-runtime": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		victim := mine
		victim.Rule = "InClusterQueue"
		x.PreemptionTargets = []v1alpha1.WorkloadRef{victim}
		x.Suggestions = []string{"waiting until 2026-01-01T12:10:00Z, when it may preempt others: until then they have their minimum runtime"}
		x.Policies = []v1alpha1.PolicyValue{{Field: "preemption.minRuntime.withinClusterQueue", Value: "10m", Policy: "research", From: "Cohort/research"}}
	}),
	"WaitingForQuota-cooldown": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.HeldBy = []v1alpha1.WorkloadRef{bare}
		x.Suggestions = []string{"waiting until 2026-01-01T12:05:00Z, when its preemption cooldown of 5m0s ends"}
		x.Policies = []v1alpha1.PolicyValue{{Field: "preemption.cooldown", Value: "5m", Policy: "research", From: "Cohort/research"}}
	}),
	"WaitingForQuota-never-preempt": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Suggestions = []string{"letting others preempt it: those who ask that nobody does have together at most the nominal quota of team-a"}
		x.Policies = []v1alpha1.PolicyValue{{Field: "preemption.neverPreempt", Value: "Honor", Policy: "research", From: "Cohort/research"}}
	}),
	"Deactivated-not-requeued": waiting("Deactivated", "It was preempted, and asked not to be requeued then", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"TopologyPlacementFailed-nobody-moves": waiting("TopologyPlacementFailed", "couldn't assign flavors to pod set main: 7 of 8 pods fit", func(x *v1alpha1.WorkloadStanding) {
		x.Moves = "nobody moves for it: 1 workload would lose 2h0m0s of work, and at most 1h0m0s may be lost"
		x.Missing = []v1alpha1.Missing{{PodSet: "main", Reason: "TopologyPlacementFailed"}}
		x.Policies = []v1alpha1.PolicyValue{{Field: "defragmentation.moves", Value: "2", Policy: "gangs", From: "ClusterQueue/team-a"}, {Field: "defragmentation.lostWork", Value: "1h", Policy: "gangs", From: "ClusterQueue/team-a"}}
	}),
	"Pending-moves": waiting("Pending", "7 of 8 pods fit. Pending the preemption of 1 workload(s)", func(x *v1alpha1.WorkloadStanding) {
		victim := mine
		victim.Rule = "Defragmentation"
		x.PreemptionTargets = []v1alpha1.WorkloadRef{victim}
		x.Policies = []v1alpha1.PolicyValue{{Field: "defragmentation.moves", Value: "2", Policy: "gangs", From: "ClusterQueue/team-a"}, {Field: "defragmentation.lostWork", Value: "1h", Policy: "gangs", From: "ClusterQueue/team-a"}}
	}),
	"WaitingForQuota-order": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Position, x.Ahead = 2, []v1alpha1.WorkloadRef{mine}
		x.Order = "who has used least goes first: it has used 2.0 card-hours, which is level 4, and waited 1h0m0s, which leads 0 up; in 23h0m0s it goes up one more"
		x.Policies = []v1alpha1.PolicyValue{{Field: "order", Value: "LeastAttainedService", Policy: "short-first", From: "ClusterQueue/team-a"}}
	}),
	"WaitingForQuota-cost": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor spot, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Position = 1
		x.Cost = "flavors in the order of expected cost for 10h0m0s: on-demand 325.33, spot 81.33 (not to be had until 2026-03-01T14:05:00Z)"
	}),
	"Pending-preempts": waiting("Pending", "It can be admitted when its turn comes", func(x *v1alpha1.WorkloadStanding) {
		victim := mine
		victim.Rule, victim.CheckpointedAt = "InClusterQueue", at(-5*time.Minute)
		x.PreemptionTargets = []v1alpha1.WorkloadRef{victim}
	}),
	"WaitingForQuota": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Missing = []v1alpha1.Missing{
			{PodSet: "main", Resource: "nvidia.com/gpu", Flavor: "h100", Amount: "2", Cohort: "research", Reason: "WaitingForQuota"},
			{PodSet: "main", Resource: "nvidia.com/gpu", Flavor: "a100", Amount: "6", ClusterQueue: "team-a", Reason: "WaitingForQuota"},
		}
		x.HeldBy = []v1alpha1.WorkloadRef{mine, bare, secret, secret}
		x.Suggestions = []string{"2 nvidia.com/gpu in flavor h100 more quota, or as much given back, at cohort research"}
		x.StartsAt = at(95 * time.Minute)
	}),
	"WaitingForQuota-devices": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for example.com/gpu in flavor default, 1 more needed", func(x *v1alpha1.WorkloadStanding) {
		x.Missing = []v1alpha1.Missing{{PodSet: "main", Resource: "example.com/gpu", Flavor: "default", Amount: "1", ClusterQueue: "team-a", Reason: "WaitingForQuota"}}
		x.Devices = []v1alpha1.Device{{PodSet: "main", Resource: "example.com/gpu", Amount: "2", From: "ResourceClaimTemplate two-cards, DeviceClass gpu.example.com"}}
	}),
	"WaitingForBudget": waiting("WaitingForBudget", "waits until Mon 5 Jan 2026 00:00 Europe/Berlin for the budget of ClusterQueue/team-a: of 100 GPU-hours a week, 80 are spent and 16 committed, and it needs 8", func(x *v1alpha1.WorkloadStanding) {
		x.Suggestions = []string{"the next period, which begins 2026-01-05T00:00:00Z"}
	}),
	"ReservedForOthers": waiting("ReservedForOthers", "8 nvidia.com/gpu of h100 are reserved for LocalQueue/vision/course from Tue 6 Jan 2026 08:00 Europe/Berlin until Tue 6 Jan 2026 11:00 Europe/Berlin, and nobody knows how long it runs", func(x *v1alpha1.WorkloadStanding) {
		x.Suggestions = []string{"a run time of at most 91h0m0s, which is over before the reservation begins", "waiting until Tue 6 Jan 2026 11:00 Europe/Berlin, when the reservation ends"}
	}),
	"ReservedForOthers-nodes": waiting("ReservedForOthers", "nodes h100-0, h100-1, h100-2, h100-3 and 4 more are reserved for LocalQueue/vision/course from Tue 6 Jan 2026 08:00 Europe/Berlin until Tue 6 Jan 2026 11:00 Europe/Berlin, and nobody knows how long it runs", func(x *v1alpha1.WorkloadStanding) {
		x.Suggestions = []string{"a run time of at most 91h0m0s, which is over before the reservation begins", "waiting until Tue 6 Jan 2026 11:00 Europe/Berlin, when the reservation ends"}
	}),
	"WaitingForQuota-unknown-end": waiting("WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed", nil),
	"ExceedsMaxQuota": waiting("ExceedsMaxQuota", "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (64) > maximum capacity (32)", func(x *v1alpha1.WorkloadStanding) {
		x.Missing = []v1alpha1.Missing{{PodSet: "main", Resource: "nvidia.com/gpu", Flavor: "h100", Amount: "32", ClusterQueue: "team-a", Reason: "ExceedsMaxQuota"}}
		x.Suggestions = []string{"quota or a borrowing limit of at least 64 nvidia.com/gpu in flavor h100 for queue team-a"}
	}),
	"NoMatchingFlavor": waiting("NoMatchingFlavor", "couldn't assign flavors to pod set main: flavor h100 doesn't match node affinity", func(x *v1alpha1.WorkloadStanding) {
		x.Missing = []v1alpha1.Missing{{PodSet: "main", Reason: "NoMatchingFlavor"}}
		x.Suggestions = []string{"a queue or pods in which this does not hold: flavor h100 doesn't match node affinity"}
	}),
	"TopologyPlacementFailed": waiting("TopologyPlacementFailed", "couldn't assign flavors to pod set main: 7 of 8 pods fit; h100-0/3 (fell off the bus)", func(x *v1alpha1.WorkloadStanding) {
		x.Missing = []v1alpha1.Missing{{PodSet: "main", Reason: "TopologyPlacementFailed"}}
		x.Suggestions = []string{"capacity on nodes for all its pods at once (7 of 8 pods fit)"}
	}),
	"WaitingForPreemptedWorkloads": waiting("WaitingForPreemptedWorkloads", "2 evicted workload(s) still hold the quota freed for it", func(x *v1alpha1.WorkloadStanding) {
		x.State, x.HeldBy, x.Suggestions = "WaitingForPreemptedWorkloads", []v1alpha1.WorkloadRef{mine, secret}, []string{"the evicted workloads letting go"}
	}),
	"PreemptionGated":     waiting("PreemptionGated", "Workload requires preemption, but it's gated", nil),
	"WaitingForPodsReady": waiting("WaitingForPodsReady", "waiting for all admitted workloads to be in PodsReady condition", nil),
	"Misconfigured": waiting("Misconfigured", "LocalQueue main doesn't exist", func(x *v1alpha1.WorkloadStanding) {
		x.State, x.Position, x.ClusterQueue = "HeldBack", 0, ""
	}),
	"Inadmissible": waiting("Inadmissible", "ClusterQueue team-a is inactive", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"Deactivated":  waiting("Deactivated", "The workload is deactivated", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"Suspended":    waiting("Suspended", "LocalQueue main is inactive", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"OnHold":       waiting("OnHold", "ClusterQueue team-a is stopped", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"AdmissionGated": waiting("AdmissionGated", "The workload has admission gates", func(x *v1alpha1.WorkloadStanding) {
		x.State, x.Position = "HeldBack", 0
	}),
	"Dependency":               waiting("Dependency", "It comes after ok job/prepare (has not ended), any job/clean (not in a queue)", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"DependencyNeverSatisfied": waiting("DependencyNeverSatisfied", "It comes after ok job/prepare (failed)", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "HeldBack", 0 }),
	"Evicting":                 waiting("Preempted", "Preempted to accommodate a workload", func(x *v1alpha1.WorkloadStanding) { x.State, x.Position = "Evicting", 0 }),
	"QuotaReserved": waiting("", "", func(x *v1alpha1.WorkloadStanding) {
		x.State, x.Position = "QuotaReserved", 0
		x.PodSets = []v1alpha1.PodSet{{Name: "main", Count: 1, Flavors: map[string]string{"nvidia.com/gpu": "h100"}}}
		x.Checks = []v1alpha1.Check{{Name: "budget", State: "Ready"}, {Name: "provisioning", State: "Pending", Message: "Waiting for 4 nodes"}}
	}),
	"QuotaReserved-spot": waiting("", "", func(x *v1alpha1.WorkloadStanding) {
		x.State, x.Position = "QuotaReserved", 0
		x.PodSets = []v1alpha1.PodSet{{Name: "main", Count: 1, Flavors: map[string]string{"nvidia.com/gpu": "h100"}}}
		x.Checks = []v1alpha1.Check{{Name: "machines", State: "Pending", Message: "waits for spot nodes of flavor h100 until 2026-01-02 06:47 UTC at the latest: about $41 are expected, and on demand now $96"}}
	}),
	"NodesToCome": waiting("PendingDelayedTopologyRequests", "the pod fits nowhere; it is refused by 1 node: node labels do not match (1)", func(x *v1alpha1.WorkloadStanding) {
		x.State, x.Position = "QuotaReserved", 0
		x.Checks = []v1alpha1.Check{{Name: "provisioning", State: "Ready", Message: "Provisioned"}}
	}),
	"Admitted": {Job: "job/a", Status: "PENDING", Pods: "3 of 4 up", Standing: &v1alpha1.WorkloadStanding{
		State: "Admitted", LocalQueue: "main", ClusterQueue: "team-a",
		PodSets: []v1alpha1.PodSet{{Name: "main", Count: 4, Flavors: map[string]string{"nvidia.com/gpu": "h100"}}},
		Checks:  []v1alpha1.Check{{Name: "budget", State: "Ready"}},
	}, Warnings: []string{`job/a: FailedCreate: pods "a-3" is forbidden: exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3`}},
	"Admitted-remote": {Job: "job/infer", Namespace: "nlp", Status: "RUNNING", Workload: "job-infer-1", Pods: "1 of 1 up",
		Standing:    &v1alpha1.WorkloadStanding{State: "Admitted", LocalQueue: "main", ClusterQueue: "team-a"},
		RemoteCards: []string{"claim far: card gpu-node-0-2 of node gpu-node-0, gpu-core 30, gpu-memory 16384; pod elastic-queue/remote-egpu-1 serves it on node gpu-node-0 since 2026-01-01T11:00:00Z"}},
	"Admitted-elastic": {Job: "job/a", Status: "RUNNING", Pods: "4 of 4 up", Standing: &v1alpha1.WorkloadStanding{
		State: "Admitted", LocalQueue: "main", ClusterQueue: "team-a",
		PodSets: []v1alpha1.PodSet{{Name: "main", Count: 2, Flavors: map[string]string{"nvidia.com/gpu": "h100"}}},
	}, Elastic: "4 pods of main, of 2 to 8; more when quota is idle: couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed"},
	"Finished-not-started": {Job: "job/a", Status: "FAILED", Failure: "it could not be started: the flavor h100 and the job disagree about the label zone", Standing: &v1alpha1.WorkloadStanding{State: "Finished", LocalQueue: "main", ClusterQueue: "team-a"}},
	"Finished":             {Job: "job/a", Status: "SUCCEEDED", Standing: &v1alpha1.WorkloadStanding{State: "Finished", LocalQueue: "main", ClusterQueue: "team-a"}},
	"Unknown":              {Job: "job/a", Status: "QUEUING", Standing: &v1alpha1.WorkloadStanding{State: "Unknown", LocalQueue: "main"}},
	"no-queue":             {Job: "job/a", Status: "RUNNING", Pods: "1 of 1 up"},
	"no-api":               {Job: "job/a", Status: "QUEUING", Standing: &v1alpha1.WorkloadStanding{State: "Pending", LocalQueue: "main", Reason: "WaitingForQuota", Message: "couldn't assign flavors"}, Note: "the queue could not be asked (it is not there); this is what it wrote last"},
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestRender(t *testing.T) {
	for name, answer := range answers {
		var out bytes.Buffer
		Render(output.Writer{Writer: &out}, answer, noon)
		golden(t, name, out.String())
		// On a terminal of 80 columns an answer takes no more than 25 lines.
		out.Reset()
		Render(output.Writer{Writer: &out, Width: 80}, answer, noon)
		if lines := strings.Split(out.String(), "\n"); len(lines) > 25 {
			t.Errorf("%s: %d lines", name, len(lines))
		}
	}
}

// Each reason of the engine has a golden file and plain words.
func TestEveryRefusal(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../admission/plan.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, decl := range file.Decls {
		consts, ok := decl.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(consts.Doc.Text(), "Why a workload has no quota reserved") {
			continue
		}
		for _, spec := range consts.Specs {
			reason := strings.Trim(spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value, `"`)
			found++
			if answers[reason] == nil {
				t.Errorf("no golden file explains %s", reason)
			}
			if Because[reason] == "" {
				t.Errorf("%s has no plain words", reason)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d reasons in the engine: has the list moved?", found)
	}
}

func TestRenderPlan(t *testing.T) {
	plan := func(starts bool, a *Answer) *v1alpha1.PlanStatus {
		return &v1alpha1.PlanStatus{StartsNow: starts, WorkloadStanding: *a.Standing}
	}
	for name, status := range map[string]*v1alpha1.PlanStatus{
		"plan-now":      plan(true, answers["Pending"]),
		"plan-preempts": plan(false, answers["Pending-preempts"]),
		"plan-waits":    plan(false, answers["WaitingForQuota"]),
		"plan-never":    plan(false, answers["ExceedsMaxQuota"]),
		"plan-window":   plan(false, answers["ExceedsMaxQuota-window"]),
		"plan-held":     plan(false, answers["Misconfigured"]),
		"plan-cost": plan(true, waiting("Pending", "It can be admitted when its turn comes", func(x *v1alpha1.WorkloadStanding) {
			x.ExpectedCost, x.Cost = "80.00", "flavors in the order of expected cost for 2h0m0s: spot 22.40, on-demand 80.00"
			x.PodSets = []v1alpha1.PodSet{{Name: "main", Count: 1, Flavors: map[string]string{"nvidia.com/gpu": "on-demand"}}}
		})),
	} {
		var out bytes.Buffer
		RenderPlan(output.Writer{Writer: &out}, "job/big", status, noon)
		golden(t, name, out.String())
	}
}
