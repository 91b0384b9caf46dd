package simulate

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// RecordCommand is "elastic record".
func RecordCommand() *cobra.Command {
	flags := &cluster.Flags{}
	var path string
	var hash bool
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write the jobs that a cluster ran as a trace for \"elastic simulate\"",
		Long: `Write the Workloads of a cluster that have finished as a trace: when they came, how
long they ran, what they asked for. Nothing is changed in the cluster. With --hash,
names of jobs and users are replaced by digits that stand for them.`,
		Example: "  elastic record --hash -f jobs.csv\n  elastic simulate --trace jobs.csv --from-cluster",
		Args:    cobra.NoArgs,
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, _ []string) error {
			return record(cmd.Context(), c, cmd.OutOrStdout(), path, hash)
		}),
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "file to write (default standard output)")
	cmd.Flags().BoolVar(&hash, "hash", false, "replace names of jobs and users")
	flags.AddTo(cmd)
	return cmd
}

func record(ctx context.Context, c *cluster.Client, out io.Writer, path string, hash bool) error {
	var workloads kueue.WorkloadList
	if err := c.List(ctx, &workloads); err != nil {
		return err
	}
	if path == "" {
		return writeTrace(out, workloads.Items, hash)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeTrace(f, workloads.Items, hash), f.Close())
}

// writeTrace writes finished workloads in the order they were created.
func writeTrace(to io.Writer, workloads []kueue.Workload, hash bool) error {
	workloads = slices.DeleteFunc(slices.Clone(workloads), func(wl kueue.Workload) bool {
		_, ran := runTime(&wl)
		return !ran
	})
	if len(workloads) == 0 {
		return errors.New("no workload has finished yet, in any namespace")
	}
	slices.SortFunc(workloads, func(a, b kueue.Workload) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	start := workloads[0].CreationTimestamp
	w := csv.NewWriter(to)
	if err := w.Write([]string{"job_id", "user", "queue", "submit_s", "duration_s", "gpus", "priority", "limit_s"}); err != nil {
		return err
	}
	for i := range workloads {
		wl := &workloads[i]
		ran, _ := runTime(wl)
		id, user := wl.Namespace+"/"+wl.Name, wl.Namespace
		if hash {
			id, user = digest(id), digest(user)
		}
		priority, limit := int64(0), int64(0)
		if wl.Spec.Priority != nil {
			priority = max(0, int64(*wl.Spec.Priority))
		}
		if wl.Spec.MaximumExecutionTimeSeconds != nil {
			limit = int64(*wl.Spec.MaximumExecutionTimeSeconds)
		}
		number := func(v int64) string { return strconv.FormatInt(v, 10) }
		if err := w.Write([]string{
			id, user, queueOf(wl), number(int64(wl.CreationTimestamp.Sub(start.Time) / time.Second)), number(int64(ran / time.Second)),
			number(cardsOf(wl)), number(priority), number(limit),
		}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// queueOf is the ClusterQueue it ran in, or else its LocalQueue.
func queueOf(wl *kueue.Workload) string {
	if wl.Status.Admission != nil {
		return string(wl.Status.Admission.ClusterQueue)
	}
	return wl.Namespace + "/" + string(wl.Spec.QueueName)
}

// runTime of a finished workload, in all its admissions; false for one that has not finished or never ran.
func runTime(wl *kueue.Workload) (time.Duration, bool) {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if finished == nil || finished.Status != "True" || admitted == nil {
		return 0, false
	}
	var ran time.Duration
	if past := wl.Status.AccumulatedPastExecutionTimeSeconds; past != nil {
		ran = time.Duration(*past) * time.Second
	}
	if admitted.Status == "True" {
		ran += max(0, finished.LastTransitionTime.Sub(admitted.LastTransitionTime.Time))
	}
	return ran, true
}

// cardsOf all its pods.
func cardsOf(wl *kueue.Workload) int64 {
	var sum int64
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		for _, c := range ps.Template.Spec.Containers {
			cards := c.Resources.Limits[corev1.ResourceName(world.CardResource)]
			if asked, ok := c.Resources.Requests[corev1.ResourceName(world.CardResource)]; ok {
				cards = asked
			}
			sum += cards.Value() * int64(ps.Count)
		}
	}
	return sum
}

// digest stands for a name; the same name has the same one.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}
