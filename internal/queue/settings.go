package queue

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Life reads the rules of workloads' lives from the configuration.
func Life(cfg *v1alpha1.QueueConfiguration, gates features.Set) workload.Settings {
	settings := workload.Settings{FinishOrphans: gates.Enabled(features.FinishOrphanedWorkloads)}
	if wait := cfg.WaitForPodsReady; wait != nil && !gates.Enabled(features.DisableWaitForPodsReady) {
		settings.PodsReady = podsReady(wait)
	}
	if keep := cfg.ObjectRetentionPolicies; keep != nil && keep.Workloads != nil {
		settings.RetainFinished = duration(keep.Workloads.AfterFinished)
		settings.RetainDeactivated = duration(keep.Workloads.AfterDeactivatedByKueue)
	}
	return settings
}

// Engine reads the rules of admission from the configuration.
func Engine(cfg *v1alpha1.QueueConfiguration, gates features.Set) (admission.Options, error) {
	options := admission.Options{PreemptionDelay: time.Second}
	if wait := cfg.PreemptAfter; wait != nil {
		options.PreemptionDelay = wait.Duration
	}
	if wait := cfg.WaitForPodsReady; wait != nil && !gates.Enabled(features.DisableWaitForPodsReady) {
		options.BlockUntilReady = ptr.Deref(wait.BlockAdmission, false)
		options.RequeueByCreation = wait.RequeuingStrategy != nil &&
			ptr.Deref(wait.RequeuingStrategy.Timestamp, kueueconfig.EvictionTimestamp) == kueueconfig.CreationTimestamp
	}
	if strategy := ptr.Deref(cfg.Resources.QuotaCheckStrategy, kueueconfig.QuotaCheckBlockUndeclared); gates.Enabled(features.QuotaCheckStrategy) {
		switch strategy {
		case kueueconfig.QuotaCheckIgnoreUndeclared:
			options.IgnoreUndeclared = true
		case kueueconfig.QuotaCheckBlockUndeclared:
		default:
			return options, fmt.Errorf("resources.quotaCheckStrategy: %q is none of %s, %s", strategy,
				kueueconfig.QuotaCheckBlockUndeclared, kueueconfig.QuotaCheckIgnoreUndeclared)
		}
	}
	if fair := cfg.FairSharing; fair != nil {
		options.Policy = admission.PolicyDRF
		for _, name := range fair.PreemptionStrategies {
			strategy, known := fairStrategies[name]
			if !known {
				return options, fmt.Errorf("fairSharing.preemptionStrategies: %q is none of %s, %s", name,
					kueueconfig.LessThanOrEqualToFinalShare, kueueconfig.LessThanInitialShare)
			}
			options.FairStrategies = append(options.FairStrategies, strategy)
		}
	}
	if usage := cfg.AdmissionFairSharing; usage != nil && gates.Enabled(features.AdmissionFairSharing) {
		options.UsageHalfLife = usage.UsageHalfLifeTime.Duration
		options.UsageSampling = usage.UsageSamplingInterval.Duration
		options.UsageWeights = make(map[string]float64, len(usage.ResourceWeights))
		for name, weight := range usage.ResourceWeights {
			options.UsageWeights[string(name)] = weight
		}
	}
	return options, nil
}

var fairStrategies = map[kueueconfig.PreemptionStrategy]admission.FairStrategy{
	kueueconfig.LessThanOrEqualToFinalShare: admission.LessThanOrEqualToFinalShare,
	kueueconfig.LessThanInitialShare:        admission.LessThanInitialShare,
}

// podsReady fills in Kueue's defaults: five minutes for the pods to come up,
// backoff from one minute to one hour.
func podsReady(wait *kueueconfig.WaitForPodsReady) *workload.PodsReadySettings {
	settings := &workload.PodsReadySettings{
		Timeout: wait.Timeout.Duration, BackoffBase: time.Minute, BackoffMax: time.Hour,
	}
	if settings.Timeout == 0 {
		settings.Timeout = 5 * time.Minute
	}
	if wait.RecoveryTimeout != nil {
		settings.Recovery = wait.RecoveryTimeout.Duration
	}
	if r := wait.RequeuingStrategy; r != nil {
		settings.BackoffLimit = r.BackoffLimitCount
		if r.BackoffBaseSeconds != nil {
			settings.BackoffBase = time.Duration(*r.BackoffBaseSeconds) * time.Second
		}
		if r.BackoffMaxSeconds != nil {
			settings.BackoffMax = time.Duration(*r.BackoffMaxSeconds) * time.Second
		}
	}
	return settings
}

func duration(d *metav1.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return &d.Duration
}

// MetricsFor reads which metrics there are from the configuration.
func MetricsFor(cfg *v1alpha1.QueueConfiguration, gates features.Set) (MetricsOptions, error) {
	options := MetricsOptions{
		Role: "leader", Resources: cfg.QueueMetrics.ClusterQueueResources,
		Cohorts:         gates.Enabled(features.MetricsForCohorts),
		Unadmitted:      gates.Enabled(features.UnadmittedWorkloadsObservability),
		CreationLatency: gates.Enabled(features.MetricForWorkloadCreationLatency),
	}
	if !ptr.Deref(cfg.LeaderElection.Enabled, false) {
		options.Role = "standalone"
	}
	if local := cfg.QueueMetrics.LocalQueues; local != nil && local.Enable && gates.Enabled(features.LocalQueueMetrics) {
		selector := labels.Everything()
		if local.LocalQueueSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(local.LocalQueueSelector); err != nil {
				return options, fmt.Errorf("queueMetrics.localQueues.localQueueSelector: %w", err)
			}
		}
		options.LocalQueue = func(lq *kueue.LocalQueue) bool { return selector.Matches(labels.Set(lq.Labels)) }
	}
	return options, nil
}
