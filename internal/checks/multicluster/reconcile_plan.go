package multicluster

import (
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// remoteState is what exists of a workload in one cluster.
type remoteState struct {
	name string
	// configured: the check sends workloads there. unserved: it would, but the cluster does not
	// serve such jobs, or its informer has not synced yet.
	configured, unserved bool
	// lost is since when the cluster does not answer; zero: it does.
	lost time.Time
	// copy of the workload; nil: none. job: the job, or a part of it, exists. shared: that is also
	// the job of other workloads, which run there.
	copy        *kueue.Workload
	job, shared bool
}

func (p *remoteState) empty() bool { return p.copy == nil && !p.job }

// situation is all that a decision about a workload depends on.
type situation struct {
	local *kueue.Workload
	// check is the state of the check; nil: none of ours applies.
	check *kueue.AdmissionCheckState
	// remotes are the configured clusters in their order, then others in which something of it
	// exists.
	remotes []remoteState
	// siblings are the other workloads of its job, or the one that it replaces: one cluster runs them all.
	siblings []kueue.Workload
	// elastic: its job may change its size while it runs. next: another workload is about to replace it.
	elastic, next bool
	// offers are what clusters cost, for the dispatcher that asks.
	offers []cloud.ClusterOffer
	// learnedRun is how long workloads like it ran, where it says nothing; 0: nobody knows.
	learnedRun time.Duration
	now        time.Time
}

func (s *situation) remote(name string) *remoteState {
	i := slices.IndexFunc(s.remotes, func(p remoteState) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &s.remotes[i]
}

// plan is what is to be done, in this order.
type plan struct {
	remove   []string // clusters to remove the job and then the copy from
	stop     string   // cluster that is to evict its copy
	nominate []string // clusters that may get a copy, if that changed
	say      string   // what the check says of that, if it changed
	create   []string // clusters that get a copy
	gated    bool     // copies that are created preempt nobody until their gate is open
	open     string   // cluster whose copy may preempt others from now on
	follow   []string // clusters whose copy has another priority
	resize   string   // cluster whose copy is larger by now
	sync     string   // cluster whose job's status is copied back
	start    bool     // create the job there if it does not exist
	answer   *kueue.AdmissionCheckState
	warn     bool   // the answer is one that somebody should look at
	choose   string // the cluster that runs it
	clear    bool   // clear the cluster's name: none runs it any more
	finish   *metav1.Condition
	after    time.Duration // when to look again although nothing happened
}

// over says that nothing of the workload should exist in other clusters.
func (s *situation) over() bool {
	wl := s.local
	return wl.DeletionTimestamp != nil || s.check == nil || workload.IsFinished(wl) || !workload.HasReservation(wl)
}

// decide says what to do.
func decide(s situation, settings settings) plan {
	timeout := settings.workerLostTimeout
	winner := s.winner()
	switch {
	case s.elastic && s.local.DeletionTimestamp == nil && wasReplaced(s.local):
		return plan{} // its job has another workload, and its copy goes with that job
	case s.over():
		return s.leave(timeout)
	case s.elastic && s.next && winner != nil && winner.copy != nil && wasReplaced(winner.copy):
		return plan{} // as it is about to be here
	case winner != nil && winner.copy != nil && winner.lost.IsZero() && workload.IsFinished(winner.copy):
		return s.ended(winner)
	case workload.IsEvicted(s.local):
		return s.evicted(winner, timeout)
	case s.local.Status.ClusterName != nil || winner != nil:
		return s.run(winner, timeout)
	case s.check.State == kueue.CheckStateReady:
		return s.retry("Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it,")
	case s.check.State != kueue.CheckStatePending:
		return plan{} // it will be evicted
	}
	if winner := s.firstAdmitted(); winner != nil {
		p := s.run(winner, timeout)
		p.choose = winner.name
		return p
	}
	return s.dispatch(settings)
}

// winner is the cluster that runs a workload. Kueue did not always write its name down: then it is the one that admitted its
// copy, and the name is not made up later.
func (s *situation) winner() *remoteState {
	if name := s.local.Status.ClusterName; name != nil {
		return s.remote(*name)
	}
	if s.check == nil || s.check.State != kueue.CheckStateReady {
		return nil
	}
	return s.first(func(*remoteState) bool { return true })
}

// leave removes everything from all clusters.
func (s *situation) leave(timeout time.Duration) plan {
	p := plan{remove: s.others(nil)}
	if workload.IsFinished(s.local) {
		return p // the status still shows where it ran
	}
	return s.part(p, timeout)
}

// evicted stops the job where it runs, waits until it has stopped, and removes it.
func (s *situation) evicted(winner *remoteState, timeout time.Duration) plan {
	p := plan{remove: s.others(winner)}
	if winner == nil || !winner.lost.IsZero() || winner.copy == nil || !workload.HasReservation(winner.copy) {
		p.remove = s.others(nil)
		return s.part(p, timeout)
	}
	if workload.IsActive(winner.copy) && !apimeta.IsStatusConditionTrue(winner.copy.Status.Conditions, kueue.WorkloadDeactivationTarget) {
		p.stop = winner.name
	}
	p.sync = winner.name
	return p
}

// part clears the name of the cluster that ran the workload once nothing of it is left there, or
// the cluster has not answered for too long.
func (s *situation) part(p plan, timeout time.Duration) plan {
	name := s.local.Status.ClusterName
	if name == nil {
		p.clear = len(s.local.Status.NominatedClusterNames) > 0 && !workload.HasReservation(s.local)
		return p
	}
	winner := s.remote(*name)
	switch {
	case s.ahead(): // of its quota
	case winner == nil:
		p.clear = true
	case !winner.lost.IsZero():
		p.after = s.left(winner, timeout)
		p.clear = p.after == 0
	default:
		p.clear = winner.empty()
	}
	return p
}

// ahead says that a workload of an elastic job is known to go where the one runs that it replaces, before it has quota.
func (s *situation) ahead() bool {
	return s.elastic && s.local.DeletionTimestamp == nil && workload.Replaces(s.local).Name != "" && !workload.IsEvicted(s.local)
}

// left is how much longer a lost cluster is waited for.
func (s *situation) left(lost *remoteState, timeout time.Duration) time.Duration {
	return max(0, lost.lost.Add(timeout).Sub(s.now))
}

// ended copies how the job ended.
func (s *situation) ended(winner *remoteState) plan {
	end := apimeta.FindStatusCondition(winner.copy.Status.Conditions, kueue.WorkloadFinished)
	if end.Reason == kueue.WorkloadFinishedReasonOutOfSync {
		p := s.retry(fmt.Sprintf("Remote workload on worker cluster %q is out of sync with its user job, resetting for re-dispatch,", winner.name))
		p.warn = true
		return p
	}
	return plan{remove: s.others(winner), sync: winner.name, finish: end}
}

// run leaves a workload where it is, as long as it is admitted there.
func (s *situation) run(winner *remoteState, timeout time.Duration) plan {
	if winner != nil && !winner.lost.IsZero() {
		left := s.left(winner, timeout)
		if left > 0 {
			return plan{remove: s.others(winner), after: left}
		}
		return s.retry("Admitting remote lost,")
	}
	if p, waits := s.followSlice(winner); waits {
		return p
	}
	switch {
	case winner == nil || !winner.configured || winner.copy == nil || !sameRequest(s.local, winner.copy) && !s.shrank(winner.copy):
		return s.retry("Admitting remote no longer exists,")
	case workload.IsEvicted(winner.copy):
		return s.retry(fmt.Sprintf("Workload evicted on worker cluster: %q, resetting for re-admission.", winner.name))
	case !workload.IsAdmitted(winner.copy):
		return s.retry("Admitting remote no longer exists,")
	case s.apart(winner.name):
		return s.retry("Another cluster runs the rest of its job,")
	}
	p := plan{remove: s.others(winner), sync: winner.name, start: true}
	if !samePriority(s.local, winner.copy) {
		p.follow = []string{winner.name}
	}
	if s.shrank(winner.copy) {
		p.resize = winner.name
	}
	if s.check.State == kueue.CheckStatePending {
		p.answer = s.state(kueue.CheckStateReady, fmt.Sprintf("The workload was admitted on %q", winner.name))
	}
	return p
}

// followSlice sends a workload to the cluster that runs the one it replaces, and waits until that has admitted it.
func (s *situation) followSlice(winner *remoteState) (p plan, waits bool) {
	if !s.elastic || s.check.State != kueue.CheckStatePending || winner == nil || !winner.configured {
		return plan{}, false
	}
	p.remove = s.others(winner)
	if winner.copy == nil {
		p.create = []string{winner.name}
		return p, !winner.job
	}
	return p, !workload.IsAdmitted(winner.copy) && !workload.IsEvicted(winner.copy) && sameRequest(s.local, winner.copy)
}

// shrank says that an elastic job wants fewer pods than a copy of its workload has.
func (s *situation) shrank(copied *kueue.Workload) bool {
	if !s.elastic || sameRequest(s.local, copied) || len(s.local.Spec.PodSets) != len(copied.Spec.PodSets) {
		return false
	}
	as := s.local.DeepCopy()
	for i := range as.Spec.PodSets {
		if as.Spec.PodSets[i].Count > copied.Spec.PodSets[i].Count {
			return false
		}
		as.Spec.PodSets[i].Count = copied.Spec.PodSets[i].Count
	}
	return sameRequest(as, copied)
}

// wasReplaced says that a workload ended because another one stands for its job.
func wasReplaced(wl *kueue.Workload) bool {
	end := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return end != nil && end.Status == metav1.ConditionTrue && end.Reason == kueue.WorkloadSliceReplaced
}

// stays says that a workload has quota reserved and is not about to lose it.
func stays(wl *kueue.Workload) bool {
	return wl.DeletionTimestamp == nil && workload.HasReservation(wl) && !workload.IsFinished(wl) && !workload.IsEvicted(wl)
}

// beside is the cluster that runs the siblings. Before there is one, only the first of them is
// dispatched, and the others wait.
func (s *situation) beside() (cluster string, waits bool) {
	for i := range s.siblings {
		switch other := &s.siblings[i]; {
		case !stays(other):
		case other.Status.ClusterName != nil:
			return *other.Status.ClusterName, false
		case other.Name < s.local.Name:
			waits = true
		}
	}
	return "", waits
}

// apart says another cluster runs those of its job that come before it.
func (s *situation) apart(cluster string) bool {
	return slices.ContainsFunc(s.siblings, func(other kueue.Workload) bool {
		return stays(&other) && other.Name < s.local.Name && other.Status.ClusterName != nil && *other.Status.ClusterName != cluster
	})
}

// retry gives up on the cluster that was to run the workload: it is evicted, and then dispatched
// again. One that is not admitted yet is dispatched again at once.
func (s *situation) retry(why string) plan {
	switch s.check.State {
	case kueue.CheckStateReady:
		return plan{answer: s.state(kueue.CheckStateRetry, fmt.Sprintf("%s Previously: %q", why, s.check.State))}
	case kueue.CheckStatePending:
		return plan{clear: true}
	}
	return plan{}
}

func (s *situation) state(state kueue.CheckState, message string) *kueue.AdmissionCheckState {
	next := s.check.DeepCopy()
	next.State, next.Message, next.LastTransitionTime = state, message, metav1.NewTime(s.now)
	return next
}

// firstAdmitted is the cluster that admitted its copy before the others did.
func (s *situation) firstAdmitted() *remoteState {
	beside, waits := s.beside()
	return s.first(func(p *remoteState) bool {
		return !waits && (beside == "" || p.name == beside) && slices.Contains(s.local.Status.NominatedClusterNames, p.name)
	})
}

// first is the one of some clusters that admitted its copy before the others did.
func (s *situation) first(of func(*remoteState) bool) *remoteState {
	var first *remoteState
	var since time.Time
	for i := range s.remotes {
		p := &s.remotes[i]
		if p.copy == nil || !p.configured || !p.lost.IsZero() || !of(p) {
			continue
		}
		admitted := apimeta.FindStatusCondition(p.copy.Status.Conditions, kueue.WorkloadAdmitted)
		if admitted == nil || admitted.Status != metav1.ConditionTrue || workload.IsEvicted(p.copy) || !sameRequest(s.local, p.copy) {
			continue
		}
		if first == nil || admitted.LastTransitionTime.Time.Before(since) {
			first, since = p, admitted.LastTransitionTime.Time
		}
	}
	return first
}

// others are the clusters that answer and have something of the workload, except one.
func (s *situation) others(except *remoteState) []string {
	var names []string
	for i := range s.remotes {
		if p := &s.remotes[i]; p != except && p.lost.IsZero() && !p.empty() {
			names = append(names, p.name)
		}
	}
	return names
}

// dispatch has copies in the nominated clusters, and only there.
func (s *situation) dispatch(settings settings) plan {
	for _, other := range s.local.Status.AdmissionChecks {
		if other.Name != s.check.Name && other.State != kueue.CheckStateReady {
			return plan{remove: s.others(nil)}
		}
	}
	beside, waits := s.beside()
	if waits {
		return plan{remove: s.others(nil)}
	}
	nominated, again := settings.dispatcher.nominate(s)
	p := plan{after: again, gated: settings.orchestrated}
	if beside != "" {
		nominated, p.after, p.gated = []string{beside}, 0, false
	}
	if settings.orchestrated {
		s.takeTurns(&p)
	}
	changed := !slices.Equal(nominated, s.local.Status.NominatedClusterNames)
	if changed {
		p.nominate = nominated
	}
	if changed || len(nominated) == 0 { // prices come and go; only what they led to is written
		p.say = settings.dispatcher.message(s, nominated)
	}
	if p.say == s.check.Message {
		p.say = ""
	}
	for i := range s.remotes {
		at := &s.remotes[i]
		switch {
		case !at.lost.IsZero():
		case !at.configured || !slices.Contains(nominated, at.name):
			if !at.empty() {
				p.remove = append(p.remove, at.name)
			}
		case at.copy == nil:
			p.create = append(p.create, at.name)
		case !sameRequest(s.local, at.copy) || workload.IsFinished(at.copy):
			p.remove = append(p.remove, at.name)
		case !samePriority(s.local, at.copy):
			p.follow = append(p.follow, at.name)
		}
	}
	return p
}

// takeTurns lets one cluster preempt others for the workload: the one that has had to wait for it longest, and after a time
// the next one.
func (s *situation) takeTurns(p *plan) {
	var last, since time.Time
	next := ""
	for i := range s.remotes {
		at := &s.remotes[i]
		if at.copy == nil || !at.lost.IsZero() {
			continue
		}
		opened, blocked := workload.GateOpenedAt(at.copy, kueuelabels.MultiKueueGate), workload.BlockedOnGatesSince(at.copy)
		switch {
		case !opened.IsZero():
			if opened.After(last) && !opened.After(s.now) { // a cluster whose clock is wrong holds up nobody
				last = opened
			}
		case !blocked.IsZero() && (next == "" || blocked.Before(since)):
			next, since = at.name, blocked
		}
	}
	left := last.Add(workload.PreemptionTurn).Sub(s.now)
	switch {
	case next == "":
		return
	case last.IsZero() || left <= 0:
		p.open, left = next, workload.PreemptionTurn
	}
	if p.after == 0 || left < p.after {
		p.after = left
	}
}

// sameRequest says that a copy still asks for what the workload asks for. Other fields of its spec
// may be missing in another version of the types.
func sameRequest(local, copied *kueue.Workload) bool {
	a, b := &local.Spec, &copied.Spec
	return a.QueueName == b.QueueName && ptr.Deref(a.MaximumExecutionTimeSeconds, 0) == ptr.Deref(b.MaximumExecutionTimeSeconds, 0) &&
		slices.EqualFunc(a.PodSets, b.PodSets, func(a, b kueue.PodSet) bool { return a.Name == b.Name && a.Count == b.Count })
}

func samePriority(local, copied *kueue.Workload) bool {
	return ptr.Deref(local.Spec.Priority, 0) == ptr.Deref(copied.Spec.Priority, 0) &&
		ptr.Equal(local.Spec.PriorityClassRef, copied.Spec.PriorityClassRef)
}
