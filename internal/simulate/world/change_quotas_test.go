package world

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// twoFlavors is a queue a with cards of two flavors and CPU in one, in a cohort that has quota of its own.
func twoFlavors(t *testing.T) *Cluster {
	t.Helper()
	c := Pool([]Share{{"a", 2, 8}, {"b", 2, 8}})
	c.Flavors = []admission.Flavor{{Name: "h100.new"}, {Name: "a100"}}
	c.Queues[0].Groups = []admission.ResourceGroup{{Resources: []string{"cpu", c.Cards}, Flavors: []admission.FlavorQuotas{
		{Flavor: "h100.new", Quotas: map[string]admission.Quota{c.Cards: {Nominal: 8}, "cpu": {Nominal: 1000}}},
		{Flavor: "a100", Quotas: map[string]admission.Quota{c.Cards: {Nominal: 4}}},
	}}}
	return c
}

func TestSetQuotas(t *testing.T) {
	for set, want := range map[string]string{
		"queue/a.quota.gpu=64":                                 "a: h100.new/cpu 1000, h100.new/nvidia.com/gpu 64, a100/nvidia.com/gpu 4",
		"queue/a.quota=64":                                     "a: h100.new/cpu 1000, h100.new/nvidia.com/gpu 64, a100/nvidia.com/gpu 4",
		"queue/a.quota.a100=6":                                 "a: h100.new/cpu 1000, h100.new/nvidia.com/gpu 8, a100/nvidia.com/gpu 6",
		"queue/a.quota.a100.nvidia.com/gpu=6":                  "a: h100.new/cpu 1000, h100.new/nvidia.com/gpu 8, a100/nvidia.com/gpu 6",
		"queue/a.Quota.h100.new.cpu=2.5":                       "a: h100.new/cpu 2500, h100.new/nvidia.com/gpu 8, a100/nvidia.com/gpu 4",
		"queue/a.lendingLimit=2,queue/a.borrowingLimit.a100=1": "a: h100.new/cpu 1000, h100.new/nvidia.com/gpu 8 lends 2, a100/nvidia.com/gpu 4 borrows 1",
		"cohort/all.quota=5":                                   "all: h100.new/nvidia.com/gpu 5",
		"cohort/all.quota.a100=5,cohort/all.lendingLimit=1":    "all: a100/nvidia.com/gpu 5 lends 1",
	} {
		c, err := twoFlavors(t).Set(set)
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		name, groups := "a", c.Queues[0].Groups
		if strings.HasPrefix(set, "cohort") {
			name, groups = "all", c.Cohorts[0].Groups
		}
		if got := name + ": " + quotasOf(groups); got != want {
			t.Errorf("%s: %s, want %s", set, got, want)
		}
	}
	for set, want := range map[string]string{
		"queue/a.quota.l40=4":              "queue a has no quota l40; it has h100.new.cpu, h100.new.nvidia.com/gpu, a100.nvidia.com/gpu",
		"queue/a.quota.h100.new.cpu=much":  `"much" is not an amount of cpu`,
		"cohort/all.quota.l40=4":           "cohort all has no quota l40",
		"cohort/none.quota=4":              "there is no cohort none",
		"cohort/none.order=Age":            "there is no cohort none",
		"queue/a.preemption.delay=soon":    "soon",
		"queue/a.preemption.delay=9999h":   "9999h",
		"queue/a.preemption.everything=1h": "the settings of queue are backfill, borrowinglimit, borrowwithincohort, budget, cohort, defragmentation, flavorfungibility.preference, flavorfungibility.whencanborrow, flavorfungibility.whencanpreempt, headroom, lendinglimit, order, preemption.cooldown, preemption.delay",
		"faults.every=often":               `"often": want a time`,
		"faults.spot=often":                "want EVERY[/DOWN][@NODES]",
		"faults.stockOut=2h-1h":            "want FROM-TO[@NODES]",
		"faults/x.every=1h":                "there is no faults x",
		"-5x8":                             "there are not so many nodes of that kind",
		"-1x8:H100":                        "there are not so many nodes of that kind",
	} {
		if _, err := twoFlavors(t).Set(set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}

func quotasOf(groups []admission.ResourceGroup) string {
	var out []string
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, name := range sortedKeys(f.Quotas) {
				q := f.Quotas[name]
				text := fmt.Sprintf("%s/%s %d", f.Flavor, name, q.Nominal)
				if q.BorrowingLimit != nil {
					text += fmt.Sprintf(" borrows %d", *q.BorrowingLimit)
				}
				if q.LendingLimit != nil {
					text += fmt.Sprintf(" lends %d", *q.LendingLimit)
				}
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, ", ")
}

// The timing of preemption is set as a QueuePolicy does: what is not said is as without.
func TestSetTiming(t *testing.T) {
	c := twoFlavors(t)
	c.Options.PreemptionDelay = time.Second
	got, err := c.Set("cohort/all.preemption.delay=10m,queue/a.preemption.minRuntime=1h,queue/a.preemption.minRuntime.reclaim=5m,queue/b.preemption.cooldown=2m,cohort/*.order=LeastAttainedService")
	if err != nil {
		t.Fatal(err)
	}
	a, b := admission.Timing{Delay: 10 * time.Minute, MinRuntime: admission.MinRuntime{WithinQueue: time.Hour, Reclaim: 5 * time.Minute, Borrowed: time.Hour}}, got.Options.Timing()
	b.Delay, b.Cooldown = 10*time.Minute, 2*time.Minute
	if *got.Queues[0].Timing != a || *got.Queues[1].Timing != b || got.Queues[0].Order != admission.OrderLeastAttainedService || c.Queues[0].Timing != nil {
		t.Errorf("%+v, %+v", *got.Queues[0].Timing, *got.Queues[1].Timing)
	}
	// A borrower is reclaimed from after the delay.
	jobs := "x,,a,0,1000,16,,,\ny,,b,10,100,8,,,\n"
	pool, err := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}}).Set("cohort/all.preemption.delay=2m")
	if err != nil {
		t.Fatal(err)
	}
	if w, _ := simulate(t, trace(t, jobs), pool, Settings{}); starts(w) != "x 0-1100, y 130-230" {
		t.Error(starts(w))
	}
}

