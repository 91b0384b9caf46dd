package faults

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/faults/memapi"
)

// checks is what the invariants remember between steps.
type checks struct {
	version int64
	// preempted are the UIDs of those that were preempted, by that of their preemptor.
	preempted map[string][]string
	admitted  map[string]bool // workloads that had quota in the last step, by UID
	// unaware: in this step a request was carried out that was sent before its sender knew that a node was lost or a pod
	// bound.
	// Whom it evicts is excused.
	unaware bool
	excused map[string]bool // UIDs of those that are evicted
}

func newChecks() checks {
	return checks{version: -1, preempted: map[string][]string{}, admitted: map[string]bool{}, excused: map[string]bool{}}
}

// excuse what has been preempted for a workload until now.
func (c *checks) excuse(preemptor string) {
	for _, uid := range c.preempted[preemptor] {
		c.excused[uid] = true
	}
	delete(c.preempted, preemptor)
}

// checkStep checks what holds at all times.
func (w *World) checkStep() {
	defer func() { w.checks.unaware = false }()
	if w.checks.version == w.api.Version() {
		return
	}
	w.checks.version = w.api.Version()
	workloads := memapi.Objects[*kueue.Workload](w.api)
	for _, check := range []func([]*kueue.Workload) string{
		w.oneWorkloadPerJob, w.conditionsAgree, w.notePreemptions, w.quotaWithinTree, w.startedWithQuota, w.cardsGivenOnce,
	} {
		if broken := check(workloads); broken != "" {
			w.breakInvariant(broken)
		}
	}
}

// inUse is what a workload counts in its queue, less the pods that it no longer needs.
func (w *World) inUse(wl *kueue.Workload) int64 {
	total := int64(0)
	for _, set := range wl.Status.Admission.PodSetAssignments {
		usage, count := set.ResourceUsage[w.setting.resource()], int64(ptr.Deref(set.Count, 1))
		left := int64(wl.Spec.PodSets[0].Count) // it may have been admitted when some had ended already
		for _, r := range wl.Status.ReclaimablePods {
			left = max(0, left-int64(r.Count))
		}
		total += usage.Value() / count * min(left, count)
	}
	return total
}

// quotaWithinTree: usage is within nominal quota and limits at every node of the quota tree.
func (w *World) quotaWithinTree(workloads []*kueue.Workload) string {
	usage := map[string]int64{}
	for _, wl := range workloads {
		if workload.UsesQuota(wl) {
			usage[string(wl.Status.Admission.ClusterQueue)] += w.inUse(wl)
		}
	}
	// What a child has that it does not guarantee goes up to its cohort, and so does what it uses of that.
	quota, used := map[string]int64{}, map[string]int64{}
	for _, q := range w.setting.Queues {
		nominal, limit := int64(q.Nominal), int64(q.Nominal)
		lent := nominal
		if q.Cohort != "" {
			limit = 1 << 40
			if q.Borrowing >= 0 {
				limit = nominal + int64(q.Borrowing)
			}
			if q.Lending >= 0 {
				lent = min(nominal, int64(q.Lending))
			}
			quota[q.Cohort] += lent
			used[q.Cohort] += max(0, usage[q.Name]-(nominal-lent))
		}
		if usage[q.Name] > limit {
			return fmt.Sprintf("quota: ClusterQueue %s uses %d, more than its limit of %d", q.Name, usage[q.Name], limit)
		}
	}
	if all, total := used["org"]+used["unit"], quota["org"]+quota["unit"]; all > total {
		return fmt.Sprintf("quota: the cohort's queues use %d of the %d that is lent", all, total)
	}
	return ""
}

// startedWithQuota: a job that is not suspended has quota.
func (w *World) startedWithQuota(workloads []*kueue.Workload) string {
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		if *job.Spec.Suspend || jobEnded(job) {
			continue
		}
		if !slices.ContainsFunc(workloads, func(wl *kueue.Workload) bool {
			return metav1.IsControlledBy(wl, job) && workload.HasReservation(wl)
		}) {
			return fmt.Sprintf("started: job %s runs without quota", job.Name)
		}
	}
	return ""
}

