package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// limitFactor is how many times their run time jobs declare as their limit.
const limitFactor = 1.5

// backfill beside BestEffortFIFO and StrictFIFO: large jobs do not starve, and cards are used as much.
func backfill(traces string) error {
	var errs []error
	for _, replay := range replays[:3] {
		trace, err := world.ReadTraceFile(filepath.Join(traces, replay.trace))
		if err != nil {
			return err
		}
		shares, err := world.ReadShape(filepath.Join(traces, replay.shape), replay.nodes)
		if err != nil {
			return err
		}
		for i := range trace.Jobs {
			trace.Jobs[i].Limit = int64(limitFactor*float64(trace.Jobs[i].Duration)) + 1
		}
		cluster := world.Partitions(shares)
		reports := map[string]*world.Report{}
		for _, variant := range []struct{ name, change string }{
			{"besteffort", ""}, {"strict", "queue/*.queueingStrategy=StrictFIFO"}, {"easy", "queue/*.backfill=EASY"},
		} {
			changed, err := cluster.Set(variant.change)
			if err != nil {
				return err
			}
			r, err := run(trace, changed, world.Settings{Restart: restart})
			if err != nil {
				return err
			}
			reports[variant.name] = r
			fmt.Printf("figure delay_%s_%s %.2f h\n", replay.name, variant.name, r.Delay.Mean/3600)
			fmt.Printf("figure delay_large_p99_%s_%s %.1f h\n", replay.name, variant.name, large(r)/3600)
			fmt.Printf("figure cards_used_%s_%s %.1f %%\n", replay.name, variant.name, 100*r.CardsUsed)
		}
		if replay.name != "muri1" { // all its jobs wait for months, whatever the order
			errs = append(errs, noStarvation(replay.name, reports))
		}
	}
	return errors.Join(errs...)
}

// large is the 99th percentile of the delay of the largest class of jobs.
func large(r *world.Report) float64 { return r.BySize[len(r.BySize)-1].Delay.P99 }

// noStarvation: with backfill large jobs wait at most half as long as under BestEffortFIFO, and cards are used as much as
// under either.
func noStarvation(name string, of map[string]*world.Report) error {
	easy, best, strict := of["easy"], of["besteffort"], of["strict"]
	const grain = 0.0005
	if large(easy) > large(best)/2 || easy.CardsUsed < max(best.CardsUsed, strict.CardsUsed)-grain {
		return fmt.Errorf("backfill on %s: large jobs wait %.1f h (%.1f under BestEffortFIFO), cards used %.1f %% (%.1f and %.1f)", name,
			large(easy)/3600, large(best)/3600, 100*easy.CardsUsed, 100*best.CardsUsed, 100*strict.CardsUsed)
	}
	return nil
}
