package queue

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Life reads the rules of workloads' lives from the configuration. What it
// asks for and we do not do is an error, not silence.
func Life(cfg *v1alpha1.QueueConfiguration) (workload.Settings, error) {
	var settings workload.Settings
	if wait := cfg.WaitForPodsReady; wait != nil {
		if ptr.Deref(wait.BlockAdmission, false) {
			return settings, errors.New("waitForPodsReady.blockAdmission is not supported: leave it out or set it to false")
		}
		settings.PodsReady = podsReady(wait)
	}
	if keep := cfg.ObjectRetentionPolicies; keep != nil && keep.Workloads != nil {
		settings.RetainFinished = duration(keep.Workloads.AfterFinished)
		settings.RetainDeactivated = duration(keep.Workloads.AfterDeactivatedByKueue)
	}
	return settings, nil
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

// RequeueByCreation says a workload keeps its place in line when it was evicted
// because its pods did not come up.
func RequeueByCreation(cfg *v1alpha1.QueueConfiguration) bool {
	wait := cfg.WaitForPodsReady
	return wait != nil && wait.RequeuingStrategy != nil &&
		ptr.Deref(wait.RequeuingStrategy.Timestamp, kueueconfig.EvictionTimestamp) == kueueconfig.CreationTimestamp
}
