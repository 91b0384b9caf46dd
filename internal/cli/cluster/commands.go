package cluster

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/output"
)

// RunE connects and then runs a command.
func (f *Flags) RunE(run func(cmd *cobra.Command, c *Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := f.Connect()
		if err != nil {
			return err
		}
		return run(cmd, c, args)
	}
}

// List is a command that shows all things of a kind, in the form -o asks for.
type List[T any] struct {
	What  string // in the plural
	Read  func(context.Context, *Client) ([]T, error)
	Name  func(*T) string // as "-o name" prints it
	Print func(w output.Writer, all []T, wide bool)
}

// Make completes the command.
func (l List[T]) Make(cmd *cobra.Command, flags *Flags) *cobra.Command {
	printer := &output.Printer{}
	printer.AddTo(cmd)
	cmd.Args = cobra.NoArgs
	cmd.RunE = flags.RunE(func(cmd *cobra.Command, c *Client, _ []string) error {
		progress := output.To(cmd.ErrOrStderr()).Start("reading "+l.What, 0)
		all, err := l.Read(cmd.Context(), c)
		progress.End()
		if err != nil {
			return err
		}
		var names []string
		for i := range all {
			names = append(names, l.Name(&all[i]))
		}
		return printer.Print(cmd.OutOrStdout(), all, names, func(w output.Writer, wide bool) { l.Print(w, all, wide) })
	})
	return cmd
}

// Describe is a command that shows one thing by its name, in the form -o asks for.
type Describe[T any] struct {
	Read  func(ctx context.Context, c *Client, name string) (*T, error)
	Name  func(*T) string // as "-o name" prints it
	Print func(w output.Writer, one *T)
}

// Make completes the command.
func (d Describe[T]) Make(cmd *cobra.Command, flags *Flags) *cobra.Command {
	printer := &output.Printer{}
	printer.AddTo(cmd)
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = flags.RunE(func(cmd *cobra.Command, c *Client, args []string) error {
		one, err := d.Read(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return printer.Print(cmd.OutOrStdout(), one, []string{d.Name(one)}, func(w output.Writer, _ bool) { d.Print(w, one) })
	})
	return cmd
}
