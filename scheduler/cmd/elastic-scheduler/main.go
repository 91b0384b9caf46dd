// Command elastic-scheduler is kube-scheduler with the placement engine inside.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/service"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/scheduler/plugin"
)

//go:embed profile.yaml
var defaultProfile []byte

func main() {
	file := ""
	program.Main(program.Program[*v1alpha1.GPUSchedulerConfiguration]{
		Name:  "elastic-scheduler",
		Short: "Schedule pods, and choose their cards",
		Long: `elastic-scheduler is kube-scheduler with the placement engine in it: it schedules pods
whose schedulerName is elastic-scheduler and chooses the cards of those that ask
for some. It does all that elastic-gpu-scheduler does, but for answering another
kube-scheduler; run one of the two.`,
		Example: `  # In a cluster, with the pod's own service account
  elastic-scheduler --config /etc/elastic/gpu-scheduler.yaml

  # With profiles of your own, in which the plugin ElasticGPU is enabled
  elastic-scheduler --scheduler-config /etc/elastic/kube-scheduler.yaml`,
		Defaults: v1alpha1.NewGPUSchedulerConfiguration,
		Flags: func(cmd *cobra.Command, cfg *v1alpha1.GPUSchedulerConfiguration) {
			cmd.Flags().StringVar(&file, "scheduler-config", "", "KubeSchedulerConfiguration file; default: one profile, elastic-scheduler")
			cmd.Flags().StringVar(&cfg.Policy, "policy", cfg.Policy, "placement policy: binpack, spread, random, fragmentation (default), topology, load, or a mix")
		},
		Run: func(ctx context.Context, env program.Env, cfg *v1alpha1.GPUSchedulerConfiguration) error {
			return run(ctx, env, cfg, file)
		},
	})
}

func run(ctx context.Context, env program.Env, cfg *v1alpha1.GPUSchedulerConfiguration, file string) error {
	profiles, err := load(file)
	if err != nil {
		return err
	}
	if cfg.SchedulerName == "" {
		cfg.SchedulerName = profiles.Profiles[0].SchedulerName
	}
	// One lease for both programs: only one of them may decide about cards.
	env.Name = "elastic-gpu-scheduler"
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	s, err := service.New(ctx, env, cfg, fmt.Sprintf("%s-%d", host, os.Getpid()))
	if err != nil {
		return err
	}
	kube, err := newKubeScheduler(klog.NewContext(ctx, env.Log.WithName("scheduler")), env, profiles, s)
	if err != nil {
		return err
	}
	if err := s.Manager.Add(kube); err != nil {
		return err
	}
	if err := s.Manager.AddMetricsServerExtraHandler("/metrics/scheduler", legacyregistry.Handler()); err != nil {
		return err
	}
	return s.Manager.Start(ctx)
}

// load reads a file, or what is built in.
func load(file string) (*config.KubeSchedulerConfiguration, error) {
	data := defaultProfile
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	} else {
		file = "profile.yaml"
	}
	object, kind, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	cfg, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s: it is a %s, want a KubeSchedulerConfiguration", file, kind.Kind)
	}
	cfg.APIVersion = kind.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range cfg.Profiles {
		if !enabled(cfg.Profiles[i].Plugins) {
			return nil, fmt.Errorf("%s: profile %s does not enable the plugin %s; add it under plugins.multiPoint.enabled",
				file, cfg.Profiles[i].SchedulerName, plugin.Name)
		}
	}
	return cfg, nil
}

func enabled(plugins *config.Plugins) bool {
	return plugins != nil && slices.ContainsFunc(plugins.MultiPoint.Enabled, func(p config.Plugin) bool { return p.Name == plugin.Name })
}

// kubeScheduler runs while this replica leads.
type kubeScheduler struct {
	*scheduler.Scheduler
	start func(ctx context.Context)
	leads <-chan struct{}
}

func newKubeScheduler(ctx context.Context, env program.Env, cfg *config.KubeSchedulerConfiguration, s *service.Service) (*kubeScheduler, error) {
	client, err := kubernetes.NewForConfig(env.REST)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(env.REST)
	if err != nil {
		return nil, err
	}
	informers := scheduler.NewInformerFactory(client, 0, nil)
	dynamicInformers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0, "", nil)
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	registry := frameworkruntime.Registry{plugin.Name: plugin.Factory(s.Shell)}
	sched, err := scheduler.New(ctx, client, informers, dynamicInformers,
		func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(name) },
		scheduler.WithComponentConfigVersion(cfg.APIVersion),
		scheduler.WithKubeConfig(env.REST),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(cfg.Parallelism))
	if err != nil {
		return nil, fmt.Errorf("setting up kube-scheduler: %w", err)
	}
	return &kubeScheduler{Scheduler: sched, leads: s.Shell.Leading(), start: func(ctx context.Context) {
		broadcaster.StartRecordingToSink(ctx.Done())
		informers.Start(ctx.Done())
		dynamicInformers.Start(ctx.Done())
		informers.WaitForCacheSync(ctx.Done())
		dynamicInformers.WaitForCacheSync(ctx.Done())
	}}, nil
}

// Start schedules until ctx ends, once this replica leads and its cache is complete.
func (k *kubeScheduler) Start(ctx context.Context) error {
	k.start(ctx)
	select {
	case <-ctx.Done():
		return nil
	case <-k.leads:
	}
	if err := k.WaitForHandlersSync(ctx); err != nil {
		return err
	}
	k.Run(ctx)
	return nil
}
