package metrics

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
)

// Options say which metrics exist beside the usual ones.
type Options struct {
	// Role of this replica in the replica_role label: leader or standalone.
	Role string
	// Resources adds quota and usage of ClusterQueues.
	Resources bool
	// LocalQueue says whether a LocalQueue has metrics of its own; nil: none has.
	LocalQueue func(*kueue.LocalQueue) bool
	// Cohorts, Unadmitted and CreationLatency are Kueue's gates for these.
	Cohorts, Unadmitted, CreationLatency bool
	// Custom are labels of objects that metrics about them carry.
	Custom []kueueconfig.ControllerMetricsCustomLabel
}

// OptionsFrom reads which metrics there are from the configuration.
func OptionsFrom(cfg *v1alpha1.QueueConfiguration, gates features.Set) (Options, error) {
	options := Options{
		Role: "leader", Resources: cfg.QueueMetrics.ClusterQueueResources,
		Cohorts:         gates.Enabled(features.MetricsForCohorts),
		Unadmitted:      gates.Enabled(features.UnadmittedWorkloadsObservability),
		CreationLatency: gates.Enabled(features.MetricForWorkloadCreationLatency),
	}
	if !ptr.Deref(cfg.LeaderElection.Enabled, false) {
		options.Role = "standalone"
	}
	if gates.Enabled(features.CustomMetricLabels) {
		options.Custom = cfg.QueueMetrics.CustomLabels
	}
	if err := validateCustomLabels(cfg.QueueMetrics.CustomLabels); err != nil {
		return options, fmt.Errorf("queueMetrics.%w", err)
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
