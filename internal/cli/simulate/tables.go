package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// printVariants prints the comparison and, for each variant, its queues and, with wide, its sizes.
func printVariants(w output.Writer, variants []world.Variant, wide bool) {
	table := output.Table{Columns: columns("VARIANT", "JOBS", "JCT MEAN", "P50+", "P99", "P99.9+", "DELAY MEAN", "P50", "P99", "P99.9", "MAKESPAN", "CARDS USED", "FRAGMENTED", "EVICTIONS", "LOST")}
	more := columnsOfSome(variants)
	for _, c := range more {
		table.Columns = append(table.Columns, output.Column{Name: c.name})
	}
	for _, v := range variants {
		cells := []any{
			v.Name, jobs(v.Report), hours(v.JCT.Mean), hours(v.JCT.P50), hours(v.JCT.P99), hours(v.JCT.P999), hours(v.Delay.Mean), hours(v.Delay.P50), hours(v.Delay.P99), hours(v.Delay.P999), hours(float64(v.Makespan)),
			percent(v.CardsUsed), percent(v.Fragmented), v.Preemptions + v.Evictions, fmt.Sprintf("%.1f card-h", v.LostHours),
		}
		for _, c := range more {
			cells = append(cells, c.cell(v.Report))
		}
		table.Add(cells...)
	}
	table.Print(w, wide)
	if len(variants) > 0 && variants[0].Found+variants[0].FoundWaiting > 0 {
		fmt.Fprintf(w, "\nof the cluster as it is now: %d jobs that run and %d that wait; they are not counted above\n", variants[0].Found, variants[0].FoundWaiting)
	}
	if len(variants) > 0 {
		if text := leftOut(variants[0].Jobs, variants[0].Skipped); text != "" {
			fmt.Fprintf(w, "\n%s\n", text)
		}
	}
	printSurvivors(w, variants)
	printSeeds(w, variants)
	printNotes(w, variants)
	for _, v := range variants {
		printNotStarted(w, &v)
	}
	for _, v := range variants {
		if len(v.ByQueue) > 1 || wide {
			fmt.Fprintf(w, "\n%s, by queue:\n", v.Name)
			printQueues(w, v.ByQueue, wide)
		}
		printPolicies(w, &v, wide)
		if wide {
			fmt.Fprintf(w, "\n%s, by size:\n", v.Name)
			printSizes(w, v.BySize)
		}
	}
}

// printSurvivors says that variants ended different numbers of jobs, so that their means are of different ones.
func printSurvivors(w output.Writer, variants []world.Variant) {
	if !slices.ContainsFunc(variants, func(v world.Variant) bool { return v.Ended != variants[0].Ended }) {
		return
	}
	fmt.Fprintln(w, "\nThe variants ended different numbers of jobs, and the means above are of those alone. The mean delay of all that were submitted, with what\nothers have waited so far:")
	table := output.Table{Indent: "  ", Columns: columns("VARIANT", "JOBS", "DELAY MEAN")}
	for _, v := range variants {
		mean := v.DelayOfAll
		if v.Ended == v.Jobs {
			mean = v.Delay.Mean
		}
		table.Add(v.Name, jobs(v.Report), hours(mean))
	}
	table.Print(w, true)
}

// printSeeds prints how figures of variants differ with what is drawn by chance.
func printSeeds(w output.Writer, variants []world.Variant) {
	table := output.Table{Indent: "  ", Columns: columns("VARIANT", "JCT MEAN", "DELAY MEAN", "DELAY P99", "MAKESPAN", "EVICTIONS", "LOST")}
	seeds := 0
	for _, v := range variants {
		s := v.Seeds
		if s == nil {
			continue
		}
		seeds = s.Seeds
		in := func(r world.Range, unit float64, format string) string {
			return fmt.Sprintf(format+", "+format+" to "+format, r.Mean/unit, r.Least/unit, r.Most/unit)
		}
		table.Add(v.Name, in(s.JCT, 3600, "%.2f h"), in(s.Delay, 3600, "%.2f h"), in(s.DelayP99, 3600, "%.2f h"), in(s.Makespan, 3600, "%.2f h"),
			in(s.Evictions, 1, "%.0f"), in(s.LostHours, 1, "%.0f card-h"))
	}
	if seeds > 0 {
		fmt.Fprintf(w, "\nOver %d seeds, the mean, the least and the most; all else is of the first seed:\n", seeds)
		table.Print(w, true)
	}
}

// printNotStarted names jobs that never started, and says why.
func printNotStarted(w output.Writer, v *world.Variant) {
	if len(v.NotStarted) == 0 {
		return
	}
	what := "jobs never start"
	switch {
	case v.Stopped && v.Never == 1:
		what = "job had not started when the run was stopped"
	case v.Stopped:
		what = "jobs had not started when the run was stopped"
	case v.Never == 1:
		what = "job never starts"
	}
	fmt.Fprintf(w, "\n%s: %d %s\n", v.Name, v.Never, what)
	table := output.Table{Indent: "  ", Columns: columns("QUEUE", "JOBS", "WHY")}
	for _, g := range v.NotStarted {
		names := strings.Join(g.Jobs[:min(len(g.Jobs), mostNamed)], ", ")
		if more := len(g.Jobs) - mostNamed; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		table.Add(g.Queue, names, g.Why)
	}
	table.Print(w, true)
}

// mostNamed is how many jobs are named of those that wait for the same.
const mostNamed = 5

