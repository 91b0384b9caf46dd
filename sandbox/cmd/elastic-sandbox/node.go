//go:build linux

package main

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/sandbox/internal/realnode"
	"github.com/elastic-ai/elastic/sandbox/internal/run"
)

func newNodeCommands() []*cobra.Command {
	return []*cobra.Command{newNodeCommand(), newCleanCommand(), newImageCommand()}
}

func newNodeCommand() *cobra.Command {
	var (
		options          realnode.Options
		untilStdinCloses bool
	)
	cmd := &cobra.Command{
		Use:   "node --dir DIR --sandbox-dir DIR",
		Short: "Run a real node: a kubelet, containerd and runc (Linux, root)",
		Long: `Run a real node beside a sandbox until SIGTERM, SIGINT or, if asked for, the end of
stdin. Its pods are real containers; when it ends they do, and nothing is left of
it but its folder. Stdout carries the same events as "run".`,
		Example: "  elastic-sandbox node --dir /tmp/node --sandbox-dir /tmp/sandbox --bin bin/node",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if untilStdinCloses {
				ctx = untilEOF(ctx, os.Stdin)
			}
			var err error
			if options.Bin, err = filepath.Abs(options.Bin); err != nil {
				return err
			}
			events := run.NewEvents(os.Stdout)
			if err := realnode.Run(ctx, options, events); err != nil {
				return &runError{err}
			}
			events.Send(run.Event{Event: "stopped"})
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Dir, "dir", "", "folder of this node, created if missing")
	flags.StringVar(&options.SandboxDir, "sandbox-dir", "", "folder of the sandbox it joins")
	flags.StringVar(&options.Bin, "bin", "bin/node", "folder with kubelet, containerd and the rest")
	flags.StringVar(&options.Name, "name", "real", "the node's name")
	flags.BoolVar(&options.HostImage, "host-image", false, "offer this machine's own root as the image "+realnode.HostImage)
	flags.StringVar(&options.Labels, "labels", "", "labels it registers with, NAME=VALUE,...")
	flags.BoolVar(&untilStdinCloses, "until-stdin-closes", false, "stop when stdin ends, and so with the program that started this one")
	flags.DurationVar(&options.StartTimeout, "start-timeout", 5*time.Minute, "give up when not ready after this time")
	_, _ = cmd.MarkFlagRequired("dir"), cmd.MarkFlagRequired("sandbox-dir") // the flags exist
	return cmd
}

func newCleanCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "clean-node --dir DIR",
		Short: "Take away what a real node has left that was killed (Linux, root)",
		Long: `Take away what a real node has left that was killed together with what it ran, or whose
machine went down: processes, cgroups, its bridge. Its folder stays, with the images.`,
		Example: "  elastic-sandbox clean-node --dir /tmp/node",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return realnode.Clean(dir) },
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the node")
	_ = cmd.MarkFlagRequired("dir") // the flag exists
	return cmd
}

func newImageCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "image NAME --file PATH=FILE... -- COMMAND...",
		Short: "Write a container image made of files to stdout, for machines without a registry",
		Example: `  elastic-sandbox image registry.local/hello:1 --file /hello=./hello -- /hello |
    bin/node/ctr --address DIR/containerd.sock --namespace k8s.io images import -`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			content := map[string]string{}
			for _, f := range files {
				inside, outside, ok := strings.Cut(f, "=")
				if !ok {
					return errors.New("--file takes PATH=FILE: the path in the image, and the file on this machine")
				}
				content[inside] = outside
			}
			return (&realnode.Image{Name: args[0], Files: content, Command: args[1:]}).Write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVar(&files, "file", nil, "PATH=FILE: the path in the image, and the file on this machine (repeatable)")
	return cmd
}
