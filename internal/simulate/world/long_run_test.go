package world

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var weekCards = flag.Int("week-cards", 96, "cards of the cluster that lives through a week with every policy on")

// A week of a busy cluster with every policy on, and nodes that are lost: invariants hold at each step, and every job ends.
// With -week-cards 3000 it is a large one. A change that is to change no decision leaves the digest as it is.
func TestWeekWithEveryPolicy(t *testing.T) {
	nodes := *weekCards / 8
	shares := []Share{{"a", nodes / 2, 8}, {"b", nodes / 4, 8}, {"c", nodes - nodes/2 - nodes/4, 8}}
	for _, sharing := range []string{"fifo", "drf", "maxmin"} {
		t.Run(sharing, func(t *testing.T) {
			t.Parallel()
			tr := week(nodes * 8)
			c := set(t, Pool(shares), everyPolicy(nodes*8)+",cohort/all.fairSharing="+sharing)
			began, decisions := time.Now(), fnv.New64a()
			w, r := simulate(t, tr, c, Settings{
				Watch:   func(m Moment) { fmt.Fprintln(decisions, m.At, m.Job, m.What, m.Nodes, m.By) },
				Restart: Restart{OneNode: 40, ManyNodes: 60, Checkpoint: 1800},
				Faults:  Faults{Every: int64(86400 * 12 / nodes), Down: 3600, Seed: 3},
			})
			t.Logf("%d jobs in %s, %.0f %% of cards used, %d preemptions, %d of them moves, %d nodes lost, mean delay %.0f s, %d jobs waited for budgets and %d for reservations, %d were drained",
				r.Ended, time.Since(began).Round(time.Second), 100*r.CardsUsed, r.Preemptions, r.Moves, r.Faults, r.Delay.Mean, r.ForBudget.Jobs, r.ForReservation.Jobs, r.Drained)
			t.Logf("digest of all that happened: %x", decisions.Sum64())
			t.Logf("%d of %d plans of moves let their job in at once, and %d of %d that moved started again at once; the others wait: %v", w.moves.gotIn, w.moves.plans, w.moves.again, w.moves.moved, w.moves.waits)
			// Evicted jobs are gone at once here, so nothing comes between a plan and what it promises; of the jobs that others move
			// for, one that goes before may take the place.
			if 100*w.moves.gotIn < 95*w.moves.plans || 100*w.moves.again < 99*w.moves.moved {
				t.Error("too many moved in vain")
			}
			if r.Ended != len(tr.Jobs) || r.Faults == 0 || r.Preemptions == r.Moves {
				t.Errorf("%d of %d jobs ended, %d nodes lost, %d preemptions", r.Ended, len(tr.Jobs), r.Faults, r.Preemptions)
			}
			if r.Moves == 0 || r.Drained == 0 || r.ForBudget.Jobs == 0 || r.ForReservation.Jobs == 0 || len(r.Reservations) < 8 {
				t.Errorf("a policy did nothing: %d moves, %d drained, waited for budgets %+v and reservations %+v, %d reservations", r.Moves, r.Drained, r.ForBudget, r.ForReservation, len(r.Reservations))
			}
			for _, g := range r.ByQueue {
				if follows := g.Name != "a"; (g.QuotaChanges > 0) != follows {
					t.Errorf("the quota of %s changed %d times", g.Name, g.QuotaChanges)
				}
			}
			for _, reserved := range r.Reservations {
				if reserved.Lacking > int64(nodes/4+8) { // no more than quotas fell: nobody knew that they would
					t.Errorf("lacking: %+v", reserved)
				}
			}
		})
	}
}

// everyPolicy for so many cards: orders and times of preemption, backfill with run times that are learned, budgets by the day
// and the week, one of which drains, reservations for a date and for every noon, jobs that move, a quota that follows nodes
// and one that is larger at night.
func everyPolicy(cards int) string {
	return "queue/*.withinClusterQueue=LowerPriority,queue/a.order=LeastAttainedService,queue/b.backfill=EASY,queue/b.borrowingLimit=16,queue/c.weight=2," +
		"policy.preemptAfter=5m,policy.preemptionCooldown=10m,policy.noPreemptionRings=on," +
		fmt.Sprintf("cohort/all.budget=%d/Day,queue/a.budget=%d/Week/Drain,queue/c.budget=%d/Day/Drain,", cards*23, cards*41, cards*6) +
		fmt.Sprintf("queue/b.reservation=%d@50h+6h,queue/a.reservation=%d@0 12 * * *+1h,", cards/4, cards/2) +
		fmt.Sprintf("queue/c.shareOfNodes=25/10m,queue/b.window=%d@0 20 * * *+10h,", cards/4+8) +
		"queue/b.quantile=80,queue/a.runTime=1h,queue/a.quantile=90," +
		"queue/*.defragmentation=3/2h"
}

// week of jobs that ask for nine tenths of the cards, of two priorities; half of them declare a limit.
func week(cards int) *Trace {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := []int32{1, 2, 1, 4, 8, 1, 16, 2, 24, 1, 3}
	tr := &Trace{Name: "week"}
	for asked, most := 0.0, 0.9*float64(cards)*7*86400; asked < most; {
		j := Job{
			ID: fmt.Sprintf("j%06d", len(tr.Jobs)), Queue: string(rune('a' + r.IntN(3))), Submit: r.Int64N(7 * 86400),
			Duration: 30 + int64(math.Min(math.Exp(8+1.5*r.NormFloat64()), 86400)), Cards: sizes[r.IntN(len(sizes))], Priority: r.Int64N(2),
		}
		if r.IntN(2) == 0 {
			j.Limit = 2 * j.Duration
		}
		asked += float64(j.Duration) * float64(j.Cards)
		tr.Jobs = append(tr.Jobs, j)
	}
	tr.sort()
	return tr
}
