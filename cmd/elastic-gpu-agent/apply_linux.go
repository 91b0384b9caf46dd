package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
	"tags.cncf.io/container-device-interface/specs-go"
)

func mountsOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}

// applyCommand mounts what a specification says and becomes the command; "try" runs it.
func applyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "apply-edits FILE -- COMMAND...", Hidden: true, Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			spec := specs.Spec{}
			if err := json.Unmarshal(data, &spec); err != nil {
				return err
			}
			if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
				return fmt.Errorf("mounts of its own: %w", err)
			}
			for _, m := range spec.Devices[0].ContainerEdits.Mounts {
				if err := makeTarget(m); err != nil {
					return err
				}
				if err := syscall.Mount(m.HostPath, m.ContainerPath, "", syscall.MS_BIND, ""); err != nil {
					return fmt.Errorf("mounting %s: %w", m.ContainerPath, err)
				}
			}
			path, err := exec.LookPath(args[1])
			if err != nil {
				return err
			}
			return syscall.Exec(path, args[1:], os.Environ())
		},
	}
}
