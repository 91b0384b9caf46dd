package simulate

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// Command is "elastic simulate".
func Command() *cobra.Command {
	in := &inputs{}
	var printer output.Printer
	var sets []string
	var plot, timeline string
	var alone bool
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Run a trace of jobs through the real engines: what would this cluster do?",
		Long: `Run a trace of jobs through the engines that decide in a real cluster, on a virtual
clock: what would become of these jobs on this cluster, with these queues?

Each --set is a variant that is run beside the cluster as it is; a comma joins
changes of one variant.

  queue/NAME.quota.gpu=64                 nominal quota of cards, as queue/a.quota.gpu=64;
                                          quota.FLAVOR, quota.FLAVOR.RESOURCE of others
  queue/NAME.borrowingLimit=8             how much it may borrow; lendingLimit=8 lend; both
                                          with .FLAVOR.RESOURCE, too
  cohort/NAME.quota.FLAVOR=64             quota of a Cohort's own, and its limits
  queue/NAME.cohort=NAME                  whom it borrows from
  queue/NAME.weight=2                     under fair sharing
  queue/NAME.queueingStrategy=StrictFIFO  the head blocks; or BestEffortFIFO
  queue/NAME.backfill=EASY                jobs with a limit pass a blocked head; or None
  queue/NAME.order=LeastAttainedService   who has used least goes first; or Age
  queue/NAME.withinClusterQueue=LowerPriority, queue/NAME.reclaimWithinCohort=Any
  cohort/NAME.fairSharing=drf             or maxmin, off; policy.fairSharing for all
  queue/NAME.budget=500/Week              GPU-hours a Day, Week or Month; 500/Week/Drain
                                          stops what runs when they are spent; off
  cohort/NAME.budget=..., localqueue/NAMESPACE/NAME.budget=...
  queue/NAME.reservation=16@24h+8h        cards set aside from a time of the trace on, or
                                          from 2026-12-01T08:00, or '0 8 * * 1-5'; off
  queue/NAME.defragmentation=4/2h         jobs that move to other nodes for one, and the
                                          work they may lose, all together; off
  queue/NAME.shareOfNodes=25/10m          nominal quota follows the nodes, with a grace; off
  queue/NAME.window=64@0 20 * * *+10h     another nominal quota at times, as in a CronJob; off
  queue/NAME.runTime=1h, queue/NAME.quantile=90
                                          how long jobs are taken to run that do not say, and
                                          that it is learned; off
  queue/NAME.preemption.delay=10m, queue/NAME.preemption.cooldown=10m,
  queue/NAME.preemption.minRuntime=1h     before it preempts; before it may be preempted, also
                                          .withinClusterQueue, .reclaim or .borrowed alone
  cohort/NAME.preemption.delay=..., cohort/NAME.order=..., cohort/NAME.backfill=...
                                          of all queues below a Cohort
  policy.preemptAfter=10m, policy.preemptionCooldown=10m, policy.noPreemptionRings=on
  policy.placement=binpack                which node a pod gets
  policy/NAME.backfill=on                 a queue's setting, for those that a QueuePolicy is
                                          about; a budget or reservation at its targets
  +4x8:H100-80G, -2x8:H100-80G            more nodes, like those of the model, or fewer; whose
                                          they are says @QUEUE, @FLAVOR or @LABEL=VALUE
  faults.every=6h, faults.down=2h, faults.spot=8h/10m@NODES, faults.stockOut=24h-48h@NODES
                                          as the flags, in this variant; off

queue/* stands for every queue.`,
		Example: `  # A trace on a cluster of 8 nodes, and the same with two nodes more
  elastic simulate --trace jobs.csv --nodes 8x8:H100-80G --set +2x8:H100-80G

  # Queues with their own nodes, and the same with borrowing
  elastic simulate --trace jobs.csv --shape queues.csv
  elastic simulate --trace jobs.csv --shape queues.csv --borrow --set cohort/all.fairSharing=drf

  # Slurm's jobs of last month
  sacct -a -P -S 2026-10-01 -o JobID,User,Partition,Submit,Start,End,ElapsedRaw,State,AllocTRES,TimelimitRaw > jobs.txt
  elastic simulate --trace jobs.txt --nodes 32x8:A100-80G --map '*=main'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			world.CollectSeldom()
			variants, err := in.compare(cmd, sets, timeline, alone)
			if err != nil {
				return err
			}
			if plot != "" {
				if err := writePlot(plot, variants); err != nil {
					return err
				}
			}
			names := make([]string, len(variants))
			for i := range variants {
				names[i] = variants[i].Name
			}
			return printer.Print(cmd.OutOrStdout(), variants, names, func(w output.Writer, wide bool) { printVariants(w, variants, wide) })
		},
	}
	in.addTo(cmd)
	cmd.Flags().StringArrayVar(&sets, "set", nil, "a variant: changes with commas between; may be given several times")
	cmd.Flags().StringVar(&plot, "plot", "", "also draw cards in use, jobs waiting and the use and shares of queues over time into this SVG file")
	cmd.Flags().StringVar(&timeline, "timeline", "", "also write what happened to each job in each variant, and where it ran, into this CSV file")
	cmd.Flags().BoolVar(&alone, "alone", false, "also run each queue on its own quota, and say how much later or earlier its jobs end by sharing (finish-time fairness)")
	printer.AddTo(cmd)
	cmd.AddCommand(explainCommand(), costCommand())
	return cmd
}

// explainCommand is "elastic simulate explain".
func explainCommand() *cobra.Command {
	in := &inputs{}
	var at time.Duration
	var set string
	cmd := &cobra.Command{
		Use:   "explain JOB --at TIME",
		Short: "Say why a job of the trace waits at a time of the simulation",
		Example: `  elastic simulate explain job-17 --at 36h --trace jobs.csv --nodes 8x8:H100-80G
  elastic simulate explain job-17 --at 36h --trace jobs.csv --shape queues.csv --set queue/a.quota=64`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at < time.Second {
				return errors.New("give --at: the time from the start of the trace, as 36h or 90m")
			}
			in.until = at
			trace, cluster, settings, err := in.read(cmd.Context())
			if err != nil {
				return err
			}
			if cluster, err = cluster.Set(set); err != nil {
				return err
			}
			job, err := trace.Index(args[0])
			if err != nil {
				return err
			}
			w, err := world.New(trace, cluster, settings)
			if err != nil {
				return explained(err)
			}
			world.CollectSeldom()
			if _, err := w.Run(cmd.Context()); err != nil {
				return err
			}
			printExplanation(output.To(cmd.OutOrStdout()), trace, w, job, at)
			return nil
		},
	}
	in.addTo(cmd)
	cmd.Flags().DurationVar(&at, "at", 0, "time from the start of the trace")
	cmd.Flags().StringVar(&set, "set", "", "changes of the cluster, a comma between")
	return cmd
}

// compare runs the cluster as it is and every variant of it.
func (in *inputs) compare(cmd *cobra.Command, sets []string, timeline string, alone bool) (out []world.Variant, err error) {
	trace, cluster, settings, err := in.read(cmd.Context())
	if err != nil {
		return nil, err
	}
	var log *timelineFile
	if timeline != "" {
		if log, err = newTimeline(timeline, trace); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, log.close()) }()
	}
	for i, set := range append([]string{""}, sets...) {
		changed, err := cluster.Set(set)
		if err != nil {
			return nil, err
		}
		name := set
		if i == 0 {
			name = "as it is"
		}
		run := settings
		run.Watch = log.of(name)
		w, report, err := simulated(cmd, name, trace, changed, run)
		if err != nil {
			return nil, err
		}
		if alone {
			apart, _, err := simulated(cmd, name+", each queue alone", trace, changed.Alone(), settings)
			if err != nil {
				return nil, err
			}
			w.Against(apart, report)
		}
		out = append(out, world.Variant{Name: name, Report: report})
	}
	return out, nil
}

// simulated runs a trace on a cluster, and says on a terminal how far it is.
func simulated(cmd *cobra.Command, name string, trace *world.Trace, cluster *world.Cluster, settings world.Settings) (*world.World, *world.Report, error) {
	progress := newProgress(cmd.ErrOrStderr(), name)
	defer progress.end()
	settings.Progress = progress.show
	w, err := world.New(trace, cluster, settings)
	if err != nil {
		return nil, nil, explained(err)
	}
	report, err := w.Run(cmd.Context())
	return w, report, err
}

// explained adds what to do about an error.
func explained(err error) error {
	var missing *world.MissingQueuesError
	if errors.As(err, &missing) {
		return fmt.Errorf("%w\nsay where they go: --map %s=QUEUE, or --map '*=QUEUE' for all of them", err, missing.Queues[0])
	}
	return err
}

func writePlot(path string, variants []world.Variant) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(world.Plot(f, variants), f.Close())
}
