package features

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Gate is the name of a gate that switches something here.
type Gate string

// The gates that switch something here.
const (
	AdmissionFairSharing             Gate = "AdmissionFairSharing"
	AdmissionGatedBy                 Gate = "AdmissionGatedBy"
	AssignQueueLabelsForPods         Gate = "AssignQueueLabelsForPods"
	CleanUpProvisioningRequests      Gate = "CleanupProvisioningRequestsOnEviction"
	ConcurrentAdmission              Gate = "ConcurrentAdmission"
	ConsumableCapacity               Gate = "KueueDRAIntegrationConsumableCapacity"
	CustomMetricLabels               Gate = "CustomMetricLabels"
	DeviceClaims                     Gate = "KueueDRAIntegration"
	DeviceExtendedResources          Gate = "KueueDRAIntegrationExtendedResource"
	DisableWaitForPodsReady          Gate = "DisableWaitForPodsReady"
	ElasticJobsWithTAS               Gate = "ElasticJobsViaWorkloadSlicesWithTAS"
	FailureRecoveryPolicy            Gate = "FailureRecoveryPolicy"
	FastQuotaRelease                 Gate = "FastQuotaReleaseInPodIntegration"
	FinishOrphanedWorkloads          Gate = "FinishOrphanedWorkloads"
	LocalQueueMetrics                Gate = "LocalQueueMetrics"
	RejectDeviceClaims               Gate = "KueueDRARejectWorkloadsWhenDRADisabled"
	MetricForWorkloadCreationLatency Gate = "MetricForWorkloadCreationLatency"
	MetricsForCohorts                Gate = "MetricsForCohorts"
	LWSImmutableGroupSize            Gate = "LWSImmutableGroupSize"
	MultiKueue                       Gate = "MultiKueue"
	MultiKueueAdaptersForCustomJobs  Gate = "MultiKueueAdaptersForCustomJobs"
	PartialAdmission                 Gate = "PartialAdmission"
	PartitionableDevices             Gate = "KueueDRAIntegrationPartitionableDevices"
	PriorityBoost                    Gate = "PriorityBoost"
	QuotaCheckStrategy               Gate = "QuotaCheckStrategy"
	ReclaimablePods                  Gate = "ReclaimablePods"
	RecomputeOnOverlap               Gate = "RecomputeAssignmentUponPreemptionTargetsOverlap"
	RejectInvalidOnFlavors           Gate = "RejectUpdatesToCQWithInvalidOnFlavors"
	TimestampPreemptionBuffer        Gate = "SchedulerTimestampPreemptionBuffer"
	SchedulingEquivalenceHashing     Gate = "SchedulingEquivalenceHashing"
	ShortWorkloadNames               Gate = "ShortWorkloadNames"
	SkipReassignment                 Gate = "SkipReassignmentForPodOwnedWorkloads"
	SparkApplicationIntegration      Gate = "SparkApplicationIntegration"
	TASBalancedPlacement             Gate = "TASBalancedPlacement"
	TASFailedNodeReplacement         Gate = "TASFailedNodeReplacement"
	TASFailedNodeReplacementFailFast Gate = "TASFailedNodeReplacementFailFast"
	TASMultiLayerTopology            Gate = "TASMultiLayerTopology"
	TASPreferredAffinity             Gate = "TASRespectNodeAffinityPreferred"
	TASProfileMixed                  Gate = "TASProfileMixed"
	TASReplaceAfterNotReady          Gate = "TASReplaceNodeDueToNotReadyOverFixedTime"
	TASReplaceOnTaints               Gate = "TASReplaceNodeOnNodeTaints"
	TASReplaceOnPodTermination       Gate = "TASReplaceNodeOnPodTermination"
	TASEncodeByHostnamePrefix        Gate = "TASAssignmentsEncodingByHostnamePrefix"
	TLSOptions                       Gate = "TLSOptions"
	TopologyAwareScheduling          Gate = "TopologyAwareScheduling"
	UnadmittedWorkloadsObservability Gate = "UnadmittedWorkloadsObservability"
	ValidateRayAndSparkJobUpdates    Gate = "ValidateRayAndSparkJobUpdates"
	VisibilityOnDemand               Gate = "VisibilityOnDemand"
	WorkloadIdentifierAnnotations    Gate = "WorkloadIdentifierAnnotations"
	WorkloadPriorityClassDefaulting  Gate = "WorkloadPriorityClassDefaulting"

	UnadmittedWorkloadsExplicitStatus Gate = "UnadmittedWorkloadsExplicitStatus"

	MultiKueueClusterProfile                          Gate = "MultiKueueClusterProfile"
	MultiKueueIncrementalDispatcherConfig             Gate = "MultiKueueIncrementalDispatcherConfig"
	MultiKueueIncrementalDispatcherRespectConfigOrder Gate = "MultiKueueIncrementalDispatcherRespectConfigOrder"
	MultiKueueManagerQuotaAutomation                  Gate = "MultiKueueManagerQuotaAutomation"
	MultiKueueKubeConfigPathValidation                Gate = "MultiKueueKubeConfigPathValidation"
	MultiKueueOrchestratedPreemption                  Gate = "MultiKueueOrchestratedPreemption"
	MultiKueueRemoteSpecSync                          Gate = "MultiKueueRemoteSpecSync"
)