// oneWorkloadPerJob: a job has no second workload that could start it twice.
func (w *World) oneWorkloadPerJob(workloads []*kueue.Workload) string {
	owners := map[string]string{}
	for _, wl := range workloads {
		if owner := metav1.GetControllerOf(wl); owner != nil {
			if other := owners[string(owner.UID)]; other != "" {
				return fmt.Sprintf("twice: job %s has workloads %s and %s", owner.Name, other, wl.Name)
			}
			owners[string(owner.UID)] = wl.Name
		}
	}
	return ""
}

// conditionsAgree: a workload's conditions do not contradict each other nor its admission.
func (w *World) conditionsAgree(workloads []*kueue.Workload) string {
	for _, wl := range workloads {
		reserved := meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		switch {
		case reserved != (wl.Status.Admission != nil):
			return fmt.Sprintf("conditions: workload %s has QuotaReserved=%t and admission %v", wl.Name, reserved, wl.Status.Admission)
		case workload.IsAdmitted(wl) && !reserved && !workload.IsFinished(wl):
			return fmt.Sprintf("conditions: workload %s is admitted without quota", wl.Name)
		}
	}
	return ""
}

// notePreemptions notes who was preempted for whom; checkRest asks whether it helped.
func (w *World) notePreemptions(workloads []*kueue.Workload) string {
	for _, wl := range workloads {
		had := w.checks.admitted[string(wl.UID)]
		has := workload.HasReservation(wl)
		if has && !had {
			delete(w.checks.preempted, string(wl.UID))
			w.noteTakenOver(wl, workloads)
		}
		w.checks.admitted[string(wl.UID)] = has
		c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != kueue.WorkloadEvictedByPreemption || !has {
			delete(w.checks.excused, string(wl.UID))
			continue
		}
		if _, after, ok := strings.Cut(c.Message, "(UID: "); ok {
			uid, _, _ := strings.Cut(after, ",")
			victims := w.checks.preempted[uid]
			switch {
			case w.checks.admitted[uid] || slices.Contains(victims, string(wl.UID)) || w.checks.excused[string(wl.UID)]:
			case w.checks.unaware:
				w.checks.excused[string(wl.UID)] = true
			default:
				w.checks.preempted[uid] = append(victims, string(wl.UID))
			}
		}
	}
	return ""
}

// noteTakenOver forgets who was preempted for workloads that one which got in could have preempted: it may take over
// their nominations, as if it were for its sake.
func (w *World) noteTakenOver(by *kueue.Workload, workloads []*kueue.Workload) {
	for _, wl := range workloads {
		if w.mayPreempt(by, wl) || w.mayComeFirst(by, wl, workloads) {
			w.checks.excuse(string(wl.UID))
		}
	}
}

// mayComeFirst says whether, where shares decide, a workload of another queue takes over a nomination: if its part of the
// tree, which it is in by now, borrows no more than the other's would.
func (w *World) mayComeFirst(by, wl *kueue.Workload, workloads []*kueue.Workload) bool {
	q, other := w.queueOf(by), w.queueOf(wl)
	if !w.setting.Fair || q.Name == other.Name || q.Cohort == "" || other.Cohort == "" {
		return false
	}
	mine, theirs := q.Name, other.Name
	if q.Cohort != other.Cohort { // of a queue in the cohort below and one beside that, the cohort competes
		if mine = "unit"; q.Cohort != mine {
			mine, theirs = q.Name, "unit"
		}
	}
	request := wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[w.setting.resource()]
	return w.borrowed(mine, workloads, 0) <= w.borrowed(theirs, workloads, request.Value()*int64(wl.Spec.PodSets[0].Count))
}

// borrowed is what a queue or the lower cohort uses beyond its nominal quota, when those who are evicted have left and
// with so much more.
func (w *World) borrowed(of string, workloads []*kueue.Workload, more int64) int64 {
	for _, q := range w.setting.Queues {
		if q.Name != of && q.Cohort != of {
			continue
		}
		more -= int64(q.Nominal)
		for _, wl := range workloads {
			if workload.UsesQuota(wl) && !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) && string(wl.Status.Admission.ClusterQueue) == q.Name {
				more += w.inUse(wl)
			}
		}
	}
	return max(0, more)
}

