package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// The fields of a policy, by their paths in its spec.
const (
	Delay        = "preemption.delay"
	MinWithin    = "preemption.minRuntime.withinClusterQueue"
	MinReclaim   = "preemption.minRuntime.reclaim"
	MinBorrowed  = "preemption.minRuntime.borrowed"
	Cooldown     = "preemption.cooldown"
	NeverPreempt = "preemption.neverPreempt"
	Capacity     = "capacity"
	Order        = "order"
	Backfill     = "backfill.strategy"
	RunTime      = "backfill.runTime"
	Quantile     = "backfill.quantile"
	ShareOfNodes = "quota.shareOfNodes"
	Headroom     = "quota.headroom"
	Grace        = "quota.grace"
	Windows      = "quota.windows"
	Namespaces   = "dependencies.namespaces"
	Budgets      = "budgets"
	Reservations = "reservations"
	Moves        = "defragmentation.moves"
	LostWork     = "defragmentation.lostWork"
	GrowAfter    = "elasticJobs.growAfter"
)

// longest is the longest time a policy may name: a longer one is a slip of the pen.
const longest = 720 * time.Hour

// field is one value that a policy may set.
type field struct {
	path string
	// text is the value that a spec sets, "" if it sets none.
	text func(*v1alpha1.QueuePolicySpec) string
	// check says what is wrong with a value.
	check func(text string) error
	// whole says it of a field whose text does not tell all, in place of check.
	whole func(*v1alpha1.QueuePolicySpec) error
	// from says at which targets the field means something; anywhere if nil.
	from func(kind v1alpha1.TargetKind, root bool) bool
	// where says that in words.
	where string
	// sums: it is about all below its target together, so a nearer one does not take its place.
	sums bool
}

// problem says what is wrong with what a spec sets the field to.
func (f *field) problem(s *v1alpha1.QueuePolicySpec) error {
	if f.whole != nil {
		return f.whole(s)
	}
	return f.check(f.text(s))
}

// fields in the order in which they are shown.
var fields = []field{
	duration(Delay, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return preemption(s).Delay }),
	duration(MinWithin, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return minRuntime(s).WithinClusterQueue }),
	duration(MinReclaim, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return minRuntime(s).Reclaim }),
	duration(MinBorrowed, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return minRuntime(s).Borrowed }),
	duration(Cooldown, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return preemption(s).Cooldown }),
	{
		path:  NeverPreempt,
		text:  func(s *v1alpha1.QueuePolicySpec) string { return string(preemption(s).NeverPreempt) },
		check: oneOf(v1alpha1.NeverPreemptHonor, v1alpha1.NeverPreemptIgnore),
	},
	{
		path:  Capacity,
		text:  func(s *v1alpha1.QueuePolicySpec) string { return string(s.Capacity) },
		check: oneOf(v1alpha1.CapacityFIFO, v1alpha1.CapacityDRF, v1alpha1.CapacityMaxMin),
		from:  func(_ v1alpha1.TargetKind, root bool) bool { return root },
		where: "at the root Cohort of a tree",
	},
	aboveLocal(field{
		path:  Order,
		text:  func(s *v1alpha1.QueuePolicySpec) string { return string(s.Order) },
		check: oneOf(v1alpha1.OrderAge, v1alpha1.OrderLeastAttainedService),
	}),
	aboveLocal(field{
		path:  Backfill,
		text:  func(s *v1alpha1.QueuePolicySpec) string { return string(backfill(s).Strategy) },
		check: oneOf(v1alpha1.BackfillEASY, v1alpha1.BackfillNone),
	}),
	duration(RunTime, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return backfill(s).RunTime }),
	percent(Quantile, 1, 100, func(s *v1alpha1.QueuePolicySpec) *int32 { return backfill(s).Quantile }),
	aboveLocal(percent(ShareOfNodes, 1, 100, func(s *v1alpha1.QueuePolicySpec) *int32 { return quota(s).ShareOfNodes })),
	aboveLocal(percent(Headroom, 0, 99, func(s *v1alpha1.QueuePolicySpec) *int32 { return quota(s).Headroom })),
	aboveLocal(duration(Grace, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return quota(s).Grace })),
	aboveLocal(field{path: Windows, text: windowsText, whole: checkWindows}),
	aboveLocal(percent(Moves, 1, 16, func(s *v1alpha1.QueuePolicySpec) *int32 { return defragmentation(s).Moves })),
	aboveLocal(duration(LostWork, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return defragmentation(s).LostWork })),
	duration(GrowAfter, func(s *v1alpha1.QueuePolicySpec) *v1alpha1.Duration { return elasticJobs(s).GrowAfter }),
	dependencies,
	{path: Budgets, text: budgetsText, whole: checkBudgets, sums: true},
	{
		path: Reservations, text: reservationsText, whole: checkReservations, sums: true,
		from: func(kind v1alpha1.TargetKind, _ bool) bool { return kind != v1alpha1.KindCohort }, where: "at a ClusterQueue or a LocalQueue",
	},
}

