// Command elastic-queue decides which jobs may run, and starts and stops them.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // time zones of windows, whatever the image has

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/internal/checks/multicluster"
	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/internal/checks/resourcequota"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/jobs"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/internal/queue"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/conversion"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/failurerecovery"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
	"github.com/elastic-ai/elastic/internal/queue/nominalquota"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/stream"
	"github.com/elastic-ai/elastic/internal/queue/topology"
	"github.com/elastic-ai/elastic/internal/queue/visibility"
	objects "github.com/elastic-ai/elastic/internal/queue/webhook"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func main() {
	program.Main(program.Program[*v1alpha1.QueueConfiguration]{
		Name:  "elastic-queue",
		Short: "Queue jobs and start them when quota allows",
		Long: `elastic-queue holds jobs back, decides which may run on whose quota, and starts
and stops them. Its objects are Kueue's (kueue.x-k8s.io).`,
		Example: `  # In a cluster, with the pod's own service account
  elastic-queue --config /etc/elastic/queue.yaml

  # Against any cluster
  elastic-queue --kubeconfig ~/.kube/config --log-level debug

  # In Kueue's place, with its own configuration file
  elastic-queue --config kueue.yaml --feature-gates TopologyAwareScheduling=false`,
		Defaults: v1alpha1.NewQueueConfiguration,
		Formats:  formats(),
		Flags:    flags,
		Run:      run,
	})
}

func run(ctx context.Context, env program.Env, cfg *v1alpha1.QueueConfiguration) error {
	gates, err := features.New(cfg.FeatureGates)
	if err != nil {
		return err
	}
	if err := considerNodes(ctx, env, &cfg.Placement); err != nil {
		return err
	}
	rules, err := queueOptions(cfg, gates)
	if err != nil {
		return err
	}
	if !gates.Enabled(features.TLSOptions) {
		cfg.Webhook.TLS = nil
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	certificate, err := setUpCertificate(ctx, env, cfg, scheme)
	if err != nil {
		return err
	}
	server, limits, err := webhookServer(cfg)
	if err != nil {
		return err
	}
	mgr, err := env.Manager(manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{TLSOpts: []func(*tls.Config){limits}},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(), NewInformer: informers(env.REST, scheme),
			// Of Secrets and ConfigMaps those beside the program are watched: kubeconfigs of other clusters, and price tables.
			ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: beside(cfg), &corev1.ConfigMap{}: beside(cfg)},
		},
		Controller:    config.Controller{CacheSyncTimeout: ptr.Deref(cfg.Controllers.CacheSyncTimeout, metav1.Duration{}).Duration},
		WebhookServer: server,
	}, cfg.LeaderElection)
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(certificate), mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker())); err != nil {
		return err
	}
	if err := conversion.Setup(mgr); err != nil {
		return fmt.Errorf("setting up conversion: %w", err)
	}
	checked := objects.Options{
		PartialAdmission: gates.Enabled(features.PartialAdmission), StrictFlavors: gates.Enabled(features.RejectInvalidOnFlavors),
		ConcurrentAdmission: gates.Enabled(features.ConcurrentAdmission),
	}
	if err := objects.Setup(mgr, checked); err != nil {
		return err
	}
	metricsOptions, err := metrics.OptionsFrom(cfg, gates)
	if err != nil {
		return err
	}
	counts := metrics.New(ctrlmetrics.Registry, metricsOptions)
	options := jobOptions(cfg, gates)
	options.Queued, options.GateRemoved = counts.JobQueued, counts.GateRemoved
	copies, err := jobs.Setup(ctx, mgr, options)
	if err != nil {
		return fmt.Errorf("setting up jobs: %w", err)
	}
	rules.Lifecycle.Unmanaged = options.Unmanaged()
	rules.Direct = mgr.GetAPIReader()
	rules.Recorder, rules.Metrics, rules.Log = mgr.GetEventRecorder(env.Name), counts, env.Log.WithName("queue")
	shell := queue.New(mgr.GetClient(), mgr.GetCache(), rules)
	if gates.Enabled(features.MultiKueue) {
		err := multicluster.Setup(mgr, multicluster.Options{
			Config: cfg.MultiKueue, Namespace: namespaceOf(cfg), Features: gates, Copies: copies, Fence: env.Fence.Transport,
			RunTimes: shell.RunTime, Dispatched: counts.Dispatched, Admitted: counts.AdmittedRemotely,
		})
		if err != nil {
			return fmt.Errorf("setting up other clusters: %w", err)
		}
	}
	if err := setUpChecksAndQuotas(mgr, gates, namespaceOf(cfg), counts, shell.RunTime); err != nil {
		return err
	}
	if err := setUpPods(ctx, mgr, gates, topology.Options{NodeRules: rules.NodeRules, GateRemoved: counts.GateRemoved}); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("loop", shell.Healthy), mgr.Add(shell)); err != nil {
		return err
	}
	if err := serveVisibility(mgr, shell, cfg, gates); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// webhookServer is the server of the webhooks, with the limits of TLS, which hold for metrics as well.
