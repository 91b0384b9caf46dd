package main

import (
	"context"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

func releaseCommand() *cobra.Command {
	cfg := v1alpha1.NewGPUAgentConfiguration().DevicePlugin
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Take away all shares that an agent has made on this machine, once its containers have ended",
		Long: `Take away all shares that an agent has made on this machine: MIG instances, daemons
of MPS, mounts. It is for a node that ends for good: no container of it may run any more.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, node, err := thisNode()
			if err != nil {
				return err
			}
			defer source.Close()
			backends, err := (&agent.Node{Name: node.Name, Source: source, Config: cfg}).Backends()
			if err != nil {
				return err
			}
			all := &slots.Slots{
				Dir: cfg.CDIDir, Backends: backends, Log: logr.Discard(),
				Containers: func(context.Context) (map[string]slots.ContainerRef, error) { return nil, nil },
				Gone:       func(context.Context, *share.Share) (bool, error) { return true, nil },
			}
			return all.Clean(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.StateDir, "state-dir", cfg.StateDir, "the agent's folder")
	flags.StringVar(&cfg.CDIDir, "cdi-dir", filepath.Clean(cfg.CDIDir), "where it wrote CDI specifications")
	flags.StringVar(&cfg.Library, "library", cfg.Library, "libelasticgpu.so")
	return cmd
}
