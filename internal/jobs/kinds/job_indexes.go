package kinds

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// interval is a range of a Job's indexes.
type interval struct{ first, last int64 }

// readIndexes reads a list of indexes below a number.
func readIndexes(list string, below int64) (all []interval) {
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
	return all
}

// countIndexes is how many indexes below a number are in any of the lists, which are written as a Job's
// status does: "1,3-5,7". Others are ignored: a job that became smaller lists indexes it no longer has.
func countIndexes(below int64, lists ...string) int64 {
	var all []interval
	for _, list := range lists {
		all = append(all, readIndexes(list, below)...)
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

// EndedIndexes are those of some indexes of an indexed Job that have ended, and how.
func (j Object) EndedIndexes(of []int) (ended workload.EndedIndexes) {
	status := func(field string) []interval {
		text, _, _ := unstructured.NestedString(j.Object, "status", field)
		return readIndexes(text, math.MaxInt32)
	}
	completed, failed := status("completedIndexes"), status("failedIndexes")
	in := func(list []interval, n int64) bool {
		return slices.ContainsFunc(list, func(i interval) bool { return i.first <= n && n <= i.last })
	}
	for _, n := range of {
		switch {
		case in(completed, int64(n)):
			ended.OK = append(ended.OK, n)
		case in(failed, int64(n)):
			ended.NotOK = append(ended.NotOK, n)
		}
	}
	return ended
}

// HasIndexes: the job is one of which each index ends by itself.
func (j Object) HasIndexes() bool {
	mode, _, _ := unstructured.NestedString(j.Object, "spec", "completionMode")
	return j.kind.HasIndexedJobs() && mode == string(batchv1.IndexedCompletion)
}

// HasIndexedJobs: of jobs of the kind each index may end by itself.
func (k *Kind) HasIndexedJobs() bool { return k.GVK == batchJob }
