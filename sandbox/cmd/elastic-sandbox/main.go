// Command elastic-sandbox runs a Kubernetes control plane with simulated GPU
// nodes in one process.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	_ "github.com/elastic-ai/elastic/sandbox/internal/kubeversion" // before anything asks which Kubernetes this is
	"github.com/elastic-ai/elastic/sandbox/internal/run"
	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitInUse  = 3
)

func main() {
	if len(os.Args) > 1 {
		if program, ok := standIns[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			os.Exit(program())
		}
	}
	if program, ok := standIns[filepath.Base(os.Args[0])]; ok {
		os.Exit(program())
	}
	os.Exit(execute())
}

// standIns are Kubernetes' own programs, by the first argument or the name they are called by. They parse their arguments
// themselves. kube-apiserver and etcd are for test suites that start a control plane of their own.
var standIns = map[string]func() int{
	"kubectl":        func() int { return exitCode(kubectl.NewDefaultKubectlCommand().Execute()) },
	"kube-apiserver": func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"etcd":           func() int { etcdmain.Main(os.Args); return 0 },
}

func exitCode(err error) int {
	if err != nil {
		return exitFailed
	}
	return 0
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