// Faults are of a variant, beside those of all; nodes that are gone are not there, and new ones have names of their own.
func TestSetFaultsAndFewerNodes(t *testing.T) {
	c, err := ParseNodes("2x8:H100,1x8:A100", "q")
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := c.Set("-1x8:H100,+1x8:H100,+1x8:L40")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range fewer.Nodes {
		names = append(names, n.Name+" "+n.Model)
	}
	if got := strings.Join(names, ", "); got != "node-00000 H100, node-00002 A100, node-00003 H100, node-00004 L40" || len(c.Nodes) != 3 {
		t.Errorf("%s; %d nodes before", got, len(c.Nodes))
	}
	var lines strings.Builder
	for i := range 30 {
		fmt.Fprintf(&lines, "j%02d,,q,%d,300,8,,,\n", i, 10*i)
	}
	always := Settings{Faults: Faults{Seed: 1, Down: 60, StockOuts: []StockOut{{Nodes: "H100", To: 10}}}}
	for set, want := range map[string]string{
		"":                                 "false false",
		"faults.every=5m":                  "true false",
		"faults.spot=10m/1m@A100":          "false true",
		"faults.every=5m,faults.every=off": "false false",
		"faults.spot=10m,faults.spot=off":  "false false",
		"faults.stockOut=1h-2h,faults.every=5m,faults.down=30s": "true false",
	} {
		variant, err := c.Set(set)
		if err != nil {
			t.Fatal(err)
		}
		w, r := simulate(t, trace(t, lines.String()), variant, always)
		if got := fmt.Sprint(r.Faults > 0, r.SpotTaken > 0); got != want || r.Ended != 30 {
			t.Errorf("%s: %s, want %s", set, got, want)
		}
		if outs := w.settings.Faults.StockOuts; strings.Contains(set, "stockOut") != (len(outs) == 2) {
			t.Errorf("%s: %v", set, outs)
		}
	}
}
