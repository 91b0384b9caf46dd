package faults

import (
	"slices"
	"strings"
	"testing"
)

// Two processes that both think they lead decide on the same unused quota: the old one, which was cut off from its
// lease, about a job that both know, the new one about a more important one that the old one has not heard of.
func TestTwoLeadersKeepToQuota(t *testing.T) {
	seed := uint64(1)
	for s := newSetting(seed); !s.TwoLeaders || s.Cards || s.Queues[0].Cohort != ""; s = newSetting(seed) {
		seed++
	}
	nominal := newSetting(seed).Queues[0].Nominal
	const old = roleQueue + oldSuffix
	// letting says what may happen by itself until the next step is taken.
	letting := func(Action) bool { return true }
	steps := []func() Action{
		func() Action { return action("hold", "q0", "Hold") },
		func() Action { return action("submit", "j1", "q0", 0, 1, nominal) },
		func() Action {
			letting = func(a Action) bool { return !strings.HasPrefix(a.arg(0), old) }
			return action("overlap", roleQueue, "at-once")
		},
		func() Action { return action("submit", "j2", "q0", 2, 1, nominal) },
		func() Action {
			letting = func(a Action) bool { // each hears of the queue, and decides
				return a.Op == "deliver" && a.arg(1) == "ClusterQueue"
			}
			return action("hold", "q0", "None")
		},
		func() Action {
			letting = func(a Action) bool { return a.Op == "answer" }
			return action("sleep", 10)
		},
	}
	result := run(t, seed, func(w *World) (Action, bool) {
		for _, a := range w.progress() {
			if letting(a) {
				return a, true
			}
		}
		if len(steps) == 0 {
			return Action{}, false
		}
		next := steps[0]
		steps = steps[1:]
		return next(), true
	})
	if result.Broken != "" {
		t.Error(result.Broken)
	}
	answered := func(process, job string) bool {
		return slices.ContainsFunc(result.Schedule, func(a Action) bool {
			return a.Op == "answer" && strings.HasPrefix(a.arg(0), process+":patch-status:Workload:"+namespace+"/job-"+job+"-")
		})
	}
	if !answered(roleQueue, "j2") {
		t.Errorf("the new leader decided nothing:\n%s", FormatSchedule(result.Schedule))
	}
	if answered(old, "j1") {
		t.Errorf("the old leader's decision was written:\n%s", FormatSchedule(result.Schedule))
	}
}
