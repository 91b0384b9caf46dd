// Package service puts the GPU scheduler together, all but its front end: the shell with its cache, the
// claims' controller, the pods' webhook, certificates and leader election. A front end (the extender, or
// the plugin in a scheduler of our own) asks the Shell.
//
// Words: docs/design/glossary.md.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/gpu/claims"
	"github.com/elastic-ai/elastic/internal/gpu/podwebhook"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/panics"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/program"
)

// Service is a GPU scheduler whose front end is still to be added to its Manager.
type Service struct {
	Manager manager.Manager
	Shell   *gpu.Shell
	// Direct reads from the API server itself.
	Direct client.Client
}

// New puts a Service together. The identity is this replica's in the leader's lease.
func New(ctx context.Context, env program.Env, cfg *v1alpha1.GPUSchedulerConfiguration, identity string) (*Service, error) {
	gpu.TuneGC()
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	direct, err := client.New(env.REST, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	rotator := certs.New(direct, env.Log, env.Name, cfg.Webhook, cfg.LeaderElection.Namespace)
	if err := rotator.Ensure(ctx); err != nil {
		return nil, err
	}
	webhooks, err := certs.Server(cfg.Webhook)
	if err != nil {
		return nil, err
	}
	env.Identity = identity
	mgr, err := env.Manager(manager.Options{
		Scheme:        scheme,
		Cache:         cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		WebhookServer: webhooks,
	}, cfg.LeaderElection)
	if err != nil {
		return nil, err
	}
	if err := metrics.Registry.Register(panics.Total); err != nil {
		return nil, err
	}
	shell, err := newShell(env, cfg, mgr, direct)
	if err != nil {
		return nil, err
	}
	mgr.GetWebhookServer().Register(podwebhook.Path, podwebhook.New(&podwebhook.Completer{
		Modes: shell.Modes(), SchedulerName: cfg.SchedulerName, Policies: policies(cfg), LargestCard: shell.LargestCard,
	}))
	if err := claims.Setup(ctx, mgr, shell, servers(cfg), mgr.GetEventRecorder(env.Name), cfg.Workers); err != nil {
		return nil, fmt.Errorf("setting up claims: %w", err)
	}
	for _, part := range []manager.Runnable{rotator, shell, manager.RunnableFunc(shell.Lead), manager.RunnableFunc(shell.PublishAllocations)} {
		if err := mgr.Add(part); err != nil {
			return nil, err
		}
	}
	err = errors.Join(
		mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()),
		mgr.AddReadyzCheck("cache", func(*http.Request) error { return shell.Ready() }))
	return &Service{Manager: mgr, Shell: shell, Direct: direct}, err
}

func newShell(env program.Env, cfg *v1alpha1.GPUSchedulerConfiguration, mgr manager.Manager, direct client.Client) (*gpu.Shell, error) {
	modes, err := request.ParseModes(strings.Join(cfg.Modes, ","))
	if err != nil {
		return nil, err
	}
	queue := true
	if _, err := mgr.GetRESTMapper().RESTMapping(kueue.SchemeGroupVersion.WithKind("Workload").GroupKind()); meta.IsNoMatchError(err) {
		env.Log.Info("there are no Workloads in this cluster: only pod groups are placed together")
		queue = false
	}
	hooks := make(map[string]*gpu.Hook, len(cfg.PolicyWebhooks))
	for name, hook := range cfg.PolicyWebhooks {
		if hooks[name], err = gpu.NewHook(hook.URL, hook.CABundle, hook.Timeout.Duration); err != nil {
			return nil, fmt.Errorf("policyWebhooks.%s: %w", name, err)
		}
	}
	return gpu.New(gpu.Options{
		Client: mgr.GetClient(), Direct: direct, Cache: mgr.GetCache(),
		Engine: placement.Options{Policy: cfg.Policy, Policies: policies(cfg), Ratings: cfg.Ratings},
		Modes:  modes, Hooks: hooks, Hold: cfg.HoldGangsFor.Duration, Queue: queue, Log: env.Log.WithName("gpu"),
		Events: mgr.GetEventRecorder(env.Name), ServerNamespace: serverNamespace(cfg),
	})
}

// serverNamespace is where the servers of cards run that are used from other nodes: where this program does.
func serverNamespace(cfg *v1alpha1.GPUSchedulerConfiguration) string {
	return cfg.LeaderElection.Namespace
}

func servers(cfg *v1alpha1.GPUSchedulerConfiguration) claims.Servers {
	all := claims.Servers{Namespace: serverNamespace(cfg), Engines: map[string]claims.Engine{}}
	for name, e := range cfg.RemoteEngines {
		all.Engines[name] = claims.Engine{Image: e.Image, Command: e.Command, Memory: e.Memory}
	}
	return all
}

// policies that pods may choose by name; those of webhooks are the cluster's until the webhook answers.
func policies(cfg *v1alpha1.GPUSchedulerConfiguration) map[string]string {
	all := maps.Clone(cfg.Policies)
	if all == nil {
		all = map[string]string{}
	}
	for name := range cfg.PolicyWebhooks {
		all[name] = cmp.Or(cfg.Policy, placement.DefaultPolicy)
	}
	return all
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme, egpu.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}
