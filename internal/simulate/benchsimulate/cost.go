package main

import (
	"errors"
	"fmt"
	"slices"

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
	queueCards     = 8  // that a job of a queue asks for, at most
	queueQuota     = 32 // cards of each flavor of a queue
)

// money compares what jobs cost under the rule for buying machines with other rules and with a bound, on every market of the
// folder, and on the scarce zones of each.
func money(folder string) error {
	markets, without, err := cost.Read(folder)
	if err != nil {
		return err
	}
	for _, name := range without {
		fmt.Println("no prices, or no minute that all zones have:", name)
	}
	kinds := []*kind{{name: "plentiful", goal: goalPlentiful}, {name: "scarce", goal: goalScarce}}
	for _, m := range markets {
		for _, m := range []*cost.Market{m, m.Scarce()} {
			if m == nil {
				continue
			}
			k := kinds[1]
			if m.Share(1) >= plentifulShare {
				k = kinds[0]
			}
			if err := k.add(m); err != nil {
				return err
			}
		}
	}
	errs := []error{queues(markets)}
	for _, k := range kinds {
		errs = append(errs, k.check())
	}
	return errors.Join(errs...)
}

// queues compares what jobs cost on queues with several flavors, where the admission engine chooses between those.
func queues(markets []*cost.Market) error {
	for _, flavors := range cost.Queues(markets, queueQuota) {
		fmt.Printf("queue of %s:", flavors[0].Market.GPU)
		for _, f := range flavors {
			fmt.Printf(" %s", f.Market.Name)
		}
		fmt.Println()
		sums, late := map[string]float64{}, map[string]int{}
		for seed := range uint64(costSeeds) {
			list, err := cost.Invented(costJobs, flavors[0].Market, &cost.Default, seed)
			if err != nil {
				return err
			}
			c, err := cost.CompareQueue(flavors, cost.WithCards(list, queueCards, seed), &cost.Default)
			if err != nil {
				return err
			}
			for _, r := range c.Results {
				sums[r.Rule] += r.OverBound / costSeeds
				late[r.Rule] += r.Late
			}
		}
		for _, rule := range cost.QueueRules {
			fmt.Printf("figure cost_queue_over_bound_%s_%s %.3f\n", flavors[0].Market.GPU, rule.Name, sums[rule.Name])
			fmt.Printf("figure cost_queue_late_%s_%s %.2f %%\n", flavors[0].Market.GPU, rule.Name, 100*float64(late[rule.Name])/(costSeeds*costJobs))
		}
	}
	return nil
}

// kind of market, with what the product's rule came to in those of it.
type kind struct {
	name      string
	goal      float64
	over      []float64
	reporting []float64 // the same of jobs that say when they have saved their work
	worst     string    // what was furthest beyond the goals
	late      int
	jobs      int
}

func (k *kind) add(m *cost.Market) error {
	fmt.Printf("market %s: %s, %d zones, spot %.1f %% of the time\n", m.Name, k.name, len(m.Zones), 100*m.Share(1))
	sums, late := map[string]float64{}, map[string]int{}
	var parts [6]float64
	rules := slices.Concat(cost.Rules, cost.Variants)
	for seed := range uint64(costSeeds) {
		list, err := cost.Invented(costJobs, m, &cost.Default, seed)
		if err != nil {
			return err
		}
		for _, r := range cost.Compare(m, list, rules, &cost.Default).Results {
			sums[r.Rule] += r.OverBound / costSeeds
			late[r.Rule] += r.Late
			if r.Rule == cost.Elastic.Name {
				p := &r.Parts
				for i, part := range [...]float64{p.SpotWork, p.SpotStarts, p.LostWork, p.OnDemandWork, p.OnDemandStarts, p.Second} {
					parts[i] += part / r.Money * r.OverBound / costSeeds
				}
			}
		}
	}
	for i, name := range [...]string{"spot_work", "spot_starts", "lost_work", "on_demand_work", "on_demand_starts", "second_purchases"} {
		fmt.Printf("figure cost_part_%s_%s %.3f\n", m.Name, name, parts[i])
	}
	for _, rule := range rules {
		fmt.Printf("figure cost_over_bound_%s_%s %.3f\n", m.Name, rule.Name, sums[rule.Name])
		fmt.Printf("figure cost_late_%s_%s %.2f %%\n", m.Name, rule.Name, 100*float64(late[rule.Name])/(costSeeds*costJobs))
	}
	ours := sums[cost.Elastic.Name]
	if len(k.over) == 0 || ours > slices.Max(k.over) {
		k.worst = m.Name
	}
	k.over, k.reporting = append(k.over, ours), append(k.reporting, sums[cost.ElasticReporting.Name])
	k.late, k.jobs = k.late+late[cost.Elastic.Name], k.jobs+costSeeds*costJobs
	return nil
}

// check every market of a kind against its goal.
func (k *kind) check() error {
	if len(k.over) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range k.over {
		sum += v
	}
	worst, late := slices.Max(k.over), float64(k.late)/float64(k.jobs)
	fmt.Printf("figure cost_over_bound_%s %.3f\n", k.name, sum/float64(len(k.over)))
	fmt.Printf("figure cost_over_bound_%s_worst %.3f\n", k.name, worst)
	fmt.Printf("figure cost_over_bound_%s_reporting_worst %.3f\n", k.name, slices.Max(k.reporting))
	fmt.Printf("figure cost_late_%s %.2f %%\n", k.name, 100*late)
	if worst > k.goal || late > goalLate {
		return fmt.Errorf("where spot is %s, jobs cost up to %.3f of the bound (%s; the goal is %.2f), and %.2f %% are late (the goal is %.0f)",
			k.name, worst, k.worst, k.goal, 100*late, 100*goalLate)
	}
	return nil
}