// mayPreempt says whether the policies of its queue let a workload preempt another.
func (w *World) mayPreempt(by, wl *kueue.Workload) bool {
	q, other := w.queueOf(by), w.queueOf(wl)
	policy := q.Within
	if q.Name != other.Name {
		if policy = q.Reclaim; q.Cohort == "" || other.Cohort == "" || w.setting.Fair {
			return false // where shares decide, mayComeFirst says so
		}
	}
	switch policy {
	case kueue.PreemptionPolicyAny:
		return true
	case kueue.PreemptionPolicyLowerPriority:
		return ptr.Deref(by.Spec.Priority, 0) > ptr.Deref(wl.Spec.Priority, 0)
	}
	return false
}

func (w *World) queueOf(wl *kueue.Workload) queueSetting {
	for _, q := range w.setting.Queues {
		if q.Name == string(wl.Spec.QueueName) {
			return q
		}
	}
	return queueSetting{}
}

// cardsGivenOnce: what pods have of a card is no more than there is.
func (w *World) cardsGivenOnce([]*kueue.Workload) string {
	if !w.setting.Cards {
		return ""
	}
	used := map[string]int64{}
	for _, pod := range memapi.Objects[*corev1.Pod](w.api) {
		if pod.Spec.NodeName == "" || ended(pod) {
			continue
		}
		list, given := pod.Annotations[egpu.ContainerPrefix+"main"]
		if !given {
			return fmt.Sprintf("cards: pod %s is bound and has none", pod.Name)
		}
		cards, err := request.ParseCards(list)
		if err != nil || len(cards) != 1 {
			return fmt.Sprintf("cards: pod %s has %q: %v", pod.Name, list, err)
		}
		asked := pod.Spec.Containers[0].Resources.Requests[egpu.ResourceCore]
		key := fmt.Sprintf("%s/%d", pod.Spec.NodeName, cards[0])
		if used[key] += asked.Value(); used[key] > 100 {
			return fmt.Sprintf("cards: %s has given out %d of 100 with pod %s", key, used[key], pod.Name)
		}
	}
	return ""
}

// checkRest checks what holds when nothing happens any more.
func (w *World) checkRest(when string) {
	if w.broken != "" {
		return
	}
	workloads := memapi.Objects[*kueue.Workload](w.api)
	for _, check := range []func([]*kueue.Workload) string{w.quotaHasJobs, w.jobsHaveWorkloads, w.jobsFollow, w.reasonsGiven, w.statusesTrue, w.preemptorsGotIn, w.allocationsTrue, w.runsAccounted} {
		if broken := check(workloads); broken != "" {
			w.breakInvariant(when + ": " + broken + "\n" + w.decisions())
		}
	}
}

// quotaHasJobs: nobody has quota without a job that could use it, or was stopped and has it still.
func (w *World) quotaHasJobs(workloads []*kueue.Workload) string {
	jobs := memapi.Objects[*batchv1.Job](w.api)
	for _, wl := range workloads {
		if !slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return metav1.IsControlledBy(wl, job) }) {
			return fmt.Sprintf("leaked: workload %s has no job", wl.Name)
		}
		if workload.HasReservation(wl) && !workload.IsFinished(wl) && workload.IsEvicted(wl) {
			return fmt.Sprintf("leaked: workload %s is evicted and has its quota still", wl.Name)
		}
	}
	return ""
}

// jobsHaveWorkloads: no job is forgotten.
func (w *World) jobsHaveWorkloads(workloads []*kueue.Workload) string {
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		i := slices.IndexFunc(workloads, func(wl *kueue.Workload) bool { return metav1.IsControlledBy(wl, job) })
		switch {
		case i < 0 && !jobEnded(job):
			return fmt.Sprintf("lost: job %s has no workload", job.Name)
		case i >= 0 && jobEnded(job) != workload.IsFinished(workloads[i]):
			return fmt.Sprintf("lost: job %s ended=%t, its workload says finished=%t", job.Name, jobEnded(job), workload.IsFinished(workloads[i]))
		}
	}
	return ""
}