func webhookServer(cfg *v1alpha1.QueueConfiguration) (webhook.Server, func(*tls.Config), error) {
	limits, err := certs.TLS(cfg.Webhook.TLS)
	if err != nil {
		return nil, nil, err
	}
	server, err := certs.Server(cfg.Webhook, visibility.RequestClientCertificate)
	return server, limits, err
}

// setUpPods adds the controllers of pods that run, or are about to.
func setUpPods(ctx context.Context, mgr manager.Manager, gates features.Set, options topology.Options) error {
	if err := topology.Setup(ctx, mgr, options); err != nil {
		return fmt.Errorf("setting up topologies: %w", err)
	}
	if !gates.Enabled(features.FailureRecoveryPolicy) {
		return nil
	}
	if err := failurerecovery.Setup(ctx, mgr); err != nil {
		return fmt.Errorf("setting up failure recovery: %w", err)
	}
	return nil
}

// setUpChecksAndQuotas starts the controllers of the admission checks that look at this cluster alone, of nominal quotas
// that policies set, and of prices.
func setUpChecksAndQuotas(mgr manager.Manager, gates features.Set, namespace string, counts *metrics.Metrics, runTimes checks.RunTimes) error {
	nodes, err := machines.Setup(mgr, namespace, runTimes)
	if err != nil {
		return fmt.Errorf("setting up the check that buys nodes: %w", err)
	}
	counts.CountNodesFrom(nodes)
	if err := resourcequota.Setup(mgr); err != nil {
		return fmt.Errorf("setting up the ResourceQuota check: %w", err)
	}
	if err := provisioning.Setup(mgr, namespace, gates.Enabled(features.CleanUpProvisioningRequests)); err != nil {
		return fmt.Errorf("setting up the ProvisioningRequest check: %w", err)
	}
	if err := nominalquota.Setup(mgr); err != nil {
		return fmt.Errorf("setting up nominal quotas: %w", err)
	}
	if err := cloudoffers.Setup(mgr, namespace); err != nil {
		return fmt.Errorf("setting up CloudOffers: %w", err)
	}
	return nil
}

// beside are objects in the program's own namespace.
func beside(cfg *v1alpha1.QueueConfiguration) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{namespaceOf(cfg): {}}}
}

