package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// inputs are the flags that name a trace and a cluster.
type inputs struct {
	trace       string
	shape       string
	column      string
	borrow      bool
	nodes       string
	manifests   []string
	fromCluster bool
	config      string
	empty       bool
	runningFor  time.Duration
	waitingFor  time.Duration
	from        cluster.Flags
	queue       string
	maps        []string
	prices      []string
	restart     []string
	checkpoint  time.Duration
	faultEvery  time.Duration
	faultDown   time.Duration
	spot        []string
	stockOuts   []string
	seed        uint64
	until       time.Duration
	start       string
	limitFactor float64
}

func (in *inputs) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&in.trace, "trace", "", "file of jobs: CSV with job_id,queue,submit_s,duration_s,gpus; openb's pods; what sacct -P writes; - for standard input")
	f.StringVar(&in.shape, "shape", "", "the cluster: CSV with queue,nodes,gpus_per_node; each queue has its own nodes")
	f.StringVar(&in.column, "shape-column", "nodes", "column of --shape that has the number of nodes")
	f.BoolVar(&in.borrow, "borrow", false, "with --shape: one cohort, in which queues borrow and reclaim")
	f.StringVar(&in.nodes, "nodes", "", "the cluster: nodes as \"elastic up\" takes them, 4x8:H100-80G,8x4:A100-40G, and one queue")
	f.StringSliceVar(&in.manifests, "manifests", nil, "the cluster: YAML files of Kueue's objects, and of Nodes unless --nodes gives them")
	f.BoolVar(&in.fromCluster, "from-cluster", false, "the cluster: queues, cohorts, flavors, policies, nodes and what runs and waits now of the one that kubectl talks to")
	f.StringVar(&in.config, "config", "", "with --manifests or --from-cluster: elastic-queue's configuration (default that of the cluster, if it can be read, or else Kueue's rules)")
	f.BoolVar(&in.empty, "empty", false, "with --from-cluster: leave out what runs and waits now")
	f.DurationVar(&in.runningFor, "running-for", 0, "how long what runs now goes on; 0 for as long again as it has run")
	f.DurationVar(&in.waitingFor, "waiting-for", 0, "how long what waits now will run; 0 for as long as it may at most, or else as the trace's jobs do on average")
	f.StringVar(&in.from.Kubeconfig, "kubeconfig", "", "with --from-cluster: its kubeconfig")
	f.StringVar(&in.from.Context, "context", "", "with --from-cluster: context of the kubeconfig")
	f.StringVar(&in.from.Local, "local", "", "with --from-cluster: a cluster that 'elastic up' made, by name")
	f.StringVar(&in.queue, "queue", "main", "with --nodes: the name of the queue")
	f.StringSliceVar(&in.maps, "map", nil, "send jobs of a queue to another: FROM=TO, *=TO for queues that the cluster does not have")
	f.StringSliceVar(&in.prices, "price", nil, "what a card costs in an hour while its node is there: PRICE, or NODES=PRICE for a model, a label, KEY=VALUE, or the nodes of --spot, spot")
	f.StringSliceVar(&in.restart, "restart", []string{"40s", "60s"}, "what an eviction costs a job on one node, and on several")
	f.DurationVar(&in.checkpoint, "checkpoint", 0, "how often jobs save their work: evicted ones lose what they did since; 0 loses nothing")
	f.DurationVar(&in.faultEvery, "fault-every", 0, "lose a node every so often, on average, of those that there are before --set; 0 for never")
	f.DurationVar(&in.faultDown, "fault-down", time.Hour, "how long a lost node is away")
	f.StringSliceVar(&in.spot, "spot", nil, "nodes that their provider takes back: EVERY[/DOWN][@NODES], as 8h/10m@A100-40G; NODES is a model or a label, KEY=VALUE")
	f.StringSliceVar(&in.stockOuts, "stock-out", nil, "a time in which no node comes, neither one that is away nor one of --set +...: FROM-TO[@NODES], as 24h-48h@H100-80G")
	f.Uint64Var(&in.seed, "seed", 1, "seed of the faults")
	f.StringVar(&in.start, "start", "", "when the trace begins, for budgets and reservations: a date and time as 2026-12-01T08:00, in UTC (default now with --from-cluster, the first job's date if the trace has dates, and a Monday, the first of a month, otherwise)")
	f.DurationVar(&in.until, "until", 0, "stop at this time of the trace; 0 runs every job to its end")
	f.Float64Var(&in.limitFactor, "assume-limits", 0, "give jobs without a limit one of this many times their run time, for backfill; 0 gives none")
}

// read the trace and the cluster.
func (in *inputs) read(ctx context.Context) (*world.Trace, *world.Cluster, world.Settings, error) {
	settings, err := in.settings()
	if err != nil {
		return nil, nil, settings, err
	}
	if in.trace == "" {
		return nil, nil, settings, errors.New("give --trace: a file of jobs")
	}
	cluster, err := in.cluster(ctx)
	if err != nil {
		return nil, nil, settings, err
	}
	trace, err := world.ReadTraceFile(in.trace)
	if err != nil {
		return nil, nil, settings, err
	}
	maps := map[string]string{}
	for _, pair := range in.maps {
		from, to, ok := strings.Cut(pair, "=")
		if !ok || !cluster.Has(to) {
			return nil, nil, settings, fmt.Errorf("--map %s: want FROM=TO, where TO is a queue of the cluster", pair)
		}
		maps[from] = to
	}
	queues := trace.Queues()
	if none := trace.Map(maps, cluster); len(none) > 0 {
		return nil, nil, settings, fmt.Errorf("--map %s=%s: no job of the trace is in queue %s; they are in %s", none[0], maps[none[0]], none[0], strings.Join(queues, ", "))
	}
	trace.AssumeLimits(in.limitFactor)
	if cluster.Start, err = in.begins(trace); err != nil {
		return nil, nil, settings, err
	}
	if in.start != "" && !trace.Start.IsZero() && !trace.Start.Equal(cluster.Start) {
		cluster.Note(fmt.Sprintf("the first job of the trace is of %s; by --start it comes on %s", trace.Start.Format("2006-01-02 15:04 MST"), cluster.Start.Format("2006-01-02 15:04 MST")))
	}
	left := world.Lengths{Running: int64(in.runningFor / time.Second), Waiting: int64(in.waitingFor / time.Second)}
	return trace.With(cluster, left), cluster, settings, nil
}

