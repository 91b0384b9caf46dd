package queue

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// LifecycleSettings reads the rules of workloads' lifecycle from the configuration.
func LifecycleSettings(cfg *v1alpha1.QueueConfiguration, gates features.Set) workload.Settings {
	settings := workload.Settings{
		FinishOrphans:   gates.Enabled(features.FinishOrphanedWorkloads),
		GranularReasons: gates.Enabled(features.UnadmittedWorkloadsObservability),
		ExplicitStatus:  gates.Enabled(features.UnadmittedWorkloadsExplicitStatus),
	}
	if wait := cfg.WaitForPodsReady; wait != nil && !gates.Enabled(features.DisableWaitForPodsReady) {
		settings.PodsReady = podsReady(wait)
	}
	if retain := cfg.ObjectRetentionPolicies; retain != nil && retain.Workloads != nil {
		settings.RetainFinished = duration(retain.Workloads.AfterFinished)
		settings.RetainDeactivated = duration(retain.Workloads.AfterDeactivatedByKueue)
	}
	return settings
}

// podsReady fills in Kueue's defaults: five minutes for pods to become ready, and a backoff from
// one minute to one hour.
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
