package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/simulate/cost"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// costInputs are the flags of "elastic simulate cost".
type costInputs struct {
	data, market, trace             string
	zones                           []string
	flavors                         map[string]int
	jobs                            int
	seed                            uint64
	startUp, checkpoint, deadlineBy time.Duration
	factor                          float64
	leftOut                         string // of the trace
}

// costCommand is "elastic simulate cost".
func costCommand() *cobra.Command {
	in := &costInputs{}
	var printer output.Printer
	cmd := &cobra.Command{
		Use:   "cost --data FOLDER",
		Short: "Run jobs with deadlines on recorded clouds: what would their machines cost?",
		Long: `Run jobs with deadlines on machines of clouds, over recorded spot prices and
times at which spot machines could be had: what would they cost?

  on-demand            machines on demand only
  spot                 cheapest spot first, with retries, and nothing else
  spot-else-on-demand  cheapest spot first, and on demand where there is none
  elastic              waits for spot, buys on demand and goes back by deadline,
                       prices, and what was seen of each zone
  elastic-reporting    the same for jobs that say when they have saved their
                       work (elasticai.io/checkpointed-at)
  OVER BOUND           money for each finished job, over the least possible for
                       someone who knows the future

With --flavors the jobs wait in a queue that has quota in several markets. The
engine that runs in production chooses between those:

  as-written           as the queue has them written
  elastic              cheapest first, by what each job is expected to cost now

The folder has spot-series.csv, which names the series in spot-availability,
and spot-prices.csv.`,
		Example: `  elastic simulate cost --data clouds
  elastic simulate cost --data clouds --market aws-2023-02-15-p3.2xlarge --zones us-east-1a,us-east-1c --checkpoint 10m
  elastic simulate cost --data clouds --trace jobs.csv --deadline-factor 2
  elastic simulate cost --data clouds --flavors aws-2022-10-26-p3.2xlarge=32,aws-2022-10-26-p3.16xlarge=64`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := in.compare()
			if err != nil {
				return err
			}
			if in.leftOut != "" {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), in.leftOut)
			}
			names := make([]string, len(out))
			for i := range out {
				names[i] = out[i].Market
			}
			return printer.Print(cmd.OutOrStdout(), out, names, func(w output.Writer, wide bool) { printCosts(w, out, wide) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.data, "data", "", "folder with recorded prices and availability")
	f.StringVar(&in.market, "market", "", "one market alone; without it all")
	f.StringToIntVar(&in.flavors, "flavors", nil, "markets as flavors of a queue, with quotas in cards, as in MARKET=32")
	f.StringSliceVar(&in.zones, "zones", nil, "these zones alone")
	f.StringVar(&in.trace, "trace", "", "jobs from a trace, as elastic simulate reads them; without it invented ones")
	f.IntVar(&in.jobs, "jobs", 200, "how many jobs to invent, of 1 to 16 hours")
	f.Uint64Var(&in.seed, "seed", 0, "which jobs are invented")
	f.DurationVar(&in.startUp, "start-up", minutes(cost.Default.StartUp), "from the order of machines until the job runs")
	f.DurationVar(&in.checkpoint, "checkpoint", minutes(cost.Default.Checkpoint), "how often jobs save their work; 0: never")
	f.Float64Var(&in.factor, "deadline-factor", cost.Default.DeadlineFactor, "a deadline is so many times the run time after submission")
	f.DurationVar(&in.deadlineBy, "deadline-extra", minutes(cost.Default.DeadlineExtra), "and so much more")
	printer.AddTo(cmd)
	return cmd
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// settings in minutes, checked.
func (in *costInputs) settings() (*cost.Settings, error) {
	const longest = 365 * 24 * time.Hour
	for _, d := range []time.Duration{in.startUp, in.checkpoint, in.deadlineBy} {
		if d < 0 || d > longest {
			return nil, fmt.Errorf("%s is not between 0 and a year", d)
		}
	}
	if !(in.factor >= 1 && in.factor <= 1000) {
		return nil, fmt.Errorf("--deadline-factor %v: want 1 to 1000", in.factor)
	}
	if in.jobs < 1 || in.jobs > 100_000 {
		return nil, fmt.Errorf("--jobs %d: want 1 to 100000", in.jobs)
	}
	return &cost.Settings{
		StartUp: max(1, int(in.startUp.Minutes())), Checkpoint: int(in.checkpoint.Minutes()),
		DeadlineFactor: in.factor, DeadlineExtra: int(in.deadlineBy.Minutes()),
	}, nil
}

func (in *costInputs) compare() ([]*cost.Comparison, error) {
	settings, err := in.settings()
	if err != nil {
		return nil, err
	}
	if len(in.flavors) > 0 {
		return in.compareQueue(settings)
	}
	markets, err := in.markets()
	if err != nil {
		return nil, err
	}
	var out []*cost.Comparison
	for _, m := range markets {
		jobs, err := in.jobsFor(m, settings)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		out = append(out, cost.Compare(m, jobs, cost.Rules, settings))
	}
	return out, nil
}

// compareQueue is for a queue with several markets, in the order of their names.
func (in *costInputs) compareQueue(settings *cost.Settings) ([]*cost.Comparison, error) {
	if in.market != "" {
		return nil, errors.New("give --market or --flavors")
	}
	markets, err := in.markets()
	if err != nil {
		return nil, err
	}
	const mostCards = 1_000_000
	var flavors []cost.Flavor
	for _, name := range slices.Sorted(maps.Keys(in.flavors)) {
		i := slices.IndexFunc(markets, func(m *cost.Market) bool { return m.Name == name })
		quota := in.flavors[name]
		if i < 0 || quota < 1 || quota > mostCards {
			return nil, fmt.Errorf("--flavors %s=%d: want a market and 1 to %d cards", name, quota, mostCards)
		}
		flavors = append(flavors, cost.Flavor{Market: markets[i], Cards: int64(quota)})
	}
	jobs, err := in.jobsFor(flavors[0].Market, settings)
	if err != nil {
		return nil, err
	}
	if in.trace == "" {
		const most = 8 // cards of a job
		jobs = cost.WithCards(jobs, most, in.seed)
	}
	c, err := cost.CompareQueue(flavors, jobs, settings)
	return []*cost.Comparison{c}, err
}

// markets that were asked for.
func (in *costInputs) markets() ([]*cost.Market, error) {
	if in.data == "" {
		return nil, errors.New("give --data: a folder with spot-series.csv, spot-availability and spot-prices.csv")
	}
	all, _, err := cost.Read(in.data)
	if err != nil {
		return nil, err
	}
	var out []*cost.Market
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
		if in.market != "" && in.market != m.Name {
			continue
		}
		if len(in.zones) > 0 {
			m = m.Only(m.Name, func(z *cost.Zone) bool { return slices.Contains(in.zones, z.Zone) })
		}
		if len(m.Zones) > 0 {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no such market or zone; there are %s", strings.Join(names, ", "))
	}
	return out, nil
}

// jobsFor a market: those of the trace, each on as many machines as have its cards, or invented ones.
func (in *costInputs) jobsFor(m *cost.Market, s *cost.Settings) ([]cost.Job, error) {
	if in.trace == "" {
		return cost.Invented(in.jobs, m, s, in.seed)
	}
	trace, err := world.ReadTraceFile(in.trace)
	if err != nil {
		return nil, err
	}
	in.leftOut = leftOut(len(trace.Jobs), trace.Skipped)
	return cost.OfTrace(trace, m, s)
}

func printCosts(w output.Writer, list []*cost.Comparison, wide bool) {
	table := output.Table{Columns: columns("MARKET", "RULE", "JOBS", "LATE", "MONEY A JOB", "OVER BOUND", "SPOT", "ON DEMAND", "LOSSES", "FAILED TRIES")}
	for _, c := range list {
		for _, r := range c.Results {
			table.Add(c.Market, r.Rule, r.Jobs, r.Late, fmt.Sprintf("%.2f", r.PerJob()), fmt.Sprintf("%.3f", r.OverBound),
				fmt.Sprintf("%.0f h", r.Spot), fmt.Sprintf("%.0f h", r.OnDemand), r.Losses, r.Tries)
		}
	}
	table.Print(w, wide)
}
