package simulate

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/cli/explain"
	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// explainCommand is "elastic simulate explain".
func explainCommand() *cobra.Command {
	in := &inputs{}
	var at, set string
	var printer output.Printer
	cmd := &cobra.Command{
		Use:   "explain JOB --at TIME",
		Short: "Say why a job of the trace waits at a time of the simulation",
		Example: `  elastic simulate explain job-17 --at 36h --trace jobs.csv --nodes 8x8:H100-80G
  elastic simulate explain job-17 --at 2026-12-01T08:00 --trace jobs.csv --shape queues.csv --set queue/a.quota=64`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := in.explain(cmd, args[0], at, set)
			if err != nil {
				return err
			}
			return printer.Print(cmd.OutOrStdout(), x, nil, func(w output.Writer, _ bool) { x.print(w) })
		},
	}
	in.addTo(cmd)
	cmd.Flags().StringVar(&at, "at", "", "time from the start of the trace, as 36h, 90m or 3d12h, or a date and time in UTC, as 2026-12-01T08:00")
	cmd.Flags().StringVar(&set, "set", "", "changes of the cluster, a comma between")
	printer.AddTo(cmd, "json", "yaml")
	return cmd
}

// explanation is where a job stands at a time.
type explanation struct {
	Job       string                     `json:"job"`
	Queue     string                     `json:"queue"`
	Cards     int32                      `json:"cards"`
	Submitted int64                      `json:"submittedSeconds"`
	At        int64                      `json:"atSeconds"`
	Time      time.Time                  `json:"time"`
	Summary   string                     `json:"summary"`
	Standing  *v1alpha1.WorkloadStanding `json:"standing,omitempty"` // of one that waits or runs
	Notes     []string                   `json:"notes,omitempty"`
}

// explain where a job of the trace stands at a time.
func (in *inputs) explain(cmd *cobra.Command, name, at, set string) (*explanation, error) {
	trace, cluster, settings, err := in.read(cmd.Context())
	if err != nil {
		return nil, err
	}
	if cluster, err = cluster.Set(set); err != nil {
		return nil, err
	}
	if err := world.CheckNodes(&settings.Faults, []*world.Cluster{cluster}); err != nil {
		return nil, err
	}
	if settings.Until, err = secondOf(at, cluster); err != nil {
		return nil, err
	}
	job, err := trace.Index(name)
	if err != nil {
		return nil, err
	}
	world.CollectSeldom()
	w, _, err := simulated(cmd, name, trace, cluster, settings)
	if err != nil {
		return nil, err
	}
	j, standing := &trace.Jobs[job], w.Standing(job)
	x := &explanation{
		Job: j.ID, Queue: j.Queue, Cards: j.Cards, Submitted: j.Submit, At: settings.Until, Time: w.Clock(settings.Until),
		Summary: summary(w, job, &standing), Notes: w.NotesOf(job),
	}
	if standing.State != string(admission.StateUnknown) {
		x.Standing = &standing
	}
	return x, nil
}

// secondOf the trace that is meant: a time from its start, with days or without, or a date.
func secondOf(text string, cluster *world.Cluster) (int64, error) {
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			if seconds := cluster.Second(at); seconds >= 1 {
				return seconds, nil
			}
			return 0, fmt.Errorf("--at %s: the trace begins later", text)
		}
	}
	days, rest, dayed := strings.Cut(text, "d")
	if !dayed {
		days, rest = "0", text
	}
	n, err1 := strconv.ParseInt(days, 10, 32)
	after, err2 := time.ParseDuration(cmp.Or(rest, "0s"))
	seconds := n*86400 + int64(after/time.Second)
	if err1 != nil || err2 != nil || seconds < 1 {
		return 0, fmt.Errorf("give --at: the time from the start of the trace, as 36h, 90m or 3d12h, or a date, as 2026-12-01T08:00")
	}
	return seconds, nil
}

// print it in the words of "elastic explain".
func (x *explanation) print(w output.Writer) {
	cards := "cards"
	if x.Cards == 1 {
		cards = "card"
	}
	fmt.Fprintf(w, "%s (%d %s, queue %s, submitted at %s) at %s, %s: %s\n",
		x.Job, x.Cards, cards, x.Queue, duration(x.Submitted), duration(x.At), x.Time.Format("2006-01-02 15:04 MST"), x.Summary)
	if x.Standing != nil {
		fmt.Fprintln(w)
		explain.RenderStanding(w, x.Standing, x.Time)
	}
	for _, note := range x.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
}

// summary of where a job stands.
func summary(run *world.World, job int, x *v1alpha1.WorkloadStanding) string {
	end := run.JobEnds()[job]
	switch {
	case x.State == string(admission.StateUnknown) && end.End >= 0:
		return fmt.Sprintf("%s at %s after %s of waiting", ended(end.How), duration(end.End), duration(end.Delay))
	case x.State == string(admission.StateUnknown):
		return "not submitted yet"
	case x.State == "Admitted":
		return fmt.Sprintf("runs, after %s of waiting", duration(end.Delay))
	case x.Position > 0:
		return fmt.Sprintf("has waited %s, and is at position %d", duration(end.Delay), x.Position)
	}
	return fmt.Sprintf("has waited %s", duration(end.Delay))
}

// ended is how a job did, before its time.
func ended(how world.What) string {
	if how == world.Cancelled {
		return "was cancelled"
	}
	return how.String()
}

func duration(seconds int64) time.Duration { return time.Duration(seconds) * time.Second }
