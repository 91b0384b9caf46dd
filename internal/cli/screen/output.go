package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output is the -o flag.
type Output struct {
	Format  string
	allowed []string
}

// AddTo gives a command the flag. Beside JSON and YAML a command with a table
// has wide and name.
func (o *Output) AddTo(cmd *cobra.Command, formats ...string) {
	if len(formats) == 0 {
		formats = []string{"wide", "json", "yaml", "name"}
	}
	o.allowed = formats
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "one of "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(cobraStrings(formats), cobra.ShellCompDirectiveNoFileComp))
}

func cobraStrings(list []string) []cobra.Completion { return list }

// Check refuses formats that are not known, before anything is done.
func (o *Output) Check() error {
	if o.Format == "" || slices.Contains(o.allowed, o.Format) {
		return nil
	}
	return fmt.Errorf("output %q is not known: give one of %s, or leave it out", o.Format, strings.Join(o.allowed, ", "))
}

// Print writes a thing as asked: data for programs, names for xargs, and else
// what text prints.
func (o *Output) Print(w io.Writer, data any, names []string, text func(s Screen, wide bool)) error {
	switch o.Format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(data)
	case "yaml":
		out, err := yaml.Marshal(data)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	case "name":
		for _, name := range names {
			fmt.Fprintln(w, name)
		}
	default:
		text(Of(w), o.Format == "wide")
	}
	return nil
}
