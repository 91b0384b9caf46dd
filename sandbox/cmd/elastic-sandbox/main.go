// Command elastic-sandbox runs a Kubernetes control plane with simulated GPU
// nodes in one process.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/elastic-ai/elastic/sandbox/internal/run"
	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitInUse  = 3
)

func main() {
	// kubectl parses its own arguments, plugins included.
	if len(os.Args) > 1 && os.Args[1] == "kubectl" || filepath.Base(os.Args[0]) == "kubectl" {
		runKubectl()
		return
	}
	os.Exit(execute())
}

func execute() int {
	root := &cobra.Command{
		Use:           "elastic-sandbox",
		Short:         "A Kubernetes control plane with simulated GPU nodes, in one process",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRunCommand(), newVersionCommand(), &cobra.Command{
		Use: "kubectl ARGS...", Short: "Run kubectl", DisableFlagParsing: true,
	})
	root.AddCommand(newNodeCommands()...)
	err := root.Execute()
	if err == nil {
		return 0
	}
	var ran *runError
	if !errors.As(err, &ran) {
		fmt.Fprintln(os.Stderr, "elastic-sandbox:", err)
		return exitUsage
	}
	run.NewEvents(os.Stdout).Send(run.Event{Event: "error", Message: err.Error()})
	var inUse *statedir.InUseError
	if errors.As(err, &inUse) {
		return exitInUse
	}
	return exitFailed
}

// runError is a failure of a sandbox, in contrast to one of its command line.
type runError struct{ error }

func (e *runError) Unwrap() error { return e.error }

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the Kubernetes inside",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			v := version.Get()
			fmt.Fprintf(cmd.OutOrStdout(), "kubernetes %s (%s, %s)\n", v.GitVersion, v.GoVersion, v.Platform)
		},
	}
}

func runKubectl() {
	args := os.Args
	if len(args) > 1 && args[1] == "kubectl" {
		args = append([]string{"kubectl"}, args[2:]...)
		os.Args = args
	}
	if err := kubectl.NewDefaultKubectlCommand().Execute(); err != nil {
		os.Exit(exitFailed)
	}
}
