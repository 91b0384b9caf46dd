// Command elastic-gpu-agent finds a node's cards, keeps their GPU objects up to date,
// and gives containers their share.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/panics"
	"github.com/elastic-ai/elastic/internal/program"
)

func main() {
	program.Main(program.Program[*v1alpha1.GPUAgentConfiguration]{
		Name:  "elastic-gpu-agent",
		Short: "Find a node's cards and give containers their share of them",
		Long: `elastic-gpu-agent runs on each node. It finds the node's cards through the NVIDIA
driver and maintains a GPU object for each: what it is, how it is linked, how busy it
is, and whether it is well. As a device plugin of the kubelet it gives each container
the cards that the scheduler chose, and holds it to its share. On a node without a
driver it says so and serves nothing.`,
		Example: `  # On a node
  elastic-gpu-agent --node-name "$NODE_NAME"

  # For a sandbox: all simulated nodes, with the cards they claim
  elastic-gpu-agent --simulate --kubeconfig "$(elastic kubeconfig)"`,
		Defaults: v1alpha1.NewGPUAgentConfiguration,
		Flags: func(cmd *cobra.Command, cfg *v1alpha1.GPUAgentConfiguration) {
			cmd.Flags().StringVar(&cfg.NodeName, "node-name", cfg.NodeName, "the node this agent serves; default: the host's name")
			cmd.Flags().BoolVar(&cfg.Simulate, "simulate", cfg.Simulate, "take the cards that nodes claim in their labels for real: those of the sandbox's simulated nodes, or of --node-name")
		},
		Commands: []*cobra.Command{inspectCommand(), metricsCommand(), tryCommand(), applyCommand(), releaseCommand()},
		Run:      run,
	})
}

func run(ctx context.Context, env program.Env, cfg *v1alpha1.GPUAgentConfiguration) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	node, err := nodeName(cfg)
	if err != nil {
		return err
	}
	// Of all pods of the cluster, those of this node.
	ours := cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
	}}
	mgr, err := env.Manager(manager.Options{Scheme: scheme, Cache: ours}, v1alpha1.LeaderElection{})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := metrics.Registry.Register(panics.Total); err != nil {
		return err
	}
	if err := agent.IndexGPUs(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	source := newSource(env, node, cfg.Simulate)
	if source == nil {
		if cfg.DevicePlugin.Remote.BindAddress != "" && *cfg.DevicePlugin.Enabled {
			here := &agent.Node{Name: node, Source: discovery.None{}, Config: cfg.DevicePlugin, Events: mgr.GetEventRecorder("elastic-gpu-agent")}
			if err := serve(mgr, env, here); err != nil {
				return err
			}
		}
		return mgr.Start(ctx)
	}
	publisher := &agent.Publisher{Client: mgr.GetClient(), Source: source, Events: mgr.GetEventRecorder("elastic-gpu-agent")}
	if node != "" && *cfg.DevicePlugin.Enabled {
		publisher.Capacity = func(cards []discovery.Card) corev1.ResourceList {
			return agent.Capacity(cards, cfg.DevicePlugin.WholeCards)
		}
		here := &agent.Node{Name: node, Source: source, Config: cfg.DevicePlugin, Events: publisher.Events}
		if err := serve(mgr, env, here); err != nil {
			return err
		}
		processes := here.CardProcesses()
		if err := mgr.Add(processes); err != nil {
			return err
		}
		publisher.Processes = processes.Of
		if cfg.DRA.Enabled {
			kube, err := kubernetes.NewForConfig(mgr.GetConfig())
			if err != nil {
				return err
			}
			claims := here.ClaimPlugin(kube)
			publisher.AllocationPaths = here.AllocationPaths(claims, cfg.DRA.Cards)
			if err := mgr.Add(claims); err != nil {
				return err
			}
		}
	}
	if err := publisher.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the publisher: %w", err)
	}
	return mgr.Start(ctx)
}

// serve the containers of a node.
func serve(mgr manager.Manager, env program.Env, node *agent.Node) error {
	node.API, node.Cache, node.Log = mgr.GetAPIReader(), mgr.GetClient(), env.Log.WithName("device-plugin")
	plugin, err := node.DevicePlugin()
	if err != nil {
		return err
	}
	swapper := node.Swapper(mgr.GetClient())
	runs := []manager.Runnable{plugin, node.PIDReporter(), node.DaemonWatch(), node.SwapReporter(mgr.GetClient()), node.IdleWatch(swapper)}
	if remote := node.RemoteCards(mgr.GetClient()); remote != nil {
		runs = append(runs, remote)
	}
	if listener, ok := node.Source.(manager.Runnable); ok {
		runs = append(runs, listener)
	}
	for _, r := range runs {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	if err := swapper.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the swapper: %w", err)
	}
	return metrics.Registry.Register(node.Exporter(mgr.GetClient()))
}

// nodeName is the node this agent serves; empty for all simulated ones.
func nodeName(cfg *v1alpha1.GPUAgentConfiguration) (string, error) {
	if cfg.NodeName != "" || cfg.Simulate {
		return cfg.NodeName, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding the node's name (give --node-name): %w", err)
	}
	return name, nil
}

// newSource is where cards are found; nil on a node that has none.
func newSource(env program.Env, node string, simulate bool) discovery.Source {
	if simulate {
		return discovery.Simulated{Node: node}
	}
	source, err := discovery.OpenNVML(node)
	if err != nil {
		env.Log.Info("this node has no cards to serve", "node", node, "why", err.Error())
		return nil
	}
	return source
}