type treatment uint8

const (
	switches treatment = iota // both ways
	always                    // cannot be switched off
	locked                    // has its default for good, in Kueue too
	idle                      // accepted, means nothing
)

// gate is Kueue's default of one, and how it is treated here.
type gate struct {
	byDefault bool // in Kueue
	treatment treatment
}

var gates = map[string]gate{
	string(AdmissionFairSharing):             {true, switches},
	string(AdmissionGatedBy):                 {true, switches},
	string(AssignQueueLabelsForPods):         {true, switches},
	string(CleanUpProvisioningRequests):      {true, switches},
	string(ConcurrentAdmission):              {false, switches},
	string(ConsumableCapacity):               {false, switches},
	string(CustomMetricLabels):               {false, switches},
	string(DeviceClaims):                     {true, switches},
	string(DeviceExtendedResources):          {true, switches},
	string(DisableWaitForPodsReady):          {false, switches},
	string(ElasticJobsWithTAS):               {false, switches},
	string(FailureRecoveryPolicy):            {false, switches},
	string(FastQuotaRelease):                 {false, switches},
	string(FinishOrphanedWorkloads):          {true, switches},
	string(LocalQueueMetrics):                {true, switches},
	string(MetricForWorkloadCreationLatency): {true, switches},
	string(MetricsForCohorts):                {true, switches},
	string(LWSImmutableGroupSize):            {true, switches},
	string(MultiKueue):                       {true, switches},
	string(MultiKueueAdaptersForCustomJobs):  {true, switches},
	string(PartialAdmission):                 {true, switches},
	string(PartitionableDevices):             {true, switches},
	string(PriorityBoost):                    {false, switches},
	string(QuotaCheckStrategy):               {true, switches},
	string(RejectDeviceClaims):               {true, switches},
	string(ReclaimablePods):                  {true, switches},
	string(RecomputeOnOverlap):               {false, switches},
	string(RejectInvalidOnFlavors):           {false, switches},
	string(TimestampPreemptionBuffer):        {false, switches},
	string(SchedulingEquivalenceHashing):     {true, switches},
	string(ShortWorkloadNames):               {false, switches},
	string(SkipReassignment):                 {true, switches},
	string(SparkApplicationIntegration):      {false, switches},
	string(TASBalancedPlacement):             {false, switches},
	string(TASFailedNodeReplacement):         {true, switches},
	string(TASFailedNodeReplacementFailFast): {true, switches},
	string(TASMultiLayerTopology):            {true, switches},
	string(TASPreferredAffinity):             {false, switches},
	string(TASProfileMixed):                  {true, switches},
	string(TASReplaceAfterNotReady):          {false, switches},
	string(TASReplaceOnTaints):               {true, switches},
	string(TASReplaceOnPodTermination):       {true, switches},
	string(TASEncodeByHostnamePrefix):        {true, switches},
	string(TLSOptions):                       {true, switches},
	string(TopologyAwareScheduling):          {true, switches},
	string(UnadmittedWorkloadsObservability): {false, switches},
	string(ValidateRayAndSparkJobUpdates):    {true, switches},
	string(VisibilityOnDemand):               {true, switches},
	string(WorkloadIdentifierAnnotations):    {true, switches},
	string(WorkloadPriorityClassDefaulting):  {false, switches},

	string(UnadmittedWorkloadsExplicitStatus): {false, switches},

	string(MultiKueueClusterProfile):                          {false, switches},
	string(MultiKueueIncrementalDispatcherConfig):             {true, switches},
	string(MultiKueueIncrementalDispatcherRespectConfigOrder): {true, switches},
	string(MultiKueueManagerQuotaAutomation):                  {false, switches},
	string(MultiKueueKubeConfigPathValidation):                {false, switches},
	string(MultiKueueOrchestratedPreemption):                  {false, switches},
	string(MultiKueueRemoteSpecSync):                          {true, switches},

	"DeferRayServiceFinalizationForRedisCleanup": {true, always},
	"ElasticJobsViaWorkloadSlices":               {true, always},
	"FairSharingPreemptWithinNominal":            {true, always},
	"FairSharingPrioritizeNonBorrowing":          {true, always},
	"FlavorFungibility":                          {true, always},
	"PodIntegrationValidateGroupOwner":           {true, always},
	"PrioritySortingWithinCohort":                {true, always},
	"TASHandleOverlappingFlavors":                {true, always},
	"TASValidateWorkloadSliceSize":               {true, always},
	"WorkloadValidateResourcesAreNonNegative":    {true, always},
	"WorkloadValidationForPodSetMetadata":        {true, always},

	"HierarchicalCohorts":                         {true, locked},
	"ManagedJobsNamespaceSelectorAlwaysRespected": {true, locked},
	"MultiKueueAllowInsecureKubeconfigs":          {false, locked},
	"MultiKueueRedoAdmissionOnEvictionInWorker":   {true, locked},
	"MultiKueueWaitForWorkloadAdmitted":           {true, locked},
	"ObjectRetentionPolicies":                     {true, locked},
	"PropagateBatchJobLabelsToWorkload":           {true, locked},
	"SkipFinalizersForPodsSuspendedByParent":      {true, locked},

	"FlavorFungibilityPreserveScanProgress":       {true, idle},
	"PrioritizePreemptorWorkloads":                {false, idle},
	"RemoveFinalizersWithStrictPatch":             {true, idle},
	"SchedulerLibraryIntegration":                 {false, idle},
	"SchedulerLongRequeueInterval":                {false, idle},
	"SkipAncestorCheckForDeletedWorkloads":        {true, idle},
	"TASCacheNodeMatchResults":                    {true, idle},
	"TASCacheTopologyTree":                        {false, idle},
	"TASCachingRemainingResources":                {true, idle},
	"TASRecomputeAssignmentWithinSchedulingCycle": {true, idle},
	"VectorizedResourceRequests":                  {true, idle},
	"WorkloadRequestUseMergePatch":                {false, idle},
}

