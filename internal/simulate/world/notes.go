package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// notes are what is odd about the trace and the cluster, and no reason not to simulate them.
func (w *World) notes() []string {
	var notes []string
	for _, note := range slices.Concat(w.trace.Notes(), w.cluster.notes, w.unusable()) {
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// NotesOf a job are those of all, and whether others have its name.
func (w *World) NotesOf(job int) []string {
	notes, j := w.notes(), &w.trace.Jobs[job]
	same := 0
	for i := range w.trace.Jobs {
		if w.trace.Jobs[i].ID == j.ID {
			same++
		}
	}
	if same > 1 {
		notes = append(notes, fmt.Sprintf("%d jobs are named %s; this is the first, submitted at %s", same, j.ID, time.Duration(j.Submit)*time.Second))
	}
	return notes
}

// Note adds what was taken to be so that nobody said.
func (c *Cluster) Note(text string) { c.notes = append(c.notes, text) }

// unusable says how many cards nobody can get: those on nodes that match no flavor of a queue, and those beyond all quota of
// their flavors.
func (w *World) unusable() []string {
	quotas := w.quotas()
	flavors := make([]int64, len(w.cluster.Flavors)) // quota of each, that no nodes were counted against
	for i := range flavors {
		flavors[i] = quotas[w.cluster.Flavors[i].Name]
	}
	kinds, order := map[string]*usable{}, []string(nil)
	var elsewhere int64
	for i := range w.cluster.Nodes {
		n := &w.cluster.Nodes[i]
		var of []int
		for j := range w.cluster.Flavors {
			f := &w.cluster.Flavors[j]
			if _, has := quotas[f.Name]; has && n.takes(f) {
				of = append(of, j)
			}
		}
		if len(of) == 0 {
			elsewhere += int64(n.Cards)
			continue
		}
		key := fmt.Sprint(of)
		if kinds[key] == nil {
			kinds[key] = &usable{flavors: of}
			order = append(order, key)
		}
		kinds[key].cards += int64(n.Cards)
	}
	slices.SortStableFunc(order, func(a, b string) int { return len(kinds[a].flavors) - len(kinds[b].flavors) })
	var notes []string
	var without int64
	var names []string
	for _, key := range order {
		left := kinds[key].cards
		for _, j := range kinds[key].flavors {
			part := min(left, flavors[j])
			left -= part
			flavors[j] -= part
		}
		if without += left; left > 0 {
			for _, j := range kinds[key].flavors {
				names = append(names, w.cluster.Flavors[j].Name)
			}
		}
	}
	if elsewhere > 0 {
		notes = append(notes, fmt.Sprintf("%s no flavor that has quota for cards, and nobody gets any of them; +4x8:MODEL@FLAVOR adds nodes of a flavor", number(elsewhere, "card matches", "cards match")))
	}
	if without > 0 {
		slices.Sort(names)
		notes = append(notes, fmt.Sprintf("%s no quota in flavor %s, and nobody gets any of them; queue/NAME.quota=N gives more", number(without, "card has", "cards have"), strings.Join(slices.Compact(names), ", ")))
	}
	return notes
}

// usable is nodes that match the same flavors.
type usable struct {
	flavors []int
	cards   int64
}

// quotas of cards by flavor, of all queues and cohorts together; where a quota follows nodes or the hour, the most it was.
func (w *World) quotas() map[string]int64 {
	sums := map[string]int64{}
	var most map[quotaOf]int64
	if w.policies != nil {
		most = w.policies.quotas.mostSoFar()
	}
	for i := range w.cluster.Queues {
		q := &w.cluster.Queues[i]
		addQuotas(sums, q.Groups, w.cluster.Cards, func(flavor string, nominal int64) int64 {
			return max(nominal, most[quotaOf{q.Name, flavor, w.cluster.Cards}])
		})
	}
	for i := range w.cluster.Cohorts {
		addQuotas(sums, w.cluster.Cohorts[i].Groups, w.cluster.Cards, func(_ string, nominal int64) int64 { return nominal })
	}
	return sums
}

func number(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

// addQuotas of cards to sums by flavor.
func addQuotas(sums map[string]int64, groups []admission.ResourceGroup, cards string, of func(flavor string, nominal int64) int64) {
	for _, g := range groups {
		for _, f := range g.Flavors {
			if quota, has := f.Quotas[cards]; has {
				sums[f.Flavor] += of(f.Flavor, quota.Nominal)
			}
		}
	}
}
