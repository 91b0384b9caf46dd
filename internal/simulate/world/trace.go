package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Job is one gang of a trace: all its cards start together. Times are seconds from the start of the trace.
type Job struct {
	ID, User, Queue string
	Submit          int64
	Duration        int64 // run time on cards of its own
	Limit           int64 // declared maximum run time; 0: none
	Cards           int32
	Outcome         Outcome
	CPU             int64 // thousandths, of the whole job
	Memory          int64 // bytes, of the whole job
	Priority        int64
	Local           *admission.Key // the LocalQueue, if it is one of the cluster's
	Found           *Found         // it is there already when the simulation begins
}

// Trace is jobs in the order they were submitted.
type Trace struct {
	Name string
	Jobs []Job
	// Skipped is how many lines are left out, by why: of those that are no job's, or that cannot be simulated.
	Skipped map[string]int
	// Duplicates are jobs with a name that an earlier line has.
	Duplicates int
	duplicate  string // the first of them, in words
	// unknown is how often words say how jobs ended that nobody knows, by column and word.
	unknown map[string]int
	// odd are notes on its columns and dates.
	odd []string
	// PartsApart are parts of jobs that are in another queue than their first part.
	PartsApart int
	// Start is when second 0 is, of a trace with dates.
	Start time.Time
}

// LeftOut says how many lines of a trace are left out and why, the most frequent reason first; "" for none.
func LeftOut(skipped map[string]int) (lines int, why string) {
	reasons := slices.SortedFunc(maps.Keys(skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(skipped[b], skipped[a]), strings.Compare(a, b))
	})
	for i, reason := range reasons {
		lines += skipped[reason]
		reasons[i] = fmt.Sprintf("%s (%d)", reason, skipped[reason])
	}
	return lines, strings.Join(reasons, ", ")
}

// Notes are what is odd about a trace, and no reason not to simulate it.
func (t *Trace) Notes() []string {
	var notes []string
	switch t.Duplicates {
	case 0:
	case 1:
		notes = append(notes, t.duplicate+"; each is simulated as a job of its own")
	default:
		notes = append(notes, fmt.Sprintf("%s, and %d more are there twice; each is simulated as a job of its own", t.duplicate, t.Duplicates-1))
	}
	if t.PartsApart > 0 {
		notes = append(notes, fmt.Sprintf("%s of heterogeneous jobs in another queue than the first part; each is simulated as a job of its own", number(int64(t.PartsApart), "line is a part", "lines are parts")))
	}
	for _, words := range sortedKeys(t.unknown) {
		notes = append(notes, fmt.Sprintf("%s %s, which says nothing of how they ended: they are taken to succeed", number(int64(t.unknown[words]), "job has", "jobs have"), words))
	}
	notes = append(notes, t.odd...)
	if len(t.Jobs) > 0 && !slices.ContainsFunc(t.Jobs, func(j Job) bool { return j.Cards > 0 }) {
		notes = append(notes, "no job of the trace asks for cards")
	}
	return notes
}

// sort brings the jobs into the order of submission, those of one second by their names.
func (t *Trace) sort() {
	slices.SortStableFunc(t.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), strings.Compare(a.ID, b.ID))
	})
}

// Queues are the names of queues in the trace, sorted.
func (t *Trace) Queues() []string {
	seen := map[string]bool{}
	var names []string
	for i := range t.Jobs {
		if q := t.Jobs[i].Queue; !seen[q] {
			seen[q] = true
			names = append(names, q)
		}
	}
	slices.Sort(names)
	return names
}

// Only is the part of the trace in some queues.
func (t *Trace) Only(queues ...string) *Trace {
	out := &Trace{Name: t.Name}
	for i := range t.Jobs {
		if slices.Contains(queues, t.Jobs[i].Queue) {
			out.Jobs = append(out.Jobs, t.Jobs[i])
		}
	}
	return out
}

// Map sends jobs of some queues to others, FROM to TO; "*" stands for every queue that is not named and not in the cluster. Jobs of
// queues that go by another name in the cluster belong where that stands. It returns which queues it found no job of.
func (t *Trace) Map(to map[string]string, c *Cluster) (none []string) {
	used := map[string]bool{"*": true}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		name := j.Queue
		there := c.Has(name)
		alias, aliased := c.Aliases[name]
		if aliased = aliased && !there; aliased && to[name] == "" && to[alias] != "" {
			name = alias
		}
		switch target := to[name]; {
		case target != "" && name != "*":
			used[name] = true
			j.Queue, j.Local = target, nil
		case aliased:
			j.Local, j.Queue = c.localQueue(name), alias
		case to["*"] != "" && !there:
			j.Queue = to["*"]
		}
	}
	for _, from := range sortedKeys(to) {
		if !used[from] {
			none = append(none, from)
		}
	}
	return none
}

// ShortestFirst puts jobs that run shortest before others by their priority. It knows what no queue does, and is
// what policies are measured by.
func (t *Trace) ShortestFirst() {
	for i := range t.Jobs {
		t.Jobs[i].Priority = -t.Jobs[i].Duration
	}
}

// AssumeLimits gives jobs that declare no maximum run time one of so many times their run time; 0 gives none.
func (t *Trace) AssumeLimits(factor float64) {
	for i := range t.Jobs {
		if j := &t.Jobs[i]; j.Limit == 0 && factor > 0 {
			j.Limit = int64(min(float64(j.Duration)*factor, mostSeconds)) + 1
		}
	}
}
