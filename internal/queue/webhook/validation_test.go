package webhook

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// wants compares errors with what they must begin with, in order.
func wants(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	for i := range max(len(errs), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("unexpected: %v", errs[i])
		case i >= len(errs):
			t.Errorf("missing: %s", want[i])
		case !strings.HasPrefix(errs[i].Error(), want[i]):
			t.Errorf("error %d is\n %v\nwant\n %s", i, errs[i], want[i])
		}
	}
}

func quantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }

// quota is "name nominal [borrowingLimit [lendingLimit]]".
func quota(text string) kueue.ResourceQuota {
	f := strings.Fields(text)
	q := kueue.ResourceQuota{Name: corev1.ResourceName(f[0]), NominalQuota: resource.MustParse(f[1])}
	if len(f) > 2 && f[2] != "-" {
		q.BorrowingLimit = quantity(f[2])
	}
	if len(f) > 3 {
		q.LendingLimit = quantity(f[3])
	}
	return q
}

func flavor(name string, quotas ...string) kueue.FlavorQuotas {
	out := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name)}
	for _, q := range quotas {
		out.Resources = append(out.Resources, quota(q))
	}
	return out
}

func many(n int) (out []kueue.FlavorQuotas) {
	for i := range n {
		out = append(out, flavor(fmt.Sprintf("f%d", i)))
	}
	return out
}

func group(covered string, flavors ...kueue.FlavorQuotas) kueue.ResourceGroup {
	g := kueue.ResourceGroup{Flavors: flavors}
	for _, name := range strings.Fields(covered) {
		g.CoveredResources = append(g.CoveredResources, corev1.ResourceName(name))
	}
	return g
}

func TestClusterQueue(t *testing.T) {
	for name, test := range map[string]struct {
		spec kueue.ClusterQueueSpec
		old  *kueue.ClusterQueueSpec
		want []string
	}{
		"in order": {spec: kueue.ClusterQueueSpec{CohortName: "all", ResourceGroups: []kueue.ResourceGroup{
			group("cpu memory", flavor("alpha", "cpu 1 1 1", "memory 1Gi")), group("example.com/gpu", flavor("beta", "example.com/gpu 0")),
		}}},
		"resources in the wrong order": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("cpu memory", flavor("alpha", "memory 0", "cpu 0"))}},
			want: []string{
				`spec.resourceGroups[0].flavors[0].resources[0].name: Invalid value: "memory": must match the name in coveredResources`,
				`spec.resourceGroups[0].flavors[0].resources[1].name: Invalid value: "cpu": must match the name in coveredResources`,
			},
		},
		"a resource and a flavor in two groups": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 0")), group("cpu", flavor("alpha", "cpu 0"))}},
			want: []string{
				`spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"`,
				`spec.resourceGroups[1].flavors[0].name: Duplicate value: "alpha"`,
			},
		},
		"a resource that is no name": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("@cpu", flavor("alpha", "@cpu 0"))}},
			want: []string{`spec.resourceGroups[0].coveredResources[0]: Invalid value: "@cpu": name part must consist of`},
		},
		"limits without a cohort": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 1 1 1"))}},
			want: []string{
				`spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "1": must be nil when cohort is empty`,
				`spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "1": must be nil when cohort is empty`,
			},
		},
		"negative amounts": {
			spec: kueue.ClusterQueueSpec{CohortName: "all", ResourceGroups: []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu -1 -1 -1"))}},
			want: []string{
				`spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "-1": must be greater than or equal to 0`,
				`spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "-1": must be greater than or equal to 0`,
				`spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "-1": must be greater than or equal to 0`,
			},
		},
		"lends more than it has": {
			spec: kueue.ClusterQueueSpec{CohortName: "all", ResourceGroups: []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 1 - 2"))}},
			want: []string{`spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "2": must be less than or equal to the nominalQuota`},
		},
		"a selector that is none": {
			spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "key", Operator: "In"}}}},
			want: []string{`spec.namespaceSelector.matchExpressions[0].values: Required value`},
		},
		"borrows by preemption but never reclaims": {
			spec: kueue.ClusterQueueSpec{Preemption: &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyNever,
				BorrowWithinCohort:  &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority},
			}},
			want: []string{`spec.preemption: Invalid value`},
		},
		"a preference with nothing to choose from": {
			spec: kueue.ClusterQueueSpec{FlavorFungibility: &kueue.FlavorFungibility{
				WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor, Preference: ptr.To(kueue.PreemptionOverBorrowing),
			}},
			want: []string{`spec.flavorFungibility.preference: Invalid value: "PreemptionOverBorrowing": preference "PreemptionOverBorrowing" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor`},
		},
		"weights": {
			spec: kueue.ClusterQueueSpec{FairSharing: &kueue.FairSharing{Weight: quantity("-1")}},
			want: []string{`spec.fairSharing: Invalid value: "-1": must be greater than or equal to 0`},
		},
		"a weight that vanishes": {
			spec: kueue.ClusterQueueSpec{FairSharing: &kueue.FairSharing{Weight: quantity("1n")}},
			want: []string{`spec.fairSharing: Invalid value: "1n": When not 0, weight must be > 10e-9`},
		},
		"too many flavors": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("cpu", many(257)...)}},
			want: []string{`spec.resourceGroups: Invalid value: 257: total number of flavors across all resourceGroups must be ≤ 256, got 257`},
		},
		"a check for a flavor that is not there": {
			spec: kueue.ClusterQueueSpec{
				ResourceGroups:          []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 0"), flavor("beta", "cpu 0"))},
				AdmissionChecksStrategy: checks("ac", "alpha", "gamma"),
			},
			want: []string{`spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]: Unsupported value: "gamma": supported values: "alpha", "beta"`},
		},
		"a check that was wrong before": {
			spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: checks("ac", "gamma"), QueueingStrategy: kueue.StrictFIFO},
			old:  &kueue.ClusterQueueSpec{AdmissionChecksStrategy: checks("ac", "gamma")},
		},
		"concurrent admission is for ever": {
			spec: kueue.ClusterQueueSpec{},
			old:  &kueue.ClusterQueueSpec{ConcurrentAdmissionPolicy: &kueue.ConcurrentAdmissionPolicy{}},
			want: []string{`spec.concurrentAdmissionPolicy: Invalid value: null: field is immutable`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var old *kueue.ClusterQueue
			if test.old != nil {
				old = &kueue.ClusterQueue{Spec: *test.old}
			}
			wants(t, ClusterQueue(&kueue.ClusterQueue{Spec: test.spec}, old), test.want...)
		})
	}
}