// begins is when second 0 of the trace is, as is said or as it has dates; zero: nobody says.
func (in *inputs) begins(trace *world.Trace) (time.Time, error) {
	if in.start != "" {
		at, err := time.Parse("2006-01-02T15:04", in.start)
		if err != nil {
			err = fmt.Errorf("--start %s: want a date and time, as 2026-12-01T08:00", in.start)
		}
		return at, err
	}
	if !in.fromCluster || len(trace.Jobs) == 0 {
		return trace.Start, nil
	}
	return time.Now().Add(-time.Duration(trace.Jobs[0].Submit) * time.Second), nil // the first job comes now
}

func (in *inputs) cluster(ctx context.Context) (*world.Cluster, error) {
	c, err := in.described(ctx)
	if err != nil {
		return nil, err
	}
	c.PerHour = map[string]float64{}
	for _, text := range in.prices {
		at := strings.LastIndexByte(text, '=')
		v, err := strconv.ParseFloat(text[at+1:], 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 1) {
			return nil, fmt.Errorf("--price %s: want NODES=PRICE or PRICE; NODES is a model, a label, KEY=VALUE, or %s", text, world.SpotPrice)
		}
		c.PerHour[text[:max(at, 0)]] = v
	}
	return c, nil
}

// described is the cluster by the one way in which it is given.
func (in *inputs) described(ctx context.Context) (*world.Cluster, error) {
	objects := len(in.manifests) > 0 || in.fromCluster
	switch {
	case in.shape != "" && !objects && in.nodes == "":
		shares, err := world.ReadShape(in.shape, in.column)
		if err != nil {
			return nil, err
		}
		if in.borrow {
			return world.Pool(shares), nil
		}
		return world.Partitions(shares), nil
	case in.shape == "" && objects && (in.fromCluster != (len(in.manifests) > 0)):
		return in.fromObjects(ctx)
	case in.shape == "" && !objects && in.nodes != "":
		return world.ParseNodes(in.nodes, in.queue)
	}
	return nil, errors.New("give the cluster in one way: --shape FILE, --nodes SHAPE, --manifests FILES or --from-cluster")
}

func (in *inputs) fromObjects(ctx context.Context) (*world.Cluster, error) {
	read := in.readManifests
	if in.fromCluster {
		read = in.readCluster
	}
	objects, config, err := read(ctx)
	if err != nil {
		return nil, err
	}
	options, err := in.options(config)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if in.start != "" && !in.fromCluster {
		if now, err = in.begins(nil); err != nil {
			return nil, err
		}
	}
	c, err := world.FromObjects(objects, options, now)
	if err != nil {
		return nil, err
	}
	if found := len(c.Running) + len(c.Waiting); found > 0 && in.start == "" && !in.fromCluster {
		c.Note("what runs and waits in the manifests is as old as it is today; with --start it is as old as it was then")
	}
	if in.nodes == "" {
		return c, nil
	}
	return c, c.ReplaceNodes(in.nodes)
}

// options of elastic-queue, by the file that was given or what the cluster has.
func (in *inputs) options(config []byte) (admission.Options, error) {
	from := "elastic-queue's configuration"
	if in.config != "" {
		from = in.config
		var err error
		if config, err = os.ReadFile(in.config); err != nil {
			return admission.Options{}, err
		}
	}
	if len(config) == 0 {
		return admission.Options{}, nil
	}
	options, err := world.ReadOptions(config)
	if err != nil {
		err = fmt.Errorf("%s: %w", from, err)
	}
	return options, err
}

func (in *inputs) settings() (world.Settings, error) {
	s := world.Settings{
		Until:  int64(in.until / time.Second),
		Faults: world.Faults{Every: int64(in.faultEvery / time.Second), Down: int64(in.faultDown / time.Second), Seed: in.seed},
	}
	for _, d := range []struct {
		flag string
		time time.Duration
	}{
		{"fault-every", in.faultEvery}, {"fault-down", in.faultDown}, {"checkpoint", in.checkpoint}, {"until", in.until}, {"running-for", in.runningFor}, {"waiting-for", in.waitingFor},
	} {
		if d.time < 0 || d.time > 0 && d.time < time.Second {
			return s, fmt.Errorf("--%s %s: want a time of a second or more, or 0", d.flag, d.time)
		}
	}
	if f := in.limitFactor; f != 0 && !(f >= 1) {
		return s, fmt.Errorf("--assume-limits %g: want 1 or more: with less, jobs are ended before they are done", f)
	}
	if err := errors.Join(in.readSpot(&s.Faults), in.readStockOuts(&s.Faults)); err != nil {
		return s, err
	}
	s.Restart.Checkpoint = int64(in.checkpoint / time.Second)
	for i, into := range []*int64{&s.Restart.OneNode, &s.Restart.ManyNodes} {
		text := in.restart[min(i, len(in.restart)-1)]
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return s, fmt.Errorf("--restart %s: want a time, or two, as 40s,60s", text)
		}
		*into = int64(d / time.Second)
	}
	return s, nil
}
