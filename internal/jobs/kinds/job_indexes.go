package kinds

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// countIndexes is how many indexes below a number are in any of the lists, which are written as a Job's
// status does: "1,3-5,7". Others are ignored: a job that became smaller lists indexes it no longer has.
func countIndexes(below int64, lists ...string) int64 {
	type interval struct{ first, last int64 }
	var all []interval
	for _, list := range lists {
		for part := range strings.SplitSeq(list, ",") {
			from, to, isRange := strings.Cut(part, "-")
			first, err := strconv.ParseInt(from, 10, 32)
			last := first
			if isRange && err == nil {
				last, err = strconv.ParseInt(to, 10, 32)
			}
			if last = min(last, below-1); err == nil && first >= 0 && first <= last {
				all = append(all, interval{first, last})
			}
		}
	}
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	count, next := int64(0), int64(0)
	for _, i := range all {
		if i.last >= next {
			count += i.last - max(i.first, next) + 1
			next = i.last + 1
		}
	}
	return count
}
