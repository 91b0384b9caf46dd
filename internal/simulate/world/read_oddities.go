package world

import (
	"fmt"
	"slices"
	"strings"
)

// misspelt names columns that are not read and look like one that would be.
func (l *line) misspelt(header []string, f *format) []string {
	var notes []string
	known := slices.Concat(f.required, f.cards, f.optional)
	for _, name := range header {
		name = columnName(name)
		if slices.Contains(known, name) {
			continue
		}
		for _, want := range f.optional {
			if _, there := l.columns[want]; !there && alike(name, want) {
				notes = append(notes, fmt.Sprintf("column %s is not read: is it %s?", name, want))
				break
			}
		}
	}
	return notes
}

// alike says whether a name may be meant for another one: but for case, signs between and a unit behind it is the same, or it is one
// letter away.
func alike(name, want string) bool {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	a, b := strings.ToLower(plain.Replace(name)), strings.ToLower(plain.Replace(want))
	if len(a) < 3 {
		return false
	}
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) || len(a) > 3 && oneAway(a, b)
}

// oneAway says whether a letter that is more, less, other or changed with the next one makes one word of another.
func oneAway(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		return i == len(a) || a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}

// noteDates notes times that are dates beside others that are not: one of them is wrong, and the simulation takes as long as is
// between them.
func (t *Trace) noteDates() {
	var dated, undated int
	var date, none *Job
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if j.Submit >= firstDate {
			if dated++; date == nil {
				date = j
			}
		} else if undated++; none == nil {
			none = j
		}
	}
	if dated > 0 && undated > 0 {
		t.odd = append(t.odd, fmt.Sprintf("%s submitted at a date, as %s at %d s, and %s before %d s, as %s at %d s: are all times meant to be of one kind?",
			number(int64(dated), "job is", "jobs are"), date.ID, date.Submit, number(int64(undated), "job", "jobs"), int64(firstDate), none.ID, none.Submit))
	}
}