// queueOptions reads the options of the queue's loop from the configuration.
func queueOptions(cfg *v1alpha1.QueueConfiguration, gates features.Set) (queue.Options, error) {
	options := queue.Options{
		Features: gates, NoDecisions: cfg.NoDecisions, Writers: cfg.Writers, LeaveOutEvents: cfg.LeaveOutEventsUnderLoad,
		KeepSlices: cfg.Controllers.KeepSlicesUntilAdmitted,
		Lifecycle:  queue.LifecycleSettings(cfg, gates),
	}
	options.NodeRules = workload.NodeRules{
		AtOnce:        !gates.Enabled(features.TASReplaceOnPodTermination),
		AfterNotReady: gates.Enabled(features.TASReplaceAfterNotReady),
		IgnoreTaints:  !gates.Enabled(features.TASReplaceOnTaints),
	}
	var err error
	if options.Placer, err = placer.New(placer.Options{
		TopologyOnly: !ptr.Deref(cfg.Placement.Enabled, true), FewHosts: !gates.Enabled(features.TASProfileMixed), Balanced: gates.Enabled(features.TASBalancedPlacement),
		IgnoreAnnotated: cfg.Placement.IgnoreAnnotatedPods, AsAdmitted: cfg.Placement.CountPodsAsAdmitted, DomainsOnly: cfg.Placement.MatchDomainsOnly,
		ReplaceAnywhere: cfg.Placement.ReplaceNodesAnywhere,
		Encoding:        workload.Encoding{OnePart: !gates.Enabled(features.TASEncodeByHostnamePrefix)},
	}); err != nil {
		return options, err
	}
	if options.Engine, err = engineview.Options(cfg, gates); err != nil {
		return options, err
	}
	if options.Transformations, err = workload.NewResourceTransformations(cfg.Resources.ExcludeResourcePrefixes, cfg.Resources.Transformations); err != nil {
		return options, err
	}
	options.Devices, err = devices.New(cfg.Resources.DeviceClassMappings, gates)
	return options, err
}

// informers decodes the watch of Workloads with package stream; other kinds are too few to need it.
func informers(config *rest.Config, scheme *runtime.Scheme) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := kind.(*kueue.Workload); ok {
			if short, err := stream.Workloads(config, scheme, lw); err == nil {
				lw = short
			}
		}
		return toolscache.NewSharedIndexInformer(lw, kind, resync, indexers)
	}
}

// serveVisibility serves the visibility APIs, beside the webhooks.
func serveVisibility(mgr manager.Manager, shell *queue.Shell, cfg *v1alpha1.QueueConfiguration, gates features.Set) error {
	resources := []visibility.Resource{visibility.Explanations(shell), visibility.Plans(shell, mgr.GetClient()), visibility.QuotaPlans(shell), visibility.Budgets(shell)}
	if gates.Enabled(features.VisibilityOnDemand) {
		resources = append(resources, visibility.PendingWorkloads(shell)...)
	}
	servers := []webhook.Server{mgr.GetWebhookServer()}
	if cfg.Visibility.Port != 0 {
		apart := cfg.Webhook
		apart.Host, apart.Port = cfg.Visibility.Host, cfg.Visibility.Port
		server, err := certs.Server(apart, visibility.RequestClientCertificate)
		if err != nil {
			return err
		}
		if err := mgr.Add(server); err != nil {
			return err
		}
		servers = append(servers, server)
	}
	answers := visibility.New(mgr.GetAPIReader(), mgr.GetClient(), resources...)
	for _, server := range servers {
		for _, path := range answers.Paths() {
			server.Register(path, answers)
		}
	}
	return nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme, kueuev1beta1.AddToScheme, jobsv1alpha1.AddToScheme,
		queuepolicy.AddToScheme, cloud.AddToScheme, egpu.AddToScheme, provisioning.AddToScheme, machines.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// setUpCertificate makes sure there is a certificate before anything serves, and returns what renews
// it. Its client reads no cache: the objects are few, and some of them are Secrets.
func setUpCertificate(ctx context.Context, env program.Env, cfg *v1alpha1.QueueConfiguration, scheme *runtime.Scheme) (*certs.Rotator, error) {
	direct, err := client.New(env.REST, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	if err := ensureNamespace(ctx, direct, cfg); err != nil {
		return nil, err
	}
	rotator := certs.New(direct, env.Log, env.Name, cfg.Webhook, cfg.LeaderElection.Namespace)
	rotator.APIServices = true
	return rotator, rotator.Ensure(ctx)
}
