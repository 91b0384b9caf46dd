package main

import (
	"errors"
	"fmt"

	"github.com/elastic-ai/elastic/internal/simulate/cost"
)

// What jobs may cost over the bound where spot machines are plentiful and where they are scarce, and how many may be late.
const (
	plentifulShare = 0.95 // of the time in which some zone sells spot machines
	goalPlentiful  = 1.06
	goalScarce     = 1.40
	goalLate       = 0.01
	costJobs       = 200
	costSeeds      = 3
)

// money compares what jobs cost under the rule for buying machines with other rules and with a bound, on every market of the
// folder, and on the scarce zones of each.
func money(folder string) error {
	markets, without, err := cost.Read(folder)
	if err != nil {
		return err
	}
	for _, name := range without {
		fmt.Println("no prices:", name)
	}
	var errs []error
	for _, m := range markets {
		errs = append(errs, moneyOf(m))
		if scarce := m.Scarce(); scarce != nil {
			errs = append(errs, moneyOf(scarce))
		}
	}
	return errors.Join(errs...)
}

func moneyOf(m *cost.Market) error {
	kind, goal := "scarce", goalScarce
	if m.Share(1) >= plentifulShare {
		kind, goal = "plentiful", goalPlentiful
	}
	fmt.Printf("market %s: %s, %d zones, spot %.1f %% of the time\n", m.Name, kind, len(m.Zones), 100*m.Share(1))
	sums, late, jobs := map[string]float64{}, map[string]int{}, 0
	for seed := range uint64(costSeeds) {
		list, err := cost.Invented(costJobs, m, &cost.Default, seed)
		if err != nil {
			return err
		}
		c := cost.Compare(m, list, cost.Rules, &cost.Default)
		jobs += costJobs
		for _, r := range c.Results {
			sums[r.Rule] += r.OverBound / costSeeds
			late[r.Rule] += r.Late
		}
	}
	for _, rule := range cost.Rules {
		fmt.Printf("figure cost_over_bound_%s_%s %.3f\n", m.Name, rule.Name, sums[rule.Name])
		fmt.Printf("figure cost_late_%s_%s %.2f %%\n", m.Name, rule.Name, 100*float64(late[rule.Name])/float64(jobs))
	}
	ours, share := sums[cost.Elastic.Name], float64(late[cost.Elastic.Name])/float64(jobs)
	if ours > goal || share > goalLate {
		return fmt.Errorf("%s (%s): %.3f of the bound (at most %.2f), %.2f %% late (at most %.0f)", m.Name, kind, ours, goal, 100*share, 100*goalLate)
	}
	return nil
}
