// Package cost is "elastic cost": what a job is expected to cost on machines of clouds, by a price table.
//
// Words: docs/design/glossary.md.
package cost

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// inputs are the flags of "elastic cost".
type inputs struct {
	prices, gpu, kind            string
	clouds, regions              []string
	gpus, top                    int
	runTime, checkpoint, startUp time.Duration
	limit                        float64
}

// Row is one kind of machine of one cloud, at its cheapest place.
type Row struct {
	cloud.Offer
	Places   int     `json:"places"` // that sell it
	Machines int     `json:"machines"`
	Hourly   float64 `json:"hourly"`   // of all machines
	Expected float64 `json:"expected"` // for the job
}

// Command is "elastic cost".
func Command() *cobra.Command {
	in := &inputs{}
	var printer output.Printer
	cmd := &cobra.Command{
		Use:   "cost --prices FILE --gpus N --run-time DURATION",
		Short: "Say what a job is expected to cost on machines of clouds",
		Long: `Say what a job is expected to cost on machines of clouds, by a price table: CSV
with the columns cloud, region, zone, instance_type, gpu, gpu_count,
price_usd_hour and spot_usd_hour. Rows that cannot be used are reported, and the
others count.

EXPECTED is machines × price × (run time + start-up + losses × (start-up + half a
checkpoint interval)). Nothing was seen of these places yet: losses of spot
machines are those of a place of which nothing is known. Each kind of machine is
listed once for each cloud, at its cheapest place.`,
		Example: `  elastic cost --prices offers.csv --gpu H100 --gpus 16 --run-time 10h
  elastic cost --prices offers.csv --gpu H100 --gpus 8 --run-time 3h --cloud aws,gcp --kind spot --checkpoint 15m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := in.rows(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			names := make([]string, len(rows))
			for i := range rows {
				names[i] = rows[i].String()
			}
			return printer.Print(cmd.OutOrStdout(), rows, names, func(w output.Writer, wide bool) { print(w, rows, wide) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.prices, "prices", "", "price table, a CSV file")
	f.StringVar(&in.gpu, "gpu", "", "cards of this name alone, as the table has it")
	f.IntVar(&in.gpus, "gpus", 0, "how many cards the job wants")
	f.DurationVar(&in.runTime, "run-time", 0, "how long it runs")
	f.DurationVar(&in.checkpoint, "checkpoint", 30*time.Minute, "how often it saves its work; 0: never")
	f.DurationVar(&in.startUp, "start-up", 10*time.Minute, "from the order of machines until the job runs")
	f.StringSliceVar(&in.clouds, "cloud", nil, "these clouds alone")
	f.StringSliceVar(&in.regions, "region", nil, "these regions alone")
	f.StringVar(&in.kind, "kind", "", "spot or on-demand; without it both")
	f.Float64Var(&in.limit, "max-price", 0, "at most so many US dollars a card and hour; 0: any")
	f.IntVar(&in.top, "top", 10, "how many rows; 0: all")
	printer.AddTo(cmd)
	return cmd
}

func (in *inputs) check() error {
	switch {
	case in.prices == "":
		return errors.New("give --prices: a CSV file with what clouds sell")
	case in.gpus < 1 || in.gpus > 1_000_000:
		return fmt.Errorf("--gpus %d: want 1 to 1000000", in.gpus)
	case in.runTime <= 0 || in.runTime > 365*24*time.Hour:
		return fmt.Errorf("--run-time %s: want a time up to a year, as 90m or 10h", in.runTime)
	case in.checkpoint < 0 || in.startUp < 0:
		return errors.New("--checkpoint and --start-up are not negative")
	case in.kind != "" && in.kind != "spot" && in.kind != "on-demand":
		return fmt.Errorf("--kind %s: want spot or on-demand", in.kind)
	case !(in.limit >= 0):
		return fmt.Errorf("--max-price %v is not a price", in.limit)
	}
	return nil
}

// mostReported bounds how many bad rows are named.
const mostReported = 10

func (in *inputs) rows(report io.Writer) ([]Row, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	file, err := os.Open(in.prices)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	offers, bad, err := cloud.ReadPriceTable(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.prices, err)
	}
	for i, b := range bad {
		if i == mostReported {
			fmt.Fprintf(report, "%s: and %d rows more\n", in.prices, len(bad)-i)
			break
		}
		fmt.Fprintf(report, "%s: %v; the row is left out\n", in.prices, b)
	}
	rows := in.cheapest(offers)
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no such machines", in.prices)
	}
	if in.top > 0 && len(rows) > in.top {
		rows = rows[:in.top]
	}
	return rows, nil
}

// cheapest place of each kind of machine of each cloud, cheapest first.
func (in *inputs) cheapest(offers []cloud.Offer) []Row {
	type key struct {
		cloud, instance string
		spot            bool
	}
	best := map[key]int{}
	var rows []Row
	for i := range offers {
		o := &offers[i]
		if !in.wants(o) {
			continue
		}
		row := in.row(o)
		k := key{o.Cloud, o.InstanceType, o.Spot}
		at, seen := best[k]
		if !seen {
			best[k] = len(rows)
			rows = append(rows, row)
			continue
		}
		row.Places = rows[at].Places + 1
		if row.Expected >= rows[at].Expected {
			rows[at].Places = row.Places
			continue
		}
		rows[at] = row
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.Expected, b.Expected) })
	return rows
}

func (in *inputs) row(o *cloud.Offer) Row {
	machines := int(math.Ceil(float64(in.gpus) / o.GPUs))
	job := cloud.Job{Machines: machines, Left: in.runTime, Checkpoint: in.checkpoint, StartUp: in.startUp}
	return Row{Offer: *o, Places: 1, Machines: machines, Hourly: float64(machines) * o.Price, Expected: cloud.ExpectedCost(&job, o, nil, time.Time{})}
}

func (in *inputs) wants(o *cloud.Offer) bool {
	return o.GPUs >= 1 && (in.gpu == "" || o.GPU == in.gpu) &&
		(len(in.clouds) == 0 || slices.Contains(in.clouds, o.Cloud)) && (len(in.regions) == 0 || slices.Contains(in.regions, o.Region)) &&
		(in.kind == "" || (in.kind == "spot") == o.Spot) && (in.limit == 0 || o.Price <= in.limit*o.GPUs)
}

func print(w output.Writer, rows []Row, wide bool) {
	table := output.Table{Columns: []output.Column{
		{Name: "CLOUD"}, {Name: "TYPE"}, {Name: "KIND"}, {Name: "GPU"}, {Name: "MACHINES"}, {Name: "PRICE/H"}, {Name: "EXPECTED"}, {Name: "CHEAPEST IN"}, {Name: "PLACES"},
	}}
	for _, r := range rows {
		kind, where := "on demand", r.Region
		if r.Spot {
			kind = "spot"
		}
		if r.Zone != "" {
			where += "/" + r.Zone
		}
		table.Add(r.Cloud, r.InstanceType, kind, fmt.Sprintf("%g x %s", r.GPUs, r.GPU), r.Machines, fmt.Sprintf("%.2f", r.Hourly), fmt.Sprintf("%.2f", r.Expected), where, r.Places)
	}
	table.Print(w, wide)
}
