package simulate

import (
	"fmt"
	"slices"

	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// someColumn is one that is there if a variant has something to say in it.
type someColumn struct {
	name string
	has  func(*world.Report) bool
	cell func(*world.Report) string
}

// columnsOfSome are those that some variant needs.
func columnsOfSome(variants []world.Variant) []someColumn {
	return slices.DeleteFunc([]someColumn{
		{"MONEY", func(r *world.Report) bool { return r.Money > 0 }, func(r *world.Report) string { return fmt.Sprintf("%.0f", r.Money) }},
		{"FAILED", func(r *world.Report) bool { return r.Failed > 0 }, func(r *world.Report) string { return fmt.Sprint(r.Failed) }},
		{"CANCELLED", func(r *world.Report) bool { return r.Cancelled > 0 }, func(r *world.Report) string { return fmt.Sprint(r.Cancelled) }},
		{"OVER LIMIT", func(r *world.Report) bool { return r.OverLimit > 0 }, func(r *world.Report) string { return fmt.Sprint(r.OverLimit) }},
		{"FOR BUDGETS", func(r *world.Report) bool { return len(r.Budgets) > 0 }, func(r *world.Report) string { return waited(r.ForBudget) }},
		{"DRAINED", func(r *world.Report) bool { return r.Drained > 0 }, func(r *world.Report) string { return fmt.Sprint(r.Drained) }},
		{"FOR RESERVATIONS", func(r *world.Report) bool { return len(r.Reservations) > 0 || r.ForReservation.Jobs > 0 }, func(r *world.Report) string { return waited(r.ForReservation) }},
		{
			"MOVES", func(r *world.Report) bool { return r.Moves > 0 },
			func(r *world.Report) string { return fmt.Sprintf("%d, %.1f card-h lost", r.Moves, r.MovedHours) },
		},
	}, func(c someColumn) bool {
		return !slices.ContainsFunc(variants, func(v world.Variant) bool { return c.has(v.Report) })
	})
}

// waited is how many jobs waited for something, and how long in all.
func waited(s world.Waited) string {
	if s.Jobs == 0 {
		return "-"
	}
	return fmt.Sprintf("%d, %.0f h", s.Jobs, float64(s.Seconds)/3600)
}

// printPolicies prints what was spent of budgets, and whether what was reserved was there.
func printPolicies(w output.Writer, v *world.Variant, wide bool) {
	if len(v.Budgets) > 0 {
		fmt.Fprintf(w, "\n%s, by budget:\n", v.Name)
		table := output.Table{Indent: "  ", Columns: columns("BUDGET", "AMOUNT", "PERIOD", "FROM", "UNTIL", "SPENT", "OF IT")}
		for _, b := range v.Budgets {
			for _, p := range b.Periods {
				table.Add(b.On, fmt.Sprintf("%g %s", b.Amount, b.Unit), b.Period, hours(float64(p.From)), hours(float64(p.Until)), fmt.Sprintf("%.1f", p.Spent), percent(p.Spent/b.Amount))
			}
		}
		table.Print(w, wide)
	}
	if len(v.Reservations) > 0 {
		fmt.Fprintf(w, "\n%s, by reservation:\n", v.Name)
		table := output.Table{Indent: "  ", Columns: columns("RESERVED FOR", "CARDS", "FROM", "UNTIL", "LACKING")}
		for _, r := range v.Reservations {
			table.Add(r.For, r.Cards, hours(float64(r.From)), hours(float64(r.Until)), r.Lacking)
		}
		table.Print(w, wide)
	}
}
