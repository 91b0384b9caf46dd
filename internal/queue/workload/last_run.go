package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

// A workload that uses a budget tells of its last run: while it has quota, and when it has finished, by its admission and
// conditions; once its quota was taken away, by a condition that is written with that.

const (
	// BudgetFinalizer makes a deleted workload stay until its last run is in the account of its LocalQueue. Who has it tells
	// of its runs.
	BudgetFinalizer = "elasticai.io/budget"
	// lastRunCondition tells of the run that a workload without quota had last.
	lastRunCondition = "elasticai.io/LastRun"
	// stoppedAnnotation says when the job of a deleted workload had stopped.
	stoppedAnnotation = "elasticai.io/stopped-at"
)

// longestSubmitter is how much of a user's name is written.
const longestSubmitter = 253

// CutSubmitter is a user's name, or the beginning of one that is very long.
func CutSubmitter(name string) string {
	if len(name) > longestSubmitter {
		name = name[:longestSubmitter]
	}
	return strings.ToValidUTF8(name, "")
}

// reportedRun is a run as the condition's message has it.
type reportedRun struct {
	From         time.Time        `json:"from"`
	Until        time.Time        `json:"until"`
	LocalQueue   string           `json:"localQueue"`
	ClusterQueue string           `json:"clusterQueue"`
	User         string           `json:"user,omitempty"`
	Amounts      []reportedAmount `json:"amounts"`
}

type reportedAmount struct {
	Flavor   string `json:"flavor"`
	Resource string `json:"resource"`
	Units    int64  `json:"units"`
	// Since is when it began to count, if that is not the start of the run.
	Since time.Time `json:"since,omitzero"`
}

// LastRun is the run that a workload tells of, and the LocalQueue it was of; nil: it had none. It is what the object says
// alone: a run that ended by a clock that is behind may have ended before it began.
func LastRun(wl *kueue.Workload) (run *budget.Run, localQueue string) {
	if !HasReservation(wl) {
		return reportedLastRun(wl)
	}
	run = &budget.Run{
		UID: string(wl.UID), User: CutSubmitter(wl.Annotations[v1alpha1.SubmittedByAnnotation]), Start: condition(wl, kueue.WorkloadQuotaReserved).LastTransitionTime.Time,
		Queue: string(wl.Status.Admission.ClusterQueue), Amounts: append(runAmounts(wl.Status.Admission), boughtAmounts(wl)...),
	}
	switch {
	case IsFinished(wl):
		run.End = condition(wl, kueue.WorkloadFinished).LastTransitionTime.Time
	case IsGone(wl):
		run.End = stoppedAt(wl)
	}
	return run, string(wl.Spec.QueueName)
}

// stoppedAt is when the job of a deleted workload had stopped: pods may take their time to end. Without one, or with one
// that is earlier, when it was deleted.
func stoppedAt(wl *kueue.Workload) time.Time {
	if at, err := time.Parse(time.RFC3339, wl.Annotations[stoppedAnnotation]); err == nil && at.After(wl.DeletionTimestamp.Time) {
		return at
	}
	return wl.DeletionTimestamp.Time
}

// TellsRuns says that a workload uses a budget, and tells of its runs.
func TellsRuns(wl *kueue.Workload) bool {
	return slices.Contains(wl.Finalizers, BudgetFinalizer)
}

// IsGone says that a workload is there for its budget alone: it was deleted, and its job has stopped.
func IsGone(wl *kueue.Workload) bool {
	return wl.DeletionTimestamp != nil && !HasFinalizer(wl) && TellsRuns(wl)
}

// hasEnded says that a workload will not have quota any more.
func hasEnded(wl *kueue.Workload) bool { return IsFinished(wl) || IsGone(wl) }

// TellsOfOther says that a workload without quota tells of the run that it had last. It may have none before that is in the
// account.
func TellsOfOther(wl *kueue.Workload) bool {
	return !HasReservation(wl) && TellsRuns(wl) && isTrue(wl, lastRunCondition)
}

