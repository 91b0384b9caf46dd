package reach

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/screen"
)

// List is a command that shows all things of a kind, in the form -o asks for.
type List[T any] struct {
	What  string // in the plural
	Read  func(context.Context, *Cluster) ([]T, error)
	Name  func(*T) string // as "-o name" prints it
	Print func(s screen.Screen, all []T, wide bool)
}

// Make completes the command.
func (l List[T]) Make(cmd *cobra.Command, flags *Flags) *cobra.Command {
	output := &screen.Output{}
	output.AddTo(cmd)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.Connect()
		if err != nil {
			return err
		}
		progress := screen.Of(cmd.ErrOrStderr()).Start("reading "+l.What, 0)
		all, err := l.Read(cmd.Context(), c)
		progress.End()
		if err != nil {
			return err
		}
		var names []string
		for i := range all {
			names = append(names, l.Name(&all[i]))
		}
		return output.Print(cmd.OutOrStdout(), all, names, func(s screen.Screen, wide bool) { l.Print(s, all, wide) })
	}
	return cmd
}
