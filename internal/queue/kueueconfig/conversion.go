package kueueconfig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kueue/apis/config/v1beta1"
	"sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// FromV1beta2 converts a file of that version into cfg.
func FromV1beta2(in *v1beta2.Configuration, cfg *v1alpha1.QueueConfiguration) error {
	defaults := &v1beta2.Configuration{}
	v1beta2.SetDefaults_Configuration(defaults)
	if err := check(in, defaults); err != nil {
		return err
	}
	in = in.DeepCopy()
	v1beta2.SetDefaults_Configuration(in)
	return apply(in, cfg)
}

// FromV1beta1 converts a file of the older version into cfg.
func FromV1beta1(in *v1beta1.Configuration, cfg *v1alpha1.QueueConfiguration) error {
	defaults := &v1beta1.Configuration{}
	v1beta1.SetDefaults_Configuration(defaults)
	if err := check(in, defaults); err != nil {
		return err
	}
	in = in.DeepCopy()
	v1beta1.SetDefaults_Configuration(in)
	out := &v1beta2.Configuration{}
	if err := v1beta1.Convert_v1beta1_Configuration_To_v1beta2_Configuration(in, out, nil); err != nil {
		return err
	}
	return apply(out, cfg)
}

// metricsCertificates is where Kueue finds the certificate of its metrics if it does not make certificates itself. If there is
// none, they are served with one that signs itself.
const metricsCertificates = "/etc/kueue/metrics/certs"

// apply converts a file with its defaults into cfg.
func apply(in *v1beta2.Configuration, cfg *v1alpha1.QueueConfiguration) error {
	if err := validate(in); err != nil {
		return err
	}
	namespace := *in.Namespace

	cfg.Metrics.BindAddress = in.Metrics.BindAddress
	cfg.Health.BindAddress = in.Health.HealthProbeBindAddress
	cfg.Health.LivenessPath = cmp.Or(in.Health.LivenessEndpointName, cfg.Health.LivenessPath)
	cfg.Health.ReadinessPath = cmp.Or(in.Health.ReadinessEndpointName, cfg.Health.ReadinessPath)
	cfg.Pprof.BindAddress = in.PprofBindAddress
	cfg.ClientConnection = v1alpha1.ClientConnection{QPS: *in.ClientConnection.QPS, Burst: int(*in.ClientConnection.Burst)}

	election := in.LeaderElection
	cfg.LeaderElection = v1alpha1.LeaderElection{
		Enabled: election.LeaderElect, Namespace: cmp.Or(election.ResourceNamespace, namespace), Name: election.ResourceName,
		LeaseDuration: election.LeaseDuration, RenewDeadline: election.RenewDeadline, RetryPeriod: election.RetryPeriod,
	}

	certs := in.InternalCertManagement
	cfg.Webhook = v1alpha1.Webhook{
		Host: in.Webhook.Host, Port: *in.Webhook.Port, CertDir: in.Webhook.CertDir, TLS: in.TLS,
		ManageCertificate: certs.Enable, SecretName: ptr.Deref(certs.WebhookSecretName, ""),
		Namespace: namespace,
	}
	if !ptr.Deref(certs.Enable, true) {
		cfg.Metrics.CertDir = metricsCertificates
	}
	if service := ptr.Deref(certs.WebhookServiceName, ""); service != "" {
		cfg.Webhook.DNSNames = []string{
			service + "." + namespace + ".svc", "kueue-visibility-server." + namespace + ".svc",
		}
	}

	cfg.Visibility = v1alpha1.Visibility{Port: v1beta2.DefaultVisibilityBindPort}
	if server := in.VisibilityServer; server != nil {
		cfg.Visibility = v1alpha1.Visibility{Host: ptr.Deref(server.BindAddress, ""), Port: int(*server.BindPort)}
	}
	cfg.QueueMetrics = v1alpha1.QueueMetrics{
		ClusterQueueResources: in.Metrics.EnableClusterQueueResources, LocalQueues: in.Metrics.LocalQueueMetrics, CustomLabels: in.Metrics.CustomLabels,
	}
	cfg.Controllers = v1alpha1.Controllers{ReportPodsReady: ptr.To(false)}
	if c := in.Controller; c != nil {
		cfg.Controllers.Concurrency = c.GroupKindConcurrency
		cfg.Controllers.CacheSyncTimeout = durationOf(c.CacheSyncTimeout)
	}

	// Kueue considers nodes only for topologies, and takes a topology annotation for a Workload's.
	cfg.Placement = v1alpha1.Placement{Enabled: ptr.To(false), IgnoreAnnotatedPods: true, CountPodsAsAdmitted: true, MatchDomainsOnly: true, ReplaceNodesAnywhere: true}
	cfg.Integrations = in.Integrations
	cfg.WaitForPodsReady = in.WaitForPodsReady
	cfg.ObjectRetentionPolicies = in.ObjectRetentionPolicies
	cfg.Resources = v1alpha1.Resources{}
	if r := in.Resources; r != nil {
		cfg.Resources = v1alpha1.Resources{
			ExcludeResourcePrefixes: r.ExcludeResourcePrefixes, Transformations: r.Transformations, QuotaCheckStrategy: r.QuotaCheckStrategy,
			DeviceClassMappings: r.DeviceClassMappings,
		}
	}
	cfg.FairSharing = in.FairSharing
	cfg.AdmissionFairSharing = in.AdmissionFairSharing
	multi := in.MultiKueue
	cfg.MultiKueue = v1alpha1.MultiKueue{
		Origin: *multi.Origin, GCInterval: multi.GCInterval, WorkerLostTimeout: multi.WorkerLostTimeout, DispatcherName: *multi.DispatcherName,
		IncrementalDispatcherConfig: multi.IncrementalDispatcherConfig, ExternalFrameworks: multi.ExternalFrameworks,
	}
	if profiles := multi.ClusterProfile; profiles != nil {
		cfg.MultiKueue.ClusterProfile.AccessProviders = append(slices.Clone(profiles.AccessProviders), profiles.CredentialsProviders...) //nolint:staticcheck // files say it
	}
	cfg.ManageJobsWithoutQueueName = in.ManageJobsWithoutQueueName
	cfg.ManagedJobsNamespaceSelector = in.ManagedJobsNamespaceSelector
	for name, on := range in.FeatureGates {
		if cfg.FeatureGates == nil {
			cfg.FeatureGates = map[string]bool{}
		}
		cfg.FeatureGates[name] = on
	}
	return nil
}

