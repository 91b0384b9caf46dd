package outside

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/test/kueue/record"
)

// addresses are where the process serves.
type addresses struct {
	webhookHost, certDir string
	webhook, metrics     int
	health, visibility   int
}

// configuration is Kueue's file with what the suite asked of its manager, which it mostly says in Go.
func configuration(asked record.Asked, at addresses) ([]byte, error) {
	cfg := &config.Configuration{}
	if given, ok := record.Value[*config.Configuration](asked, "configuration"); ok && given != nil {
		cfg = given.DeepCopy()
	}
	override(asked, "waitForPodsReady", &cfg.WaitForPodsReady)
	override(asked, "objectRetentionPolicies", &cfg.ObjectRetentionPolicies)
	override(asked, "fairSharing", &cfg.FairSharing)
	override(asked, "admissionFairSharing", &cfg.AdmissionFairSharing)
	if fair := cfg.FairSharing; fair != nil && len(fair.PreemptionStrategies) == 0 { // the scheduler's default; the file has to say it
		fair.PreemptionStrategies = []config.PreemptionStrategy{config.LessThanOrEqualToFinalShare, config.LessThanInitialShare}
	}
	if cfg.Resources == nil {
		cfg.Resources = &config.Resources{}
	}
	if list, ok := record.Value[[]config.ResourceTransformation](asked, "transformations"); ok && len(list) > 0 {
		cfg.Resources.Transformations = list
	}
	if list, ok := record.Value[[]string](asked, "excludedPrefixes"); ok && len(list) > 0 {
		cfg.Resources.ExcludeResourcePrefixes = list
	}
	if strategy, ok := record.Value[config.QuotaCheckStrategy](asked, "quotaCheckStrategy"); ok && strategy != "" {
		cfg.Resources.QuotaCheckStrategy = &strategy
	}
	if all, _ := record.Value[bool](asked, "manageJobsWithoutQueueName"); all {
		cfg.ManageJobsWithoutQueueName = true
	}
	if selector, ok := record.Value[labels.Selector](asked, "namespaceSelector"); ok {
		var err error
		if cfg.ManagedJobsNamespaceSelector, err = labelSelector(selector); err != nil {
			return nil, err
		}
	}
	setIntegrations(cfg, asked)
	cfg.Webhook = config.ControllerWebhook{Host: at.webhookHost, Port: &at.webhook, CertDir: at.certDir}
	cfg.Health.HealthProbeBindAddress = fmt.Sprintf("127.0.0.1:%d", at.health)
	cfg.Metrics.BindAddress, cfg.Metrics.EnableClusterQueueResources = fmt.Sprintf("127.0.0.1:%d", at.metrics), true
	cfg.InternalCertManagement = &config.InternalCertManagement{Enable: ptr.To(false)}
	cfg.ClientConnection = &config.ClientConnection{QPS: ptr.To[float32](-1)}
	return document(cfg, asked, at)
}

// override takes what was asked for where the file does not say it.
func override[T any](asked record.Asked, name string, into **T) {
	if given, ok := record.Value[*T](asked, name); ok && given != nil && *into == nil {
		*into = given
	}
}

// document is the file's text. What has no place in the type, or may not be said as its zero value there, is added to it.
func document(cfg *config.Configuration, asked record.Asked, at addresses) ([]byte, error) {
	data, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	file := map[string]any{}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	file["apiVersion"], file["kind"] = config.SchemeGroupVersion.String(), "Configuration"
	file["leaderElection"] = map[string]any{"leaderElect": false}
	file["visibilityServer"] = map[string]any{"bindAddress": "127.0.0.1", "bindPort": at.visibility}
	if namespace, ok := record.Value[string](asked, "namespace"); ok && namespace != "" {
		file["namespace"] = namespace
	}
	if clusters, ok := record.Value[map[string]any](asked, "multiKueue"); ok {
		section, _ := file["multiKueue"].(map[string]any)
		if section == nil {
			section = map[string]any{}
		}
		for name, value := range clusters {
			section[name] = value
		}
		file["multiKueue"] = section
	}
	return yaml.Marshal(file)
}

// setIntegrations: the suites enable kinds one by one; the runner names those that a suite takes for granted.
func setIntegrations(cfg *config.Configuration, asked record.Asked) {
	if cfg.Integrations == nil {
		cfg.Integrations = &config.Integrations{}
	}
	if frameworks := once(append(asked.List("frameworks"), strings.Fields(os.Getenv(envFrameworks))...)); len(frameworks) > 0 {
		cfg.Integrations.Frameworks = frameworks
	}
	if external := asked.List("externalFrameworks"); len(external) > 0 {
		cfg.Integrations.ExternalFrameworks = external
	}
	if keys := once(asked.List("labelKeysToCopy")); len(keys) > 0 {
		cfg.Integrations.LabelKeysToCopy = keys
	}
	if !features.Enabled(features.CustomMetricLabels) {
		return
	}
	for i, key := range once(asked.List("annotationsToCopy")) { // which the file says as labels of metrics
		if slices.ContainsFunc(cfg.Metrics.CustomLabels, func(l config.ControllerMetricsCustomLabel) bool { return l.SourceAnnotationKey == key }) {
			continue
		}
		cfg.Metrics.CustomLabels = append(cfg.Metrics.CustomLabels, config.ControllerMetricsCustomLabel{
			Name: fmt.Sprintf("copied%d", i), SourceKind: ptr.To(config.SourceKindWorkload), SourceAnnotationKey: key, TrackedValues: []string{"any"},
		})
	}
}

// once has each name once: each controller of a suite asks for its own.
func once(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// noPodsReady says that the suite's controllers of jobs are not told to wait for pods, which is the file's default.
func noPodsReady(asked record.Asked) bool {
	if _, ok := record.Value[*config.WaitForPodsReady](asked, "waitForPodsReady"); ok {
		return false
	}
	given, _ := record.Value[*config.Configuration](asked, "configuration")
	defaults := &config.Configuration{}
	config.SetDefaults_Configuration(defaults)
	return given == nil || given.WaitForPodsReady == nil || reflect.DeepEqual(given.WaitForPodsReady, defaults.WaitForPodsReady)
}

var selectorOperators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.In: metav1.LabelSelectorOpIn, selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn,
	selection.NotIn: metav1.LabelSelectorOpNotIn, selection.NotEquals: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// labelSelector is a compiled selector as the file has it.
func labelSelector(from labels.Selector) (*metav1.LabelSelector, error) {
	into := &metav1.LabelSelector{}
	requirements, _ := from.Requirements()
	for _, r := range requirements {
		operator, ok := selectorOperators[r.Operator()]
		if !ok {
			return nil, fmt.Errorf("a configuration cannot say the selector %s", from)
		}
		into.MatchExpressions = append(into.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: r.Values().UnsortedList()})
	}
	return into, nil
}
