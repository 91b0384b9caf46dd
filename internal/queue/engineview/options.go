package engineview

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
)

// Options reads the engine's options from the configuration.
func Options(cfg *v1alpha1.QueueConfiguration, gates features.Set) (admission.Options, error) {
	options := admission.Options{
		Service: service, NoRings: cfg.NoPreemptionRings,
		AwaitSharedVictims: !gates.Enabled(features.RecomputeOnOverlap),
		SayBypassed:        gates.Enabled(features.UnadmittedWorkloadsExplicitStatus) && gates.Enabled(features.SchedulingEquivalenceHashing),
	}
	if gates.Enabled(features.TimestampPreemptionBuffer) {
		options.NewerBy = 5 * time.Minute // as in Kueue
	}
	for _, d := range []struct {
		name string
		from *metav1.Duration
		into *time.Duration
	}{
		{"preemptAfter", cfg.PreemptAfter, &options.PreemptionDelay},
		{"preemptionCooldown", cfg.PreemptionCooldown, &options.PreemptionCooldown},
	} {
		if d.from == nil {
			continue
		}
		if d.from.Duration < 0 || d.from.Duration > time.Hour {
			return options, fmt.Errorf("%s: %s must be at least 0s and at most 1h", d.name, d.from.Duration)
		}
		*d.into = d.from.Duration
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

// service is what counts as service where a queue orders by it.
var service = []admission.CardsPerUnit{
	{Resource: string(egpu.ResourceWhole), Cards: 1}, {Resource: string(egpu.ResourceCore), Cards: 0.01},
	{Resource: string(egpu.ResourceCoreOld), Cards: 0.01}, {Resource: string(egpu.ResourceQGPUCore), Cards: 0.01},
}

var fairStrategies = map[kueueconfig.PreemptionStrategy]admission.FairStrategy{
	kueueconfig.LessThanOrEqualToFinalShare: admission.LessThanOrEqualToFinalShare,
	kueueconfig.LessThanInitialShare:        admission.LessThanInitialShare,
}