// notLocal is of fields that are about a whole ClusterQueue.
func notLocal(kind v1alpha1.TargetKind, _ bool) bool { return kind != v1alpha1.KindLocalQueue }

// aboveLocal is a field that is about a whole ClusterQueue.
func aboveLocal(f field) field {
	f.from, f.where = notLocal, "at a Cohort or a ClusterQueue"
	return f
}

// percent is a field that is a whole number, most often of percent.
func percent(path string, least, most int, get func(*v1alpha1.QueuePolicySpec) *int32) field {
	return field{
		path: path,
		text: func(s *v1alpha1.QueuePolicySpec) string {
			if n := get(s); n != nil {
				return strconv.Itoa(int(*n))
			}
			return ""
		},
		check: func(text string) error {
			if n, err := strconv.Atoi(text); err != nil || n < least || n > most {
				return fmt.Errorf("%s must be at least %d and at most %d", text, least, most)
			}
			return nil
		},
	}
}

func defragmentation(s *v1alpha1.QueuePolicySpec) *v1alpha1.Defragmentation {
	if s.Defragmentation == nil {
		return &v1alpha1.Defragmentation{}
	}
	return s.Defragmentation
}

func elasticJobs(s *v1alpha1.QueuePolicySpec) *v1alpha1.ElasticJobs {
	if s.ElasticJobs == nil {
		return &v1alpha1.ElasticJobs{}
	}
	return s.ElasticJobs
}

func quota(s *v1alpha1.QueuePolicySpec) *v1alpha1.Quota {
	if s.Quota == nil {
		return &v1alpha1.Quota{}
	}
	return s.Quota
}

func backfill(s *v1alpha1.QueuePolicySpec) *v1alpha1.Backfill {
	if s.Backfill == nil {
		return &v1alpha1.Backfill{}
	}
	return s.Backfill
}

func preemption(s *v1alpha1.QueuePolicySpec) *v1alpha1.Preemption {
	if s.Preemption == nil {
		return &v1alpha1.Preemption{}
	}
	return s.Preemption
}

func minRuntime(s *v1alpha1.QueuePolicySpec) *v1alpha1.MinRuntime {
	if s.Preemption == nil || s.Preemption.MinRuntime == nil {
		return &v1alpha1.MinRuntime{}
	}
	return s.Preemption.MinRuntime
}

// oneOf is the check of a field that is one of some words.
func oneOf[T ~string](words ...T) func(string) error {
	return func(text string) error {
		if slices.Contains(words, T(text)) {
			return nil
		}
		names := make([]string, len(words))
		for i, word := range words {
			names[i] = string(word)
		}
		return fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
	}
}

// duration is a field that is a time span.
func duration(path string, get func(*v1alpha1.QueuePolicySpec) *v1alpha1.Duration) field {
	return field{
		path: path,
		text: func(s *v1alpha1.QueuePolicySpec) string {
			d := get(s)
			if d == nil {
				return ""
			}
			if *d == "" {
				return `""` // set, and wrong
			}
			return string(*d)
		},
		check: func(text string) error {
			_, err := parse(text)
			return err
		},
	}
}

func parse(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no time span such as 90s, 10m, 36h", text)
	case d < 0 || d > longest:
		return 0, fmt.Errorf("%s must be at least 0s and at most 720h", text)
	}
	return d, nil
}