// validate rejects values that Kueue rejects, where nothing later would notice.
func validate(in *v1beta2.Configuration) error {
	var problems []error
	negative := func(path string, d *metav1.Duration) {
		if d != nil && d.Duration < 0 {
			problems = append(problems, fmt.Errorf("%s: %s must not be negative", path, d.Duration))
		}
	}
	if wait := in.WaitForPodsReady; wait != nil {
		negative("waitForPodsReady.timeout", &wait.Timeout)
		negative("waitForPodsReady.recoveryTimeout", wait.RecoveryTimeout)
	}
	if retention := in.ObjectRetentionPolicies; retention != nil && retention.Workloads != nil {
		negative("objectRetentionPolicies.workloads.afterFinished", retention.Workloads.AfterFinished)
		negative("objectRetentionPolicies.workloads.afterDeactivatedByKueue", retention.Workloads.AfterDeactivatedByKueue)
	}
	if profiles := in.MultiKueue.ClusterProfile; profiles != nil && len(profiles.AccessProviders) > 0 && len(profiles.CredentialsProviders) > 0 { //nolint:staticcheck // files say it
		problems = append(problems, errors.New("multiKueue.clusterProfile.credentialsProviders: must not be specified when accessProviders is specified"))
	}
	if multi := in.MultiKueue; multi.IncrementalDispatcherConfig != nil && *multi.DispatcherName != v1beta2.MultiKueueDispatcherModeIncremental {
		problems = append(problems, errors.New("multiKueue.incrementalDispatcherConfig: is only valid when dispatcherName is set to the incremental dispatcher"))
	}
	if fair := in.FairSharing; fair != nil && len(fair.PreemptionStrategies) == 0 {
		problems = append(problems, errors.New("fairSharing.preemptionStrategies: must be specified"))
	}
	return errors.Join(problems...)
}

func durationOf(d *time.Duration) *metav1.Duration {
	if d == nil {
		return nil
	}
	return &metav1.Duration{Duration: *d}
}
