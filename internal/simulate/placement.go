package simulate

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/elastic-ai/elastic/internal/placement"
)

// PlacementOptions of a placement run: arrivals only, one pod after the other, a pod that fits nowhere is dropped.
type PlacementOptions struct {
	Nodes, Pods string   // files
	Policies    []string // as policy.Parse reads them
	Seeds       int      // number of streams
	FirstSeed   int64
	Ratio       float64 // arrived demand at the end, in capacities
}

// published policies know what will be asked for beforehand, from the whole trace; ours learns it as pods come.
var foretold = map[string]bool{"fgd": true}

// Run of one stream under one policy.
type Run struct {
	Policy  string        `json:"policy"`
	Seed    int64         `json:"seed"`
	Took    time.Duration `json:"tookNanoseconds"`
	Pods    int           `json:"pods"`
	Dropped int           `json:"dropped"`
	// Curve is the part of the cards allocated when 0, 1, 2, … percent of the capacity has been asked for.
	Curve []float64 `json:"allocated"`
}

// Unallocated is the part of all cards that is free once this percentage of the capacity has been requested.
func (r *Run) Unallocated(arrived int) float64 { return 1 - r.Curve[min(arrived, len(r.Curve)-1)] }

// Placement runs every policy on every stream, several at a time.
func Placement(opts PlacementOptions) ([]Run, error) {
	nodes, err := ReadNodes(opts.Nodes)
	if err != nil {
		return nil, err
	}
	pods, err := ReadPods(opts.Pods)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 || capacityOf(nodes) == 0 {
		return nil, errors.New("the trace has no pods or no cards")
	}
	runs := make([]Run, len(opts.Policies)*opts.Seeds)
	errs := make([]error, len(runs))
	work := make(chan int)
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(runs)) {
		wait.Go(func() {
			for i := range work {
				policy, seed := opts.Policies[i/opts.Seeds], opts.FirstSeed+int64(i%opts.Seeds)
				runs[i], errs[i] = place(nodes, pods, policy, seed, opts.Ratio)
			}
		})
	}
	for i := range runs {
		work <- i
	}
	close(work)
	wait.Wait()
	return runs, errors.Join(errs...)
}

func place(nodes []placement.Node, pods []TracePod, policy string, seed int64, ratio float64) (Run, error) {
	opts := placement.Options{Policy: policy, Seed: uint64(seed)}
	if foretold[policy] {
		opts.Demand = demandOf(pods)
	}
	e, err := placement.New(opts)
	if err != nil {
		return Run{}, err
	}
	nodes, arrivals := stream(nodes, pods, ratio, seed)
	for i := range nodes {
		if err := e.Apply(placement.NodeChanged{Node: nodes[i]}); err != nil {
			return Run{}, err
		}
	}
	capacity := capacityOf(nodes)
	run := Run{Policy: policy, Seed: seed, Pods: len(arrivals)}
	var arrived, allocated int64
	var curve curve
	start := time.Now()
	for i := range arrivals {
		p := &arrivals[i]
		arrived += p.Demand
		node, err := e.Best(&p.Pod)
		var refusal *placement.Refusal
		if err == nil {
			_, err = e.Assign(&p.Pod, node, time.Time{})
			allocated += p.Demand
		} else if errors.As(err, &refusal) {
			run.Dropped++
			err = nil
		}
		if err != nil {
			return Run{}, fmt.Errorf("pod %s: %w", p.Key, err)
		}
		curve.add(float64(arrived)/float64(capacity), float64(allocated)/float64(capacity))
	}
	run.Curve = curve.points()
	run.Took = time.Since(start)
	return run, nil
}

func demandOf(pods []TracePod) []placement.Demand {
	out := make([]placement.Demand, len(pods))
	for i := range pods {
		out[i] = placement.Demand{Pod: pods[i].Pod, Weight: 1}
	}
	return out
}

// curve averages what is allocated over each percent of arrived demand, as the published results do.
type curve struct{ sum, count []float64 }

func (c *curve) add(arrived, allocated float64) {
	percent := int(math.RoundToEven(arrived * 100))
	for len(c.sum) <= percent {
		c.sum, c.count = append(c.sum, 0), append(c.count, 0)
	}
	c.sum[percent] += allocated
	c.count[percent]++
}

// points: a percent in which no pod arrived has the value of the one before.
func (c *curve) points() []float64 {
	out := make([]float64, len(c.sum))
	for i := range out {
		if c.count[i] > 0 {
			out[i] = c.sum[i] / c.count[i]
		} else if i > 0 {
			out[i] = out[i-1]
		}
	}
	return out
}
