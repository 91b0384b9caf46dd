package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Printer is the -o flag. A format that is not known is refused before anything is done.
type Printer struct {
	Format  string
	allowed []string
}

func (o *Printer) String() string { return o.Format }

// Type is what a flag of this kind takes.
func (o *Printer) Type() string { return "string" }

// Set takes a format.
func (o *Printer) Set(format string) error {
	if !slices.Contains(o.allowed, format) {
		return fmt.Errorf("output %q is not known: give one of %s, or leave it out", format, strings.Join(o.allowed, ", "))
	}
	o.Format = format
	return nil
}

// AddTo gives a command the flag. Beside JSON and YAML a command with a table
// has wide and name.
func (o *Printer) AddTo(cmd *cobra.Command, formats ...string) {
	if len(formats) == 0 {
		formats = []string{"wide", "json", "yaml", "name"}
	}
	o.allowed = formats
	cmd.Flags().VarP(o, "output", "o", "one of "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(cobraStrings(formats), cobra.ShellCompDirectiveNoFileComp))
}

func cobraStrings(list []string) []cobra.Completion { return list }

// Print writes a thing as asked: data for programs, names for xargs, and else
// what text prints.
func (o *Printer) Print(w io.Writer, data any, names []string, text func(s Writer, wide bool)) error {
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
		text(To(w), o.Format == "wide")
	}
	return nil
}
