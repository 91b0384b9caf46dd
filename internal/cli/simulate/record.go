package simulate

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
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

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// RecordCommand is "elastic record".
func RecordCommand() *cobra.Command {
	flags := &cluster.Flags{}
	var path string
	var names hashes
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write the jobs that a cluster ran as a trace for \"elastic simulate\"",
		Long: `Write the Workloads of a cluster that have finished as a trace: when they came, how
long they ran, what they asked for, and who submitted them where that is recorded
(controllers.recordSubmitters), or else their namespace. Nothing is changed in the
cluster. What has been deleted is not there any more: jobs are, with their Workloads,
as long as their owners keep them (ttlSecondsAfterFinished), and Workloads alone for
objectRetentionPolicies of elastic-queue's configuration. Workloads that have not
finished, or never ran, are left out and counted. With --hash, names of jobs and users are replaced by digits that stand for
them, other ones each time, so that nobody can guess a name and look whether it is
there; with --hash-queues those of queues, too.`,
		Example: "  elastic record --hash -f jobs.csv\n  elastic simulate --trace jobs.csv --from-cluster",
		Args:    cobra.NoArgs,
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, _ []string) error {
			names.salt = []byte(rand.Text())
			leftOut, err := record(cmd.Context(), c, cmd.OutOrStdout(), path, &names)
			if lines, why := world.LeftOut(leftOut); lines > 0 && err == nil {
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%d workloads are left out: %s\n", lines, why)
			}
			return err
		}),
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "file to write (default standard output)")
	cmd.Flags().BoolVar(&names.jobs, "hash", false, "replace names of jobs and users")
	cmd.Flags().BoolVar(&names.queues, "hash-queues", false, "replace names of jobs, users and queues; --map '*=QUEUE' sends such jobs to a queue of a cluster")
	flags.AddTo(cmd)
	return cmd
}

func record(ctx context.Context, c *cluster.Client, out io.Writer, path string, names *hashes) (leftOut map[string]int, err error) {
	var workloads kueue.WorkloadList
	if err := c.List(ctx, &workloads); err != nil {
		return nil, err
	}
	if path == "" {
		return writeTrace(out, workloads.Items, names)
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	leftOut, err = writeTrace(f, workloads.Items, names)
	return leftOut, errors.Join(err, f.Close())
}

// writeTrace writes finished workloads in the order they were created, and says how many of them it leaves out, by why.
func writeTrace(to io.Writer, workloads []kueue.Workload, names *hashes) (leftOut map[string]int, err error) {
	leftOut = map[string]int{}
	workloads = slices.DeleteFunc(slices.Clone(workloads), func(wl kueue.Workload) bool {
		why := noJob(&wl)
		if _, ran := runTime(&wl); !ran && why == "" {
			why = noRun(&wl)
		}
		if why != "" {
			leftOut[why]++
		}
		return why != ""
	})
	if _, why := world.LeftOut(leftOut); len(workloads) == 0 && why != "" {
		return leftOut, errors.New("no workload is a job that has run to an end: " + why)
	} else if len(workloads) == 0 {
		return leftOut, errors.New("there is no workload, in any namespace")
	}
	slices.SortFunc(workloads, func(a, b kueue.Workload) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	start := workloads[0].CreationTimestamp
	w := csv.NewWriter(to)
	if err := w.Write([]string{"job_id", "user", "queue", "submit_s", "duration_s", "gpus", "cpus", "memory_mib", "priority", "limit_s", "status"}); err != nil {
		return leftOut, err
	}
	for i := range workloads {
		wl := &workloads[i]
		ran, _ := runTime(wl)
		id, user := names.job(wl.Namespace+"/"+wl.Name), names.job(cmp.Or(wl.Annotations[queuepolicy.SubmittedByAnnotation], wl.Namespace))
		cards, cpus, memory := askedBy(wl)
		priority, limit := int64(0), int64(0)
		if wl.Spec.Priority != nil {
			priority = int64(*wl.Spec.Priority)
		}
		if wl.Spec.MaximumExecutionTimeSeconds != nil {
			limit = int64(*wl.Spec.MaximumExecutionTimeSeconds)
		}
		number := func(v int64) string { return strconv.FormatInt(v, 10) }
		if err := w.Write([]string{
			id, user, names.queue(queueOf(wl)), number(int64(wl.CreationTimestamp.Sub(start.Time) / time.Second)), number(int64(ran / time.Second)),
			number(cards), number(cpus), number(memory), number(priority), number(limit), outcomeOf(wl),
		}); err != nil {
			return leftOut, err
		}
	}
	w.Flush()
	return leftOut, w.Error()
}

// noRun says why nobody knows how long a workload runs.
func noRun(wl *kueue.Workload) string {
	if workload.IsFinished(wl) {
		return "never ran"
	}
	return "has not finished"
}

// noJob says why a workload is not a job of its own, or not one that is simulated; "" for one that is.
func noJob(wl *kueue.Workload) string {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	switch parent, _ := workload.ParentOf(wl); {
	case parent.Name != "":
		return "a variant of another workload"
	case finished != nil && finished.Reason == kueue.WorkloadSliceReplaced:
		return "another slice took its place"
	}
	for i := range wl.Spec.PodSets {
		for name := range workload.PodRequests(&wl.Spec.PodSets[i].Template.Spec) {
			if slices.Contains(partsOfCards, name) {
				return "asks for part of a card"
			}
		}
	}
	return ""
}

// partsOfCards are the resources by which pods ask for less than a card, or for a claim of one.
var partsOfCards = []corev1.ResourceName{
	egpu.ResourceCore, egpu.ResourceMemory, egpu.ResourceClaim, egpu.ResourceCoreOld, egpu.ResourceMemoryOld,
	egpu.ResourceQGPUCore, egpu.ResourceQGPUCoreGreedy, egpu.ResourceQGPUMemory,
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

// outcomeOf a finished workload, as its condition says it.
func outcomeOf(wl *kueue.Workload) string {
	switch finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); finished.Reason {
	case kueue.WorkloadFinishedReasonSucceeded, kueue.WorkloadFinishedReasonFailed:
		return finished.Reason
	case kueue.WorkloadFinishedReasonOutOfSync, kueue.WorkloadFinishedReasonOwnerNotFound: // its job is another one, or gone
		return "Cancelled"
	}
	return ""
}

// askedBy all its pods: cards, cores and MiB, rounded up.
func askedBy(wl *kueue.Workload) (cards, cpus, memory int64) {
	var milli, bytes int64
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		asked := workload.PodRequests(&ps.Template.Spec)
		of := asked[corev1.ResourceName(world.CardResource)]
		cards += of.Value() * int64(ps.Count)
		milli += asked.Cpu().MilliValue() * int64(ps.Count)
		bytes += asked.Memory().Value() * int64(ps.Count)
	}
	return cards, (milli + 999) / 1000, (bytes + 1<<20 - 1) >> 20
}

// hashes are which names are replaced. The salt is new each time and written nowhere.
type hashes struct {
	jobs, queues bool
	salt         []byte
}

func (h *hashes) job(name string) string {
	if h.jobs || h.queues {
		return h.digest(name)
	}
	return name
}

func (h *hashes) queue(name string) string {
	if h.queues {
		return h.digest(name)
	}
	return name
}

// digest stands for a name; the same name has the same one, in one trace.
func (h *hashes) digest(name string) string {
	mac := hmac.New(sha256.New, h.salt)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