// jobsFollow: admitted jobs run, and all others are suspended.
func (w *World) jobsFollow(workloads []*kueue.Workload) string {
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		for _, wl := range workloads {
			if metav1.IsControlledBy(wl, job) && !jobEnded(job) && workload.IsAdmitted(wl) == *job.Spec.Suspend {
				return fmt.Sprintf("lost: workload of job %s is admitted=%t, the job is suspended=%t", job.Name, workload.IsAdmitted(wl), *job.Spec.Suspend)
			}
		}
	}
	return ""
}

// reasonsGiven: a workload that waits says why, unless it only waits behind the first of a StrictFIFO queue.
func (w *World) reasonsGiven(workloads []*kueue.Workload) string {
	for _, wl := range workloads {
		c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		if workload.IsActive(wl) && !workload.IsFinished(wl) && !w.isStrict(wl) && (c == nil || c.Reason == "" || c.Message == "") {
			return fmt.Sprintf("conditions: workload %s waits and does not say why", wl.Name)
		}
	}
	return ""
}

func (w *World) isStrict(wl *kueue.Workload) bool {
	return slices.ContainsFunc(w.setting.Queues, func(q queueSetting) bool { return w.setting.ordersStrictly(q) && q.Name == string(wl.Spec.QueueName) })
}

// statusesTrue: the statuses of queues count what is there.
func (w *World) statusesTrue(workloads []*kueue.Workload) string {
	for _, cq := range memapi.Objects[*kueue.ClusterQueue](w.api) {
		var reserving, admitted int32
		var used int64
		for _, wl := range workloads {
			if !workload.UsesQuota(wl) || string(wl.Status.Admission.ClusterQueue) != cq.Name {
				continue
			}
			reserving++
			used += w.inUse(wl)
			if workload.IsAdmitted(wl) {
				admitted++
			}
		}
		shown := int64(0)
		for _, flavor := range cq.Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				shown += r.Total.Value()
			}
		}
		if cq.Status.ReservingWorkloads != reserving || cq.Status.AdmittedWorkloads != admitted || shown != used {
			return fmt.Sprintf("status: ClusterQueue %s says reserving=%d admitted=%d used=%d; it is %d, %d, %d", cq.Name,
				cq.Status.ReservingWorkloads, cq.Status.AdmittedWorkloads, shown, reserving, admitted, used)
		}
	}
	for _, lq := range memapi.Objects[*kueue.LocalQueue](w.api) {
		var reserving, admitted int32
		for _, wl := range workloads {
			if string(wl.Spec.QueueName) != lq.Name || !workload.UsesQuota(wl) {
				continue
			}
			reserving++
			if workload.IsAdmitted(wl) {
				admitted++
			}
		}
		if lq.Status.ReservingWorkloads != reserving || lq.Status.AdmittedWorkloads != admitted {
			return fmt.Sprintf("status: LocalQueue %s says reserving=%d admitted=%d; it is %d, %d", lq.Name,
				lq.Status.ReservingWorkloads, lq.Status.AdmittedWorkloads, reserving, admitted)
		}
	}
	return ""
}

// preemptorsGotIn: nobody was preempted for a workload that did not get in.
func (w *World) preemptorsGotIn(workloads []*kueue.Workload) string {
	for _, wl := range workloads {
		if !workload.IsActive(wl) || workload.IsFinished(wl) || wl.DeletionTimestamp != nil || !w.queueIsOpen(wl) {
			continue
		}
		for _, victim := range workloads { // one that ended by itself meanwhile, or was deleted, lost nothing
			if slices.Contains(w.checks.preempted[string(wl.UID)], string(victim.UID)) && !workload.IsFinished(victim) {
				return fmt.Sprintf("preempted: %s was preempted for %s, which did not get in", victim.Name, wl.Name)
			}
		}
	}
	return ""
}

