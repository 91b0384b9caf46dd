package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"

	"github.com/elastic-ai/elastic/internal/placement"
)

// Report of one policy over all its streams. Parts are of all cards.
type Report struct {
	Policy string `json:"policy"`
	Seeds  int    `json:"seeds"`
	// Unallocated once demand for all cards has arrived, mean and standard deviation over the streams.
	At100   float64 `json:"unallocatedAt100"`
	At100SD float64 `json:"unallocatedAt100Deviation"`
	// AtEnd is the same at the end of the streams.
	AtEnd   float64 `json:"unallocatedAtEnd"`
	Dropped float64 `json:"droppedPods"`
	Seconds float64 `json:"secondsPerRun"`
	Curve   []Point `json:"curve"`
}

// Point of the mean curve.
type Point struct {
	Arrived   float64 `json:"arrived"`
	Allocated float64 `json:"allocated"`
}

// Summarize runs by policy, in the order they come.
func Summarize(runs []Run) []Report {
	var out []Report
	for i := 0; i < len(runs); {
		n := i
		for n < len(runs) && runs[n].Policy == runs[i].Policy {
			n++
		}
		out = append(out, summary(runs[i:n]))
		i = n
	}
	return out
}

func summary(runs []Run) Report {
	r := Report{Policy: runs[0].Policy, Seeds: len(runs)}
	n := float64(len(runs))
	points := len(runs[0].Curve)
	for i := range runs {
		points = min(points, len(runs[i].Curve))
		r.At100 += runs[i].Unallocated(100) / n
		r.AtEnd += runs[i].Unallocated(math.MaxInt) / n
		r.Dropped += float64(runs[i].Dropped) / n
		r.Seconds += runs[i].Took.Seconds() / n
	}
	for i := range runs {
		d := runs[i].Unallocated(100) - r.At100
		r.At100SD += d * d / n
	}
	r.At100SD = math.Sqrt(r.At100SD)
	for p := range points {
		point := Point{Arrived: float64(p) / 100}
		for i := range runs {
			point.Allocated += runs[i].Curve[p] / n
		}
		r.Curve = append(r.Curve, point)
	}
	return r
}

// Defaults fills in what was left out: the default policy, ten streams from seed 42, 130 percent.
func (o *PlacementOptions) Defaults() {
	if len(o.Policies) == 0 {
		o.Policies = []string{placement.DefaultPolicy}
	}
	if o.Seeds <= 0 {
		o.Seeds, o.FirstSeed = 10, max(o.FirstSeed, 42)
	}
	if o.Ratio <= 0 {
		o.Ratio = 1.3
	}
}

// WritePlacement is the command "simulate placement": it runs the policies and writes a table, or
// with output "json" the figures; a plot file gets the curves as SVG.
func WritePlacement(w io.Writer, opts PlacementOptions, output, plot string) error {
	opts.Defaults()
	if output != "" && output != "table" && output != "json" {
		return fmt.Errorf("output %q: want table or json", output)
	}
	runs, err := Placement(opts)
	if err != nil {
		return err
	}
	reports := Summarize(runs)
	if plot != "" {
		f, err := os.Create(plot)
		if err != nil {
			return err
		}
		err = errors.Join(drawCurves(f, reports), f.Close())
		if err != nil {
			return err
		}
	}
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(reports)
	}
	return writeTable(w, reports, opts.Ratio)
}

func writeTable(w io.Writer, reports []Report, ratio float64) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "policy\tstreams\tunallocated at 100%%\tsd\tat %.0f%%\tdropped pods\tseconds/run\t\n", 100*ratio)
	for _, r := range reports {
		fmt.Fprintf(t, "%s\t%d\t%.2f %%\t%.2f\t%.2f %%\t%.0f\t%.1f\t\n", r.Policy, r.Seeds, 100*r.At100, 100*r.At100SD, 100*r.AtEnd, r.Dropped, r.Seconds)
	}
	return t.Flush()
}

// WriteReplay is the command for a trace in its own time, one policy per line.
func WriteReplay(w io.Writer, opts PlacementOptions, output string) error {
	opts.Defaults()
	nodes, err := ReadNodes(opts.Nodes)
	if err != nil {
		return err
	}
	pods, err := ReadPods(opts.Pods)
	if err != nil {
		return err
	}
	var all []Replayed
	for _, policy := range opts.Policies {
		r, err := Replay(nodes, pods, policy)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	if output == "json" {
		return json.NewEncoder(w).Encode(all)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tpods\twaited\tnever started\tmean wait\tlongest wait\tbusiest\t")
	for _, r := range all {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.1f s\t%d s\t%.1f %%\t\n", r.Policy, r.Pods, r.Waited, r.Never, r.MeanWait, r.MaxWait, 100*r.Busiest)
	}
	return t.Flush()
}
