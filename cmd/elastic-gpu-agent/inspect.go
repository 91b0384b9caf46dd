package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/dra"
	"github.com/elastic-ai/elastic/internal/agent/exporter"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// thisNode is the machine we run on, without a cluster.
func thisNode() (*discovery.NVML, *corev1.Node, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	source, err := discovery.OpenNVML(name)
	return source, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, err
}

func inspectCommand() *cobra.Command {
	var output string
	var devices bool
	state := v1alpha1.NewGPUAgentConfiguration().DevicePlugin.StateDir
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Print the GPU objects of this machine's cards, or their devices for ResourceClaims, without a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, node, err := thisNode()
			if err != nil {
				return err
			}
			defer source.Close()
			cards, err := source.Cards(cmd.Context(), node)
			if err != nil {
				return err
			}
			if devices {
				var offered []dra.Card
				for _, card := range cards {
					offered = append(offered, dra.Card{Card: card})
				}
				return show(cmd, output, dra.Devices(offered, agent.Divisions(source, filepath.Join(state, "mig"))))
			}
			list := &egpu.GPUList{TypeMeta: metav1.TypeMeta{APIVersion: egpu.GroupVersion.String(), Kind: "GPUList"}}
			for _, card := range cards {
				gpu := agent.Object(node, card)
				gpu.TypeMeta = metav1.TypeMeta{APIVersion: egpu.GroupVersion.String(), Kind: "GPU"}
				gpu.OwnerReferences = nil // there is no Node object here
				list.Items = append(list.Items, *gpu)
			}
			return show(cmd, output, list)
		},
	}
	cmd.Flags().BoolVar(&devices, "devices", false, "the devices of a ResourceSlice, with MIG partitions where the driver lists them")
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	return cmd
}

// show it to people or programs.
func show(cmd *cobra.Command, format string, what any) error {
	var data []byte
	var err error
	switch format {
	case "yaml":
		data, err = yaml.Marshal(what)
	case "json":
		data, err = json.MarshalIndent(what, "", "  ")
	default:
		err = fmt.Errorf("-o %s: write yaml or json", format)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(data)))
	return nil
}

func metricsCommand() *cobra.Command {
	cfg := v1alpha1.NewGPUAgentConfiguration().DevicePlugin
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print what the exporter reports about this machine's cards and containers now, without a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, node, err := thisNode()
			if err != nil {
				return err
			}
			defer source.Close()
			shares := &gpushare.Backend{Dir: filepath.Join(cfg.StateDir, "gpushare"), InPod: ofTriedOrPod}
			registry := prometheus.NewRegistry()
			if err := registry.Register(&exporter.Exporter{
				Node: node.Name, Log: logr.Discard(), Grants: (&slots.Slots{Dir: cfg.CDIDir}).Grants, Processes: shares.Processes,
				Cards: func(ctx context.Context) ([]discovery.Card, error) { return source.Cards(ctx, node) },
				Pod:   func(context.Context, types.NamespacedName) *corev1.Pod { return nil },
			}); err != nil {
				return err
			}
			families, err := registry.Gather()
			for _, family := range families {
				_, failed := expfmt.MetricFamilyToText(cmd.OutOrStdout(), family)
				err = errors.Join(err, failed)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&cfg.StateDir, "state-dir", cfg.StateDir, "the agent's folder")
	cmd.Flags().StringVar(&cfg.CDIDir, "cdi-dir", cfg.CDIDir, "where the container runtime reads about devices")
	return cmd
}
