package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/version"
)

// Configuration is a configuration file with the part all programs share.
type Configuration interface{ Shared() *v1alpha1.Common }

// Program describes a daemon.
type Program[C Configuration] struct {
	Name, Short, Long, Example string
	// Defaults makes the configuration that a file then changes.
	Defaults func() C
	// Formats are other kinds of files it reads.
	Formats Formats[C]
	// Flags adds flags that override fields of the configuration.
	Flags func(cmd *cobra.Command, cfg C)
	// Commands do something else than run the daemon.
	Commands []*cobra.Command
	// Run does the work until ctx ends, then returns nil.
	Run func(ctx context.Context, env Env, cfg C) error
}

// Env is what a running program is given beside its configuration.
type Env struct {
	Name string
	// Identity of this replica in the leader's lease; empty takes one of its own.
	Identity string
	Log      logr.Logger
	// REST is the cluster. What is written there passes the Fence.
	REST   *rest.Config
	Common *v1alpha1.Common
	// Fence is for what is written elsewhere by a leader's decision.
	Fence *Fence

	unfenced *rest.Config // for the lease
}

func newEnv(name string, log logr.Logger, config *rest.Config, common *v1alpha1.Common) Env {
	e := Env{Name: name, Log: log, REST: rest.CopyConfig(config), Common: common, Fence: NewFence(), unfenced: config}
	e.REST.Wrap(e.Fence.Transport)
	return e
}

// Main runs the program and exits: 0 after a stop that was asked for, 1 on
// an error, 2 on a wrong command line.
func Main[C Configuration](p Program[C]) {
	os.Exit(run(p, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run[C Configuration](p Program[C], args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	started := false
	cmd := command(p, stdin, &started)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case !started:
		fmt.Fprintf(stderr, "%s: %v\nRun '%s --help' for usage.\n", p.Name, err, p.Name)
		return 2
	default:
		fmt.Fprintf(stderr, "%s: %v\n", p.Name, err)
		return 1
	}
}

func command[C Configuration](p Program[C], stdin io.Reader, started *bool) *cobra.Command {
	cfg := p.Defaults()
	var configFile, kubeconfig string
	var untilStdinCloses bool
	cmd := &cobra.Command{
		Use:           p.Name,
		Short:         p.Short,
		Long:          p.Long,
		Example:       p.Example,
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := cmd.Flags()
	flags.StringVar(&configFile, "config", "", "configuration file; see docs/reference/configuration.md")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; default: $KUBECONFIG, or the pod's own service account")
	flags.StringVar(&cfg.Shared().Log.Level, "log-level", cfg.Shared().Log.Level, "debug, info, warn or error")
	flags.StringVar(&cfg.Shared().Log.Format, "log-format", cfg.Shared().Log.Format, "text or json")
	flags.StringVar(&cfg.Shared().Metrics.BindAddress, "metrics-address", cfg.Shared().Metrics.BindAddress, "where /metrics is served; 0 serves none")
	flags.StringVar(&cfg.Shared().Health.BindAddress, "health-address", cfg.Shared().Health.BindAddress, "where /healthz and /readyz are served")
	flags.BoolVar(&untilStdinCloses, "until-stdin-closes", false, "also stop when standard input ends, so that the program never outlives what started it")
	if p.Flags != nil {
		p.Flags(cmd, cfg)
	}
	for _, other := range p.Commands {
		run := other.RunE
		other.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
		cmd.AddCommand(other)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if configFile != "" {
			if err := loadUnderFlags(cmd, configFile, cfg, p.Formats); err != nil {
				return err
			}
		}
		log, err := newLogger(cfg.Shared().Log, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		restConfig, err := clusterConfig(kubeconfig, cfg.Shared().ClientConnection)
		if err != nil {
			return err
		}
		restConfig.UserAgent = p.Name + "/" + version.String()
		*started = true
		ctrl.SetLogger(log)
		klog.SetLogger(log)
		ctx := cmd.Context()
		if untilStdinCloses {
			ctx = untilClosed(ctx, stdin)
		}
		log.Info("starting", "program", p.Name, "version", version.String())
		err = p.Run(ctx, newEnv(p.Name, log, restConfig, cfg.Shared()), cfg)
		if err != nil && ctx.Err() == nil {
			return err
		}
		log.Info("stopped", "program", p.Name)
		return nil
	}
	return cmd
}

// loadUnderFlags reads the file, then lets the flags that were given win.
func loadUnderFlags[C any](cmd *cobra.Command, path string, cfg C, others Formats[C]) error {
	given := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
	if err := LoadConfig(path, cfg, others); err != nil {
		return err
	}
	for name, value := range given {
		if err := cmd.Flags().Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

func newLogger(cfg v1alpha1.Log, w io.Writer) (logr.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		return logr.Logger{}, fmt.Errorf("log level %q is none of debug, info, warn, error", cfg.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch cfg.Format {
	case "text":
		return logr.FromSlogHandler(slog.NewTextHandler(w, options)), nil
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options)), nil
	}
	return logr.Logger{}, fmt.Errorf("log format %q is none of text, json", cfg.Format)
}

func clusterConfig(kubeconfig string, limits v1alpha1.ClientConnection) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (give --kubeconfig, or set KUBECONFIG): %w", err)
	}
	cfg.QPS, cfg.Burst = limits.QPS, limits.Burst
	return cfg, nil
}

// untilClosed ends the context when r does.
func untilClosed(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx
}
