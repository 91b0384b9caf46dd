package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/sandbox/internal/nodespec"
	"github.com/elastic-ai/elastic/sandbox/internal/run"
)

func newRunCommand() *cobra.Command {
	var (
		options          run.Options
		nodes, listen    string
		apiServer        []string
		untilStdinCloses bool
	)
	cmd := &cobra.Command{
		Use:   "run --dir DIR",
		Short: "Run a sandbox until it is stopped",
		Long: `Run a sandbox until SIGTERM, SIGINT or, if asked for, the end of stdin.

All its files lie below DIR: kubeconfig, pki, etcd, log. A later run on the
same folder continues where this one ended, however it ended. Stdout carries one
JSON object a line: progress, then ready, then stopped, or error.

Exit codes: 0 stopped on request, 1 failed, 2 bad command line, 3 the folder is in use.`,
		Example: `  elastic-sandbox run --dir /tmp/sandbox
  elastic-sandbox run --dir /tmp/sandbox --nodes 4x8:H100-80G,8x4:A100-40G,100x0 --fresh
  KUBECONFIG=/tmp/sandbox/kubeconfig elastic-sandbox kubectl get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if options.Fleet, err = nodespec.Parse(nodes); err != nil {
				return err
			}
			if options.APIOnly && cmd.Flags().Changed("nodes") {
				return errors.New("--api-only runs no nodes: leave --nodes out")
			}
			if options.APIOnly && options.Clouds {
				return errors.New("--api-only runs no clouds: leave --clouds out")
			}
			if options.Listen = net.ParseIP(listen); options.Listen == nil {
				return fmt.Errorf("--listen %q is not an IP address", listen)
			}
			options.APIServer = map[string]string{}
			for _, arg := range apiServer {
				name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				if !ok {
					return fmt.Errorf("--apiserver-arg %q: write NAME=VALUE", arg)
				}
				options.APIServer[name] = value
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if untilStdinCloses {
				ctx = untilEOF(ctx, os.Stdin)
			}
			if os.Getenv("GOGC") == "" {
				// A quarter less processor time for a quarter more memory.
				debug.SetGCPercent(200)
			}
			events := run.NewEvents(os.Stdout)
			if err := run.Run(ctx, options, events); err != nil {
				return &runError{err}
			}
			events.Send(run.Event{Event: "stopped"})
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Dir, "dir", "", "folder of this sandbox, created if missing")
	flags.StringVar(&nodes, "nodes", nodespec.Default, "simulated nodes, COUNTxCARDS:MODEL,...; COUNTx0 for nodes without cards")
	flags.BoolVar(&options.Fresh, "fresh", false, "forget what an earlier run left in the folder")
	flags.BoolVar(&untilStdinCloses, "until-stdin-closes", false, "stop when stdin ends, and so with the program that started this one")
	flags.IntVar(&options.Verbosity, "verbosity", 0, "how much the components log, as their own -v")
	flags.StringVar(&listen, "listen", "127.0.0.1", "address the API server listens on")
	flags.IntVar(&options.Port, "port", 0, "port the API server listens on; 0 chooses a free one")
	flags.StringVar(&options.SchedulerConfig, "scheduler-config", "", "KubeSchedulerConfiguration file for kube-scheduler; connection and leader election are filled in")
	flags.DurationVar(&options.JobBatchPeriod, "job-batch-period", 0, "how long the Job controller gathers changes of a Job's pods before it looks at the Job; 0 leaves Kubernetes' second")
	flags.StringArrayVar(&apiServer, "apiserver-arg", nil, "NAME=VALUE: a flag of kube-apiserver (repeatable)")
	flags.BoolVar(&options.APIOnly, "api-only", false, "etcd and the API server alone: no controllers, no scheduler, no nodes")
	flags.BoolVar(&options.Clouds, "clouds", false, "play clouds that sell machines: serve SimulatedClouds, and Karpenter's NodeClaims that name one")
	flags.DurationVar(&options.StartTimeout, "start-timeout", 5*time.Minute, "give up when not ready after this time")
	_ = cmd.MarkFlagRequired("dir") // the flag exists
	return cmd
}

// untilEOF ends the context when nothing more can be read.
func untilEOF(ctx context.Context, in io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	return ctx
}
