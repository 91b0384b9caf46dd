package simulate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// Command is "elastic simulate".
func Command() *cobra.Command {
	in := &inputs{}
	var printer output.Printer
	var sets []string
	files := &outputs{}
	var alone bool
	var seeds int
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
  queue/NAME.withinClusterQueue=LowerPriority, queue/NAME.reclaimWithinCohort=Any,
  queue/NAME.borrowWithinCohort=LowerPriority/100
                                          up to a priority, or any lower one; or Never
  queue/NAME.flavorFungibility.whenCanBorrow=TryNextFlavor, .whenCanPreempt=MayStopSearch,
  .preference=PreemptionOverBorrowing     when the next flavor is tried
  cohort/NAME.fairSharing=drf             or maxmin, off; policy.fairSharing for all
  cohort/NAME.weight=2, cohort/NAME.parent=NAME
  queue/NAME.budget=500/Week              GPU-hours a Day, Week or Month; 500/Week/Drain
                                          stops what runs when they are spent; off
  cohort/NAME.budget=..., localqueue/NAMESPACE/NAME.budget=...
  queue/NAME.reservation=16@24h+8h        cards set aside from a time of the trace on, or
                                          from 2026-12-01T08:00, or '0 8 * * 1-5'; off
  queue/NAME.defragmentation=4/2h         jobs that move to other nodes for one, and the
                                          work they may lose, all together; off
  queue/NAME.shareOfNodes=25/10m          nominal quota follows the nodes, with a grace; off
  queue/NAME.headroom=10                  percent of the nodes of which it has no share; off
  queue/NAME.window=64@0 20 * * *+10h     another nominal quota at times, as in a CronJob; off
  queue/NAME.runTime=1h, queue/NAME.quantile=90
                                          how long jobs are taken to run that do not say, and
                                          that it is learned; off; also of localqueue/...
  queue/NAME.preemption.delay=10m, queue/NAME.preemption.cooldown=10m,
  queue/NAME.preemption.minRuntime=1h     before it preempts; before it may be preempted, also
                                          .withinClusterQueue, .reclaim or .borrowed alone
  cohort/NAME.preemption.delay=..., cohort/NAME.order=..., cohort/NAME.backfill=...
                                          of all queues below a Cohort
  policy.preemptAfter=10m, policy.preemptionCooldown=10m, policy.noPreemptionRings=on
  policy.placement=binpack                which node a pod gets
  policy/NAME.backfill=on                 a queue's setting, for those that a QueuePolicy is
                                          about; budget, reservation, runTime and quantile
                                          at its targets
  +4x8:H100-80G, -2x8:H100-80G            more nodes, like those of the model, or fewer; whose
                                          they are says @QUEUE, @FLAVOR or @LABEL=VALUE
  faults.every=6h, faults.down=2h, faults.spot=8h/10m@NODES, faults.stockOut=24h-48h@NODES
                                          as the flags, in this variant; off

queue/* stands for every queue. Of names with dots the longest that there is counts.`,
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
			variants, err := in.compare(cmd, sets, files, alone, seeds)
			if err != nil {
				return errors.Join(err, files.close(nil))
			}
			names := make([]string, len(variants))
			for i := range variants {
				names[i] = variants[i].Name
			}
			err = printer.Print(cmd.OutOrStdout(), variants, names, func(w output.Writer, wide bool) { printVariants(w, variants, wide) })
			return errors.Join(err, files.close(variants))
		},
	}
	in.addTo(cmd)
	cmd.Flags().StringArrayVar(&sets, "set", nil, "a variant: changes with commas between; may be given several times")
	cmd.Flags().StringVar(&files.plotTo, "plot", "", "also draw cards in use, jobs waiting and the use and shares of queues over time into this SVG file")
	cmd.Flags().StringVar(&files.timelineTo, "timeline", "", "also write what happened to each job in each variant, and where it ran, into this CSV file")
	cmd.Flags().BoolVar(&alone, "alone", false, "also run each queue on its own quota, and say how much later or earlier its jobs end by sharing (finish-time fairness)")
	cmd.Flags().IntVar(&seeds, "seeds", 1, "run each variant in which nodes are lost under so many seeds, from --seed on, and say how much its figures differ; all else is of the first")
	printer.AddTo(cmd)
	cmd.AddCommand(explainCommand(), costCommand())
	return cmd
}

// compare runs the cluster as it is and every variant of it. All of them are made before the first is run: a word that cannot be read is
// told at once.
func (in *inputs) compare(cmd *cobra.Command, sets []string, files *outputs, alone bool, seeds int) ([]world.Variant, error) {
	trace, cluster, settings, err := in.read(cmd.Context())
	if err != nil {
		return nil, err
	}
	clusters := make([]*world.Cluster, 1+len(sets))
	if clusters[0], err = cluster.Set(""); err != nil {
		return nil, err
	}
	for i, set := range sets {
		if clusters[i+1], err = cluster.Set(set); err != nil {
			return nil, err
		}
	}
	if err := world.CheckNodes(&settings.Faults, clusters); err != nil {
		return nil, err
	}
	draws := func(c *world.Cluster) bool { return c.Draws(settings.Faults) }
	if seeds < 1 || seeds > 1 && !slices.ContainsFunc(clusters, draws) {
		return nil, fmt.Errorf("--seeds %d: want 1 or more, and with more than 1 nodes that are lost by chance: --fault-every, --spot, or faults of a --set", seeds)
	}
	if err := files.open(trace); err != nil {
		return nil, err
	}
	var out []world.Variant
	for i, changed := range clusters {
		name := "as it is"
		if i > 0 {
			name = sets[i-1]
		}
		run := settings
		run.Watch = files.timeline.of(name)
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
		if seeds > 1 && draws(changed) {
			if report.Seeds, err = overSeeds(cmd, name, trace, changed, settings, report, seeds); err != nil {
				return nil, err
			}
		}
		out = append(out, world.Variant{Name: name, Report: report})
	}
	return out, nil
}

// overSeeds runs a variant under the seeds after the first one, too, and says how figures differ.
func overSeeds(cmd *cobra.Command, name string, trace *world.Trace, cluster *world.Cluster, settings world.Settings, first *world.Report, seeds int) (*world.OverSeeds, error) {
	reports := []*world.Report{first}
	for len(reports) < seeds {
		settings.Faults.Seed++
		_, report, err := simulated(cmd, fmt.Sprintf("%s, seed %d", name, settings.Faults.Seed), trace, cluster, settings)
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	return world.Over(reports), nil
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
