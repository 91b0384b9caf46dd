package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference writes the manual of every command: docs/reference/cli.md.
func Reference(w io.Writer) {
	fmt.Fprint(w, "# Command line\n\nWritten by `go test ./internal/cli -rewrite` from the commands themselves. Called as `arena` the program answers\n"+
		"arena's users in its words; named `kubectl-elastic` and on the PATH it is `kubectl elastic` (and `kubectl_complete-elastic` completes that). `elastic completion bash|zsh|fish`\n"+
		"prints completion for a shell. Which cluster: `--kubeconfig`, `--context`, `--local`, else `$KUBECONFIG`, `~/.kube/config`,\n"+
		"and where none of these is there the local cluster, if it runs.\n")
	write(w, Root("elastic"))
}

func write(w io.Writer, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		if sub.Runnable() {
			fmt.Fprintf(w, "\n## %s\n\n%s\n", sub.CommandPath(), sentence(sub))
			fmt.Fprintf(w, "\n    %s\n", sub.UseLine())
			if sub.Example != "" {
				fmt.Fprintf(w, "\n```sh\n%s\n```\n", unindent(sub.Example))
			}
			flags(w, sub)
		}
		write(w, sub)
	}
}

func sentence(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

func unindent(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "  "), "\n  ", "\n")
}

// flags of a command, but for those that say which cluster, and for those that
// a cron has because the job has them.
func flags(w io.Writer, cmd *cobra.Command) {
	first := true
	like := &pflag.FlagSet{}
	if submit, _, err := cmd.Root().Find([]string{"submit", cmd.Name()}); err == nil && cmd.Flag("schedule") != nil {
		like = submit.Flags()
		fmt.Fprintf(w, "\nThe flags of `%s`, and:\n", submit.CommandPath())
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "help", "kubeconfig", "context", "local", "namespace":
			return
		}
		if f.Hidden || like.Lookup(f.Name) != nil {
			return
		}
		if first {
			fmt.Fprint(w, "\n| flag | |\n|---|---|\n")
			first = false
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		usage := strings.ReplaceAll(f.Usage, "|", "\\|")
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "-1" {
			usage += " (default `" + f.DefValue + "`)"
		}
		fmt.Fprintf(w, "| %s | %s |\n", name, usage)
	})
}