// ForgetLastRun has a workload tell of no run any more. The condition stays: an apply removes one only if nobody else wrote it.
func ForgetLastRun(wl *kueue.Workload, now time.Time) bool {
	return isTrue(wl, lastRunCondition) && set(wl, lastRunCondition, false, "Settled", "", now)
}

// stoppedPatch is the part of the patch that lets a workload go which says when that was, if it uses a budget.
func stoppedPatch(wl *kueue.Workload, now time.Time) string {
	if !TellsRuns(wl) {
		return ""
	}
	at := now.UTC().Format(time.RFC3339)
	if len(wl.Annotations) == 0 {
		return fmt.Sprintf(`,{"op":"add","path":"/metadata/annotations","value":{%q:%q}}`, stoppedAnnotation, at)
	}
	return fmt.Sprintf(`,{"op":"add","path":"/metadata/annotations/%s","value":%q}`, strings.ReplaceAll(stoppedAnnotation, "/", "~1"), at)
}

// reportedLastRun reads the condition. One that nobody can read tells of nothing.
func reportedLastRun(wl *kueue.Workload) (*budget.Run, string) {
	report := condition(wl, lastRunCondition)
	if report == nil || report.Status != metav1.ConditionTrue {
		return nil, ""
	}
	var r reportedRun
	if err := json.Unmarshal([]byte(report.Message), &r); err != nil || r.From.IsZero() || r.Until.IsZero() {
		return nil, ""
	}
	run := &budget.Run{UID: string(wl.UID), User: r.User, Start: r.From, End: r.Until, Queue: r.ClusterQueue}
	for _, a := range r.Amounts {
		run.Amounts = append(run.Amounts, budget.Amount(a))
	}
	return run, r.LocalQueue
}

// reportLastRun notes the run of a workload whose quota is taken away now, in the same write: afterwards nothing else tells
// of its flavors, or of when it began.
func reportLastRun(wl *kueue.Workload, now time.Time) {
	if !TellsRuns(wl) || !HasReservation(wl) {
		return
	}
	run, localQueue := LastRun(wl)
	report := reportedRun{From: run.Start.UTC(), Until: run.End.UTC(), LocalQueue: localQueue, ClusterQueue: run.Queue, User: run.User}
	if run.End.IsZero() {
		report.Until = now.UTC().Truncate(time.Second)
	}
	for _, a := range run.Amounts {
		a.Since = a.Since.UTC()
		report.Amounts = append(report.Amounts, reportedAmount(a))
	}
	message, err := json.Marshal(report)
	if err != nil {
		return // it has plain values alone
	}
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
		Type: lastRunCondition, Status: metav1.ConditionTrue, Reason: "QuotaReleased", Message: string(message),
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: wl.Generation,
	})
}

// flavorOfCards is the flavor of a pod set's cards, or of its first resource.
func flavorOfCards(a *kueue.Admission, podSet kueue.PodSetReference) string {
	for i := range a.PodSetAssignments {
		set := &a.PodSetAssignments[i]
		if set.Name != podSet {
			continue
		}
		if flavor, has := set.Flavors["nvidia.com/gpu"]; has {
			return string(flavor)
		}
		for _, name := range slices.Sorted(maps.Keys(set.Flavors)) {
			return string(set.Flavors[name])
		}
	}
	return ""
}

// runAmounts is what an admission has of each flavor and resource, in order.
func runAmounts(a *kueue.Admission) []budget.Amount {
	var list []budget.Amount
	for i := range a.PodSetAssignments {
		set := &a.PodSetAssignments[i]
		for _, name := range slices.Sorted(maps.Keys(set.ResourceUsage)) {
			flavor, units := string(set.Flavors[name]), Amount(name, set.ResourceUsage[name])
			at := slices.IndexFunc(list, func(a budget.Amount) bool { return a.Flavor == flavor && a.Resource == string(name) })
			switch {
			case units == 0 || string(name) == budget.Money: // which is no resource
			case at < 0:
				list = append(list, budget.Amount{Flavor: flavor, Resource: string(name), Units: units})
			default:
				list[at].Units = min(list[at].Units, largest-min(units, largest)) + units
			}
		}
	}
	return list
}