// Set is the gates as they were given; the zero value has Kueue's defaults.
type Set struct{ given map[string]bool }

// New validates the gates a person set: every name must be one of Kueue's, and no gate may be given a value that it
// cannot have here.
func New(given map[string]bool) (Set, error) {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		g, known := gates[name]
		switch {
		case !known:
			problems = append(problems, fmt.Errorf("feature gate %q: there is none of that name%s", name, similar(name)))
		case g.treatment == locked && given[name] != g.byDefault:
			problems = append(problems, fmt.Errorf("feature gate %s: it is locked to %t, as in Kueue; remove it", name, g.byDefault))
		case g.treatment == always && !given[name]:
			problems = append(problems, fmt.Errorf("feature gate %s: elastic-queue cannot switch it off; remove it or set it to true", name))
		}
		if base, dependent := needs[Gate(name)]; given[name] && dependent && !(Set{given}).Enabled(base) {
			problems = append(problems, fmt.Errorf("feature gate %s: %[1]s requires %s to be enabled", name, needs[Gate(name)]))
		}
	}
	return Set{given}, errors.Join(problems...)
}

// needs is the gate without which another is off.
var needs = map[Gate]Gate{
	ConsumableCapacity: DeviceClaims, DeviceExtendedResources: DeviceClaims, PartitionableDevices: DeviceClaims,
	UnadmittedWorkloadsExplicitStatus: UnadmittedWorkloadsObservability, ElasticJobsWithTAS: TopologyAwareScheduling,
}

// Enabled says whether a gate is on.
func (s Set) Enabled(name Gate) bool {
	if base, dependent := needs[name]; dependent && !s.Enabled(base) {
		return false
	}
	if on, given := s.given[string(name)]; given {
		return on
	}
	return gates[string(name)].byDefault
}

// Given says whether a gate was set at all, and how.
func (s Set) Given(name Gate) (on, given bool) {
	on, given = s.given[string(name)]
	return on, given
}

// similar lists gates whose names share much with one that does not exist.
func similar(name string) string {
	type match struct {
		name  string
		score int
	}
	var matches []match
	for candidate := range gates {
		if n := common(strings.ToLower(name), strings.ToLower(candidate)); n*2 >= len(name) {
			matches = append(matches, match{candidate, n*100 - len(candidate)})
		}
	}
	slices.SortFunc(matches, func(a, b match) int {
		if a.score != b.score {
			return b.score - a.score
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, m := range matches[:min(3, len(matches))] {
		names = append(names, m.name)
	}
	if len(names) == 0 {
		return ""
	}
	return "; near it are " + strings.Join(names, ", ")
}

// common is the length of the longest run of letters two words share.
func common(a, b string) int {
	best := 0
	row := make([]int, len(b)+1)
	for i := range len(a) {
		diagonal := 0
		for j := range len(b) {
			above := row[j+1]
			row[j+1] = 0
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
				best = max(best, row[j+1])
			}
			diagonal = above
		}
	}
	return best
}

// Flag is the command line's form of the gates: "A=true,B=false". It writes
// into the map a configuration file is read into as well, so that both count
// and the flag wins.
type Flag struct{ Into *map[string]bool }

// String is what was given, in order.
func (f Flag) String() string {
	if f.Into == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*f.Into)) {
		parts = append(parts, name+"="+strconv.FormatBool((*f.Into)[name]))
	}
	return strings.Join(parts, ",")
}

// Set takes gates in.
func (f Flag) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if !found || err != nil {
			return fmt.Errorf("%q is not a gate and a value; write it as %s=true", part, strings.TrimSpace(name))
		}
		if *f.Into == nil {
			*f.Into = map[string]bool{}
		}
		(*f.Into)[strings.TrimSpace(name)] = on
	}
	return nil
}

// Type is shown in the help.
func (f Flag) Type() string { return "gate=bool,..." }
