package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func loadImageCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "load-image FILE",
		Short: "Load an image from a file into a local cluster's real node",
		Long: `Load the images of an archive (OCI, or what 'docker save' writes) into the real node of a
local cluster, where jobs find them without a registry. "-" reads standard input. Pods write
imagePullPolicy: Never, or IfNotPresent.`,
		Example: "  elastic load-image pytorch.tar\n  docker save pytorch:latest | elastic load-image -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := openRunning(name)
			if err != nil {
				return err
			}
			load, err := cluster.loadImage(cmd, args[0])
			if err != nil {
				return err
			}
			said, err := load.CombinedOutput()
			if err != nil {
				return fmt.Errorf("the node does not take it: %w: %s", err, strings.TrimSpace(string(said)))
			}
			_, err = cmd.OutOrStdout().Write(said)
			return err
		},
	}
	addName(cmd, &name)
	return cmd
}

// loadImage is the command that gives the node's containerd an archive.
func (c *Cluster) loadImage(cmd *cobra.Command, file string) (*exec.Cmd, error) {
	socket := filepath.Join(c.NodeDir(), "containerd.sock")
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cluster %q has no real node: start it with 'elastic up --cards' or '--real-node'", c.Name)
	}
	sandbox, err := sibling("elastic-sandbox")
	if err != nil {
		return nil, err
	}
	load := exec.CommandContext(cmd.Context(), filepath.Join(filepath.Dir(sandbox), "node", "ctr"),
		"--address", socket, "--namespace", "k8s.io", "images", "import", file)
	if file == "-" {
		load.Stdin = cmd.InOrStdin()
	}
	return load, nil
}
