package faults

import (
	"slices"
	"strings"
	"testing"
)

// kindOf a broken invariant: what is before the first colon that follows when it was noticed.
func kindOf(broken string) string {
	for _, when := range []string{"at rest: ", "at rest after a restart: ", "in the end: "} {
		broken = strings.TrimPrefix(broken, when)
	}
	kind, _, _ := strings.Cut(broken, ":")
	return kind
}

// Shrink a schedule that breaks an invariant: actions are left out, in ever smaller pieces, as long as one
// of the same kind is broken without them.
func Shrink(t *testing.T, seed uint64, failing Result) Result {
	best := failing
	for size := len(best.Schedule) / 2; size > 0; {
		removed := false
		for from := 0; from < len(best.Schedule); {
			shorter := slices.Concat(best.Schedule[:from], best.Schedule[min(from+size, len(best.Schedule)):])
			if r := Replay(t, seed, shorter); r.Broken != "" && kindOf(r.Broken) == kindOf(failing.Broken) {
				best, removed = r, true
				continue
			}
			from += size
		}
		if !removed || size > 1 {
			size /= 2
		}
	}
	return best
}