func (w *World) queueIsOpen(wl *kueue.Workload) bool {
	for _, cq := range memapi.Objects[*kueue.ClusterQueue](w.api) {
		if cq.Name == string(wl.Spec.QueueName) {
			return ptr.Deref(cq.Spec.StopPolicy, kueue.None) == kueue.None
		}
	}
	return false
}

// allocationsTrue: GPU objects say which pods have what of them.
func (w *World) allocationsTrue([]*kueue.Workload) string {
	if !w.setting.Cards {
		return ""
	}
	for _, card := range memapi.Objects[*egpu.GPU](w.api) {
		var want []string
		for _, pod := range memapi.Objects[*corev1.Pod](w.api) {
			cards, _ := request.ParseCards(pod.Annotations[egpu.ContainerPrefix+"main"])
			if pod.Spec.NodeName == card.Spec.NodeName && !ended(pod) && slices.Contains(cards, card.Spec.Index) {
				want = append(want, pod.Namespace+"/"+pod.Name)
			}
		}
		var shown []string
		for name := range card.Status.Allocated {
			shown = append(shown, name)
		}
		slices.Sort(shown)
		slices.Sort(want)
		if !slices.Equal(shown, want) {
			return fmt.Sprintf("status: GPU %s says %v; it is %v", card.Name, shown, want)
		}
	}
	return ""
}

// runsAccounted: the run of a workload that has ended is in an account, and the policy says that all of it is in force.
func (w *World) runsAccounted(workloads []*kueue.Workload) string {
	if !w.setting.Policies {
		return ""
	}
	for _, p := range memapi.Objects[*queuepolicy.QueuePolicy](w.api) {
		if !meta.IsStatusConditionTrue(p.Status.Conditions, queuepolicy.Accepted) {
			return fmt.Sprintf("policy: it is not accepted: %v", p.Status.Conditions)
		}
	}
	for _, wl := range workloads {
		if workload.IsFinished(wl) && slices.Contains(wl.Finalizers, workload.BudgetFinalizer) {
			return fmt.Sprintf("budget: workload %s has ended, and its run is in no account", wl.Name)
		}
	}
	return ""
}

// checkEnd checks that all jobs that exist have run to their end.
func (w *World) checkEnd() {
	if w.broken != "" {
		return
	}
	w.checkRest("in the end")
	for _, job := range memapi.Objects[*batchv1.Job](w.api) {
		if !jobEnded(job) && w.couldRun(job) && !w.isBlocked(job) {
			w.breakInvariant(fmt.Sprintf("lost: job %s never ran to its end\n%s", job.Name, w.decisions()))
		}
	}
}

// couldRun says that a job fits into its queue's nominal quota.
func (w *World) couldRun(job *batchv1.Job) bool {
	asked := job.Spec.Template.Spec.Containers[0].Resources.Requests[w.setting.resource()]
	total := asked.Value() * int64(*job.Spec.Parallelism)
	for _, q := range w.setting.Queues {
		if job.Labels[kinds.QueueNameLabel] == q.Name {
			return total <= int64(q.Nominal) && w.fitsNodes(asked.Value(), int64(*job.Spec.Parallelism))
		}
	}
	return false
}

// isBlocked says that another job of its StrictFIFO queue never fits.
func (w *World) isBlocked(job *batchv1.Job) bool {
	for _, q := range w.setting.Queues {
		if !w.setting.ordersStrictly(q) || q.Name != job.Labels[kinds.QueueNameLabel] {
			continue
		}
		for _, other := range memapi.Objects[*batchv1.Job](w.api) {
			if other.Labels[kinds.QueueNameLabel] == q.Name && !w.couldRun(other) {
				return true
			}
		}
	}
	return false
}

// fitsNodes says that as many pods of a size fit on all cards.
func (w *World) fitsNodes(size, pods int64) bool {
	return !w.setting.Cards || pods <= int64(w.setting.Nodes*cardsPerNode)*(100/size)
}