func TestConcurrentAdmission(t *testing.T) {
	policy := func(mode kueue.ConcurrentAdmissionMigrationMode, last string) *kueue.ConcurrentAdmissionPolicy {
		p := &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: mode}}
		if last != "" {
			p.Migration.Constraints = &kueue.ConcurrentAdmissionConstraints{LastAcceptableFlavorName: ptr.To(kueue.ResourceFlavorReference(last))}
		}
		return p
	}
	two := []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 0"), flavor("beta", "cpu 0"))}
	for name, test := range map[string]struct {
		spec kueue.ClusterQueueSpec
		want []string
	}{
		"none": {spec: kueue.ClusterQueueSpec{QueueingStrategy: kueue.StrictFIFO}},
		"down to a flavor": {spec: kueue.ClusterQueueSpec{
			ResourceGroups: two, ConcurrentAdmissionPolicy: policy(kueue.ConcurrentAdmissionTryPreferredFlavors, "beta"),
		}},
		"several groups, in order": {
			spec: kueue.ClusterQueueSpec{
				ResourceGroups:            []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 0")), group("memory", flavor("beta", "memory 0"))},
				ConcurrentAdmissionPolicy: policy("", ""), QueueingStrategy: kueue.StrictFIFO,
			},
			want: []string{
				"spec.resourceGroups: Invalid value: 2: must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
				`spec.queueingStrategy: Invalid value: "StrictFIFO": StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined`,
			},
		},
		"too many flavors": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group("cpu", many(17)...)}, ConcurrentAdmissionPolicy: policy("", "")},
			want: []string{"spec.resourceGroups[0].flavors: Invalid value: 17: cannot have more than 16 resource flavors"},
		},
		"constraints of nothing": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: two, ConcurrentAdmissionPolicy: policy(kueue.ConcurrentAdmissionRetainFirstAdmission, "beta")},
			want: []string{`spec.concurrentAdmissionPolicy.migration.constraints: Forbidden: may only be set when migration.mode is "TryPreferredFlavors" (got "RetainFirstAdmission")`},
		},
		"a flavor that is not there": {
			spec: kueue.ClusterQueueSpec{ResourceGroups: two, ConcurrentAdmissionPolicy: policy("", "gamma")},
			want: []string{`spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName: Invalid value: "gamma": must be one of the flavors defined in the ClusterQueue: [alpha beta]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cq := &kueue.ClusterQueue{Spec: test.spec}
			wants(t, Options{ConcurrentAdmission: true}.clusterQueue(cq, nil), test.want...)
			wants(t, Options{}.clusterQueue(cq, nil))
		})
	}
}

func checks(name string, flavors ...kueue.ResourceFlavorReference) *kueue.AdmissionChecksStrategy {
	return &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(name), OnFlavors: flavors}}}
}

func TestCohort(t *testing.T) {
	wants(t, Cohort(&kueue.Cohort{Spec: kueue.CohortSpec{ResourceGroups: []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 1 1"))}}}),
		`spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "1": must be nil when parent is empty`)
	// A cohort lends what its children lend it, more than its own.
	wants(t, Cohort(&kueue.Cohort{Spec: kueue.CohortSpec{ParentName: "root", ResourceGroups: []kueue.ResourceGroup{group("cpu", flavor("alpha", "cpu 1 1 5"))}}}))
}

func TestResourceFlavor(t *testing.T) {
	wants(t, ResourceFlavor(&kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"@key": "value"},
		NodeTaints: []corev1.Taint{
			{Key: "spot", Value: "@", Effect: corev1.TaintEffectNoSchedule}, {Key: "spot", Effect: corev1.TaintEffectNoSchedule},
			{Key: "spot", Effect: corev1.TaintEffectNoExecute},
		},
		Tolerations: []corev1.Toleration{{Key: "@"}, {Operator: corev1.TolerationOpExists}},
	}}),
		`spec.nodeLabels: Invalid value: "@key"`,
		`spec.nodeTaints[0].value: Invalid value: "@"`,
		`spec.nodeTaints[1]: Duplicate value: {"key":"spot","effect":"NoSchedule"}: taints must be unique by key and effect pair`,
		`spec.tolerations[0].key: Invalid value: "@"`)
}

// running is a workload of three pods that holds quota.
func running(change ...func(*kueue.Workload)) *kueue.Workload {
	wl := waiting()
	wl.Status.Conditions = []metav1.Condition{{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.Now(),
	}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To(int32(3)), ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("3")},
	}}}
	for _, c := range change {
		c(wl)
	}
	return wl
}

func waiting(change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "wl", Namespace: "ns", Annotations: map[string]string{}}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
	}}}}
	for _, c := range change {
		c(wl)
	}
	return wl
}

type edit = func(*kueue.Workload)

func annotate(key, value string) edit {
	return func(wl *kueue.Workload) { wl.Annotations[key] = value }
}

func reclaim(name string, count int32) edit {
	return func(wl *kueue.Workload) {
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: kueue.PodSetReference(name), Count: count}}
	}
}

func topology(request kueue.PodSetTopologyRequest) edit {
	return func(wl *kueue.Workload) { wl.Spec.PodSets[0].TopologyRequest = &request }
}

func check(state kueue.CheckState, updates ...kueue.PodSetUpdate) edit {
	return func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "ac", State: state, PodSetUpdates: updates}}
	}
}

func TestWorkload(t *testing.T) {
	const gate, boosted, elastic = workload.GatedByAnnotation, workload.PriorityBoostAnnotation, kueuelabels.ElasticJob
	second := func(wl *kueue.Workload) {
		set := wl.Spec.PodSets[0]
		set.Name = "second"
		wl.Spec.PodSets = append(wl.Spec.PodSets, set)
	}
	partial := func(wl *kueue.Workload) {
		for i := range wl.Spec.PodSets {
			wl.Spec.PodSets[i].MinCount = ptr.To(int32(1))
		}
	}
	requests := func(name, amount string) edit {
		return func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
	}
	for name, test := range map[string]struct {
		old, wl *kueue.Workload
		want    []string
	}{
		"waiting":  {wl: waiting()},
		"running":  {old: waiting(), wl: running()},
		"released": {old: running(), wl: waiting()},
		"two partial pod sets": {
			wl:   waiting(second, partial),
			want: []string{`spec.podSets: Invalid value: 2: at most one podSet can use minCount`},
		},
		"partial and elastic": {
			wl:   waiting(partial, annotate(elastic, "true")),
			want: []string{`spec.podSets: Invalid value: 1: partial admission and elastic job cannot be used together`},
		},
		"pods are not asked for": {
			wl:   waiting(requests("pods", "1")),
			want: []string{`spec.podSets[0].template.spec.containers[0].resources.requests[pods]: Invalid value: "pods": the key is reserved for internal kueue use`},
		},
		"less than nothing": {
			wl:   waiting(requests("memory", "-1")),
			want: []string{`spec.podSets[0].template.spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0`},
		},
		"more than can be counted": {
			wl:   waiting(requests("memory", "4Ei")),
			want: []string{`spec.podSets[0].count: Invalid value: 3: so many pods that ask for 4Ei of memory each are more than can be counted`},
		},
		"more than can be counted, by their number": {
			wl:   waiting(requests("memory", "4Gi"), func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = math.MaxInt32 }),
			want: []string{`spec.podSets[0].count: Invalid value: 2147483647: so many pods that ask for 4Gi of memory each are more than can be counted`},
		},
		"as it always was": {
			old: waiting(requests("memory", "4Ei")),
			wl:  waiting(requests("memory", "4Ei"), annotate("a", "b")),
		},
		"labels that are none": {
			wl:   waiting(func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Labels = map[string]string{"@": ""} }),
			want: []string{`spec.podSets[0].template.metadata.labels: Invalid value: "@"`},
		},
		"slices without a size": {
			wl:   waiting(topology(kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: ptr.To("rack")})),
			want: []string{`spec.podSets[0].topologyRequest.podSetSliceSize: Required value: must be set when podSetSliceRequiredTopology is specified`},
		},
		"slices of nothing": {
			wl:   waiting(topology(kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: ptr.To("rack"), PodSetSliceSize: ptr.To(int32(0))})),
			want: []string{`spec.podSets[0].topologyRequest.podSetSliceSize: Invalid value: 0: must be greater than 0`},
		},
		"a size without slices": {
			wl:   waiting(topology(kueue.PodSetTopologyRequest{PodSetSliceSize: ptr.To(int32(1))})),
			want: []string{`spec.podSets[0].topologyRequest.podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology is not specified`},
		},
		"quota without an admission": {
			old: waiting(), wl: running(func(wl *kueue.Workload) { wl.Status.Admission = nil }),
			want: []string{`status.admission: Required value: must be set while the QuotaReserved condition is true`},
		},
		"quota whose admission was lost before": {
			old: running(func(wl *kueue.Workload) { wl.Status.Admission = nil }), wl: running(func(wl *kueue.Workload) { wl.Status.Admission = nil }),
		},
		"an admission of another's pods": {
			old: waiting(), wl: running(func(wl *kueue.Workload) { wl.Status.Admission.PodSetAssignments[0].Name = "other" }),
			want: []string{`status.admission.podSetAssignments[0].name: Not found: "other"`},
		},
		"usage that does not divide": {
			old: waiting(), wl: running(func(wl *kueue.Workload) {
				wl.Status.Admission.PodSetAssignments[0].ResourceUsage["cpu"] = resource.MustParse("1")
			}),
			want: []string{`status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: "1": is not a multiple of 3`},
		},
		"an admission changes hands": {
			old: running(), wl: running(func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "other" }),
			want: []string{`status.admission: Invalid value`},
		},
		"its place is found later": {
			old: running(), wl: running(func(wl *kueue.Workload) {
				wl.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{Levels: []string{"rack"}}
			}),
		},
		"grows while it holds quota": {
			old: running(), wl: running(func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 4 }),
			want: []string{`spec.podSets.0: Invalid value`},
		},
		"shrinks while it holds quota": {
			old: running(annotate(elastic, "true")),
			wl:  running(annotate(elastic, "true"), func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 2 }),
		},
		"another priority while it waits": {
			old: waiting(), wl: waiting(func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To(int32(7)) }),
		},
		"pods finished": {old: running(), wl: running(reclaim("main", 2))},
		"pods of another finished": {
			old: running(), wl: running(reclaim("other", 2)),
			want: []string{`status.reclaimablePods[other].name: Unsupported value: "other": supported values: "main"`},
		},
		"more finished than there were": {
			old: running(), wl: running(reclaim("main", 4)),
			want: []string{`status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3`},
		},
		"finished pods come back": {
			old: running(reclaim("main", 2)), wl: running(reclaim("main", 1)),
			want: []string{`status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2`},
		},
		"finished pods are forgotten": {
			old: running(reclaim("main", 2)), wl: running(),
			want: []string{`status.reclaimablePods[main]: Required value: cannot be removed`},
		},
		"a check adds to unknown pods": {
			wl: waiting(check(kueue.CheckStatePending, kueue.PodSetUpdate{
				Name: "other", Labels: map[string]string{"@": ""}, Tolerations: []corev1.Toleration{{Key: "@"}},
			})),
			want: []string{
				`status.admissionChecks[0].podSetUpdates[0].name: Unsupported value: "other": supported values: "main"`,
				`status.admissionChecks[0].podSetUpdates[0].tolerations[0].key: Invalid value: "@"`,
				`status.admissionChecks[0].podSetUpdates[0].labels: Invalid value: "@"`,
			},
		},
		"a ready check adds more": {
			old:  running(check(kueue.CheckStateReady)),
			wl:   running(check(kueue.CheckStateReady, kueue.PodSetUpdate{Name: "main", Labels: map[string]string{"a": "b"}})),
			want: []string{`status.admissionChecks[0].podSetUpdates: Invalid value`},
		},
		"a cluster nobody nominated": {
			old: waiting(), wl: waiting(func(wl *kueue.Workload) { wl.Status.ClusterName = ptr.To("far") }),
			want: []string{`status.clusterName: Invalid value: "far": when setting clusterName it must be one of the nominatedClusterNames`},
		},
		"boosted":     {wl: waiting(annotate(boosted, "-5"))},
		"no boost":    {wl: waiting(annotate(boosted, "")), want: []string{`metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: "": must be a valid signed integer; use "0" explicitly, empty string is not allowed`}},
		"a bad boost": {wl: waiting(annotate(boosted, "5.5")), want: []string{`metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: "5.5": must be a valid signed integer`}},
		"gated":       {wl: waiting(annotate(gate, "a.example.com/x, b.example.com/y"))},
		"bad gates": {
			wl: waiting(annotate(gate, "a.example.com/x,,a.example.com/x,plain")),
			want: []string{
				`metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: "a.example.com/x,,a.example.com/x,plain": cannot contain empty gate names`,
				`metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: "a.example.com/x,,a.example.com/x,plain": duplicate gate name: a.example.com/x`,
				`metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: "plain": must be a domain-prefixed path`,
			},
		},
		"a gate opens": {old: waiting(annotate(gate, "a.example.com/x,b.example.com/y")), wl: waiting(annotate(gate, "b.example.com/y"))},
		"a gate too late": {
			old: waiting(), wl: waiting(annotate(gate, "a.example.com/x")),
			want: []string{`metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Forbidden: cannot add admission gate after creation`},
		},
		"a gate more": {
			old: waiting(annotate(gate, "a.example.com/x")), wl: waiting(annotate(gate, "a.example.com/x,b.example.com/y")),
			want: []string{`metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Forbidden: can only remove gates, not add new ones`},
		},
	} {
		t.Run(name, func(t *testing.T) { wants(t, Workload(test.wl, test.old), test.want...) })
	}
}

func TestWarnings(t *testing.T) {
	got := warnings(waiting(topology(kueue.PodSetTopologyRequest{SubGroupCount: ptr.To(int32(-1))})))
	if len(got) != 1 || got[0] != "spec.podSets[0].topologyRequest.subGroupCount: negative value -1 is deprecated and will be rejected in a future release" {
		t.Errorf("warnings are %q", got)
	}
}

// With Kueue's RejectUpdatesToCQWithInvalidOnFlavors a check that was wrong before has to be mended with any change.
func TestStrictFlavors(t *testing.T) {
	wrong := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: checks("ac", "gamma")}}
	wants(t, strictFlavors(wrong, wrong), `spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value: "gamma"`)
	wants(t, strictFlavors(wrong, nil)) // the other rule finds it
	wants(t, strictFlavors(&kueue.ClusterQueue{}, wrong))
}