// printNotes prints what is odd about all variants, and then what is about some.
func printNotes(w output.Writer, variants []world.Variant) {
	for i, v := range variants {
		for _, note := range v.Notes {
			switch common := !slices.ContainsFunc(variants, func(o world.Variant) bool { return !slices.Contains(o.Notes, note) }); {
			case !common:
				fmt.Fprintf(w, "\n%s: %s\n", v.Name, note)
			case i == 0:
				fmt.Fprintf(w, "\n%s\n", note)
			}
		}
	}
}

// leftOut says which lines of a trace are not simulated; "" if all are.
func leftOut(jobs int, skipped map[string]int) string {
	lines, why := world.LeftOut(skipped)
	if lines == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d lines of the trace are left out: %s", lines, jobs+lines, why)
}

// columns of a table; the first is what its rows are about, and those with a + are shown with -o wide only.
func columns(names ...string) []output.Column {
	out := make([]output.Column, len(names))
	for i, name := range names {
		name, wide := strings.CutSuffix(name, "+")
		out[i] = output.Column{Name: name, Cut: i == 0, Wide: wide}
	}
	return out
}

func jobs(r *world.Report) string {
	if r.Ended == r.Jobs {
		return fmt.Sprint(r.Jobs)
	}
	return fmt.Sprintf("%d of %d", r.Ended, r.Jobs)
}

func printQueues(w output.Writer, groups []world.Group, wide bool) {
	table := output.Table{Indent: "  ", Columns: columns("QUEUE", "JOBS", "JCT MEAN", "P50+", "P99+", "P99.9+", "DELAY MEAN", "P50+", "P99", "P99.9", "SLOWDOWN", "QUOTA", "USED", "BORROWED", "BELOW", "SHARE OF USE", "OF QUOTA")}
	fair := slices.ContainsFunc(groups, func(g world.Group) bool { return g.Fair != nil })
	if fair {
		table.Columns = append(table.Columns, output.Column{Name: "WEIGHT"}, output.Column{Name: "WEIGHTED SHARE"}, output.Column{Name: "MOST"})
	}
	alone := len(groups) > 0 && groups[0].Alone != nil
	if alone {
		table.Columns = append(table.Columns, output.Column{Name: "OF ALONE"}, output.Column{Name: "LATER"}, output.Column{Name: "NEVER ALONE"})
	}
	failed := slices.ContainsFunc(groups, func(g world.Group) bool { return g.Failed > 0 })
	if failed {
		table.Columns = append(table.Columns, output.Column{Name: "FAILED"})
	}
	held := slices.ContainsFunc(groups, func(g world.Group) bool { return g.ForBudget.Jobs+g.ForReservation.Jobs > 0 })
	if held {
		table.Columns = append(table.Columns, output.Column{Name: "FOR BUDGETS"}, output.Column{Name: "FOR RESERVATIONS"})
	}
	paid := slices.ContainsFunc(groups, func(g world.Group) bool { return g.Money > 0 })
	if paid {
		table.Columns = append(table.Columns, output.Column{Name: "MONEY"})
	}
	for _, g := range groups {
		cells := []any{
			g.Name, g.Jobs, hours(g.JCT.Mean), hours(g.JCT.P50), hours(g.JCT.P99), hours(g.JCT.P999), hours(g.Delay.Mean), hours(g.Delay.P50), hours(g.Delay.P99), hours(g.Delay.P999),
			fmt.Sprintf("%.1f", g.Slowdown.Mean), g.Quota, percent(g.Used),
			fmt.Sprintf("%.0f card-h", g.Borrowed), fmt.Sprintf("%.0f card-h", g.Below), percent(g.Share), percent(g.Weight),
		}
		if fair {
			cells = append(cells, fairShare(g.Fair)...)
		}
		if alone {
			cells = append(cells, fmt.Sprintf("%.2f", g.Alone.Ratio.Mean), percent(g.Alone.Later), g.Alone.Never)
		}
		if failed {
			cells = append(cells, g.Failed)
		}
		if held {
			cells = append(cells, waited(g.ForBudget), waited(g.ForReservation))
		}
		if paid {
			cells = append(cells, fmt.Sprintf("%.0f", g.Money))
		}
		table.Add(cells...)
	}
	table.Print(w, wide)
}

// fairShare of a queue, in cells: its weight, and its weighted share over time and at most. A queue without a cohort has none.
func fairShare(f *world.FairShare) []any {
	if f == nil {
		return []any{"-", "-", "-"}
	}
	return []any{fmt.Sprintf("%g", f.Weight), fmt.Sprintf("%.0f", f.Mean), fmt.Sprintf("%.0f", f.Most)}
}

func printSizes(w output.Writer, groups []world.Group) {
	table := output.Table{Indent: "  ", Columns: columns("SIZE", "JOBS", "JCT MEAN", "P50", "P99", "P99.9", "DELAY MEAN", "P50", "P99", "P99.9")}
	for _, g := range groups {
		table.Add(strings.TrimSpace(g.Name), g.Jobs, hours(g.JCT.Mean), hours(g.JCT.P50), hours(g.JCT.P99), hours(g.JCT.P999), hours(g.Delay.Mean), hours(g.Delay.P50), hours(g.Delay.P99), hours(g.Delay.P999))
	}
	table.Print(w, true)
}

func hours(seconds float64) string { return fmt.Sprintf("%.2f h", seconds/3600) }

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
