package queue

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// A workload that uses a budget has a finalizer before it has quota, and tells of its last run. When that is over it goes
// into the account of its LocalQueue; only then does the workload forget it, to have another one, or vanish. What was
// used is at any time the account, and the runs that workloads tell of and it does not name: a leader may die after any
// of these writes.

// account is what the workloads of a LocalQueue have used.
type account struct {
	object *v1alpha1.BudgetAccount   // nil: there is none yet
	stored budget.Account            // what it says
	runs   map[admission.Key]lastRun // that workloads tell of
	// due: something may have to be stored, from retryAt on.
	due, writing bool
	retryAt      time.Time
}

// lastRun is the run that a workload tells of.
type lastRun struct {
	budget.Run

	// uncounted: it goes on, and the engine does not count it, as its workload was deactivated.
	uncounted bool
}

const (
	accountRetry = time.Second // after a write that failed
	accountFull  = time.Minute // until an account that names too many runs is looked at again
)

// account is that of a LocalQueue.
func (b *budgets) account(localQueue types.NamespacedName) *account {
	a := b.accounts[localQueue]
	if a == nil {
		a = &account{runs: map[admission.Key]lastRun{}}
		if b.accounts == nil {
			b.accounts = map[types.NamespacedName]*account{}
		}
		b.accounts[localQueue] = a
	}
	return a
}

// noteRun takes in the run that a workload tells of, or that it is gone.
func (s *Shell) noteRun(t *tracked, gone bool) {
	if wl := t.object; t.runOf != (types.NamespacedName{}) || workload.TellsRuns(wl) {
		var run *budget.Run
		of := types.NamespacedName{Namespace: wl.Namespace}
		if !gone && workload.TellsRuns(wl) {
			run, of.Name = workload.LastRun(wl)
		}
		s.setRun(t, of, run)
	}
}

func (s *Shell) setRun(t *tracked, of types.NamespacedName, run *budget.Run) {
	key := workload.KeyOf(t.object)
	if t.runOf != of || run == nil {
		if a := s.budgets.accounts[t.runOf]; a != nil {
			delete(a.runs, key)
			a.due = true
		}
		t.runOf = types.NamespacedName{}
		s.budgets.changed = true
	}
	if run == nil {
		return
	}
	a := s.budgets.account(of)
	tells := lastRun{Run: *run, uncounted: run.End.IsZero() && !s.usesQuota(t.object)}
	if was, known := a.runs[key]; known && was.UID == tells.UID && was.Start.Equal(tells.Start) && was.End.Equal(tells.End) && was.uncounted == tells.uncounted && was.User == tells.User &&
		slices.Equal(was.Amounts, tells.Amounts) {
		return
	}
	t.runOf, a.runs[key] = of, tells
	a.due, s.budgets.changed = true, true
}

// runsOver are the runs that are over, and those that the engine does not count any more, until now.
func (a *account) runsOver(now time.Time) []budget.Run {
	var list []budget.Run
	for _, r := range a.runs {
		run := r.Run
		if r.uncounted {
			run.UID, run.End = run.UID+" goes on", now // it is named only once it is over
		}
		if !run.End.IsZero() {
			list = append(list, run)
		}
	}
	return list
}

// runsSoFar are all runs, until now.
func (a *account) runsSoFar(now time.Time) []budget.Run {
	var list []budget.Run
	for _, r := range a.runs {
		if r.End.IsZero() {
			r.End = now
		}
		list = append(list, r.Run)
	}
	return list
}

// storeAccount has an account written that lacks runs, or deleted if nobody needs it. It returns when to look again; zero:
// after the next event.
func (s *Shell) storeAccount(name types.NamespacedName, a *account, now time.Time) time.Time {
	switch {
	case !a.due || a.writing:
		return time.Time{}
	case now.Before(a.retryAt):
		return a.retryAt
	}
	over := make([]budget.Run, 0, len(a.runs))
	tells := make(map[string]time.Time, len(a.runs))
	for _, r := range a.runs {
		over = append(over, s.objects.Valued(r.Run))
		tells[r.UID] = r.Start
	}
	next := a.stored
	switch unsettled := a.stored.Unsettled(over); {
	case len(unsettled) > 0 && len(s.budgets.windows) > 0:
		slices.SortFunc(unsettled, func(x, y budget.Run) int { return x.End.Compare(y.End) })
		next = a.stored.Settle(unsettled, s.budgets.windows, func(uid string, start time.Time) bool {
			at, known := tells[uid]
			return known && at.Unix() == start.Unix()
		}, now)
		if !next.Names(&unsettled[0]) {
			a.retryAt = now.Add(accountFull)
			return a.retryAt
		}
	case len(a.runs) == 0 && !s.isCovered(name.String(), func() []string { return s.objects.BudgetTargets(name) }):
		if at := a.stored.Expired(); now.Before(at) {
			return at
		}
		if a.object == nil {
			delete(s.budgets.accounts, name)
			return time.Time{}
		}
		next = budget.Account{}
	default:
		a.due = false
		return time.Time{}
	}
	object := &v1alpha1.BudgetAccount{}
	if a.object != nil {
		object = a.object.DeepCopy()
	} else {
		object.Name = accountName(name)
	}
	object.Spec = v1alpha1.BudgetAccountSpec{Namespace: name.Namespace, LocalQueue: name.Name}
	object.Status = next.Stored()
	a.writing, a.due = true, false
	s.statusWrites.submit(object)
	return time.Time{}
}

// longestName is the most that an object's name may have.
const longestName = 253

// accountName is the name of a LocalQueue's account. No namespace has a dot in its name.
func accountName(localQueue types.NamespacedName) string {
	name := localQueue.Namespace + "." + localQueue.Name
	if len(name) <= longestName {
		return name
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, name)
	sum := strconv.FormatUint(hash.Sum64(), 36)
	return name[:longestName-len(sum)-1] + "-" + sum
}

// writeAccount writes an account, and tells the loop how that ended.
func (s *Shell) writeAccount(ctx context.Context, object *v1alpha1.BudgetAccount) {
	err := writes.Account(ctx, s.client, object)
	s.options.Metrics.Inc("elastic_writes_total", "account", outcome(err))
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.options.Log.Error(err, "writing an account failed, trying again", "account", object.Name)
	}
	s.inbox.Put(message{statusWritten: &statusResult{queue: object, err: err}})
}

// accountWritten takes in how the write of an account ended.
func (s *Shell) accountWritten(object *v1alpha1.BudgetAccount, err error) {
	a := s.budgets.account(types.NamespacedName{Namespace: object.Spec.Namespace, Name: object.Spec.LocalQueue})
	a.writing, a.due = false, true
	switch {
	case err != nil:
		a.retryAt = s.now().Add(accountRetry)
	case len(object.Status.Sums)+len(object.Status.Settled) == 0:
		s.accountChanged(object, true)
	default:
		s.accountChanged(object, false)
	}
}

// accountChanged takes in an account as it is stored. Who deletes it has its LocalQueue start anew.
func (s *Shell) accountChanged(object *v1alpha1.BudgetAccount, deleted bool) {
	a := s.budgets.account(types.NamespacedName{Namespace: object.Spec.Namespace, Name: object.Spec.LocalQueue})
	switch {
	case a.object != nil && a.object.UID == object.UID && newerVersion(a.object.ResourceVersion, object.ResourceVersion):
		return
	case deleted && a.object != nil && a.object.UID != object.UID:
		return
	case deleted:
		a.object, a.stored = nil, budget.Account{}
	default:
		a.object, a.stored = object, budget.FromStored(&object.Status)
	}
	a.due, s.budgets.changed = true, true
	for key, r := range a.runs {
		if t := s.workloads[key]; t != nil && !r.End.IsZero() {
			s.scheduleStep(t)
		}
	}
}

// budgetStep has a workload begin to tell of its runs, or forget one that its account has, and reports whether that is
// being written.
func (s *Shell) budgetStep(t *tracked) bool {
	wl := t.object
	uses := s.usesBudget(wl)
	switch {
	case !workload.TellsRuns(wl):
		if !uses || !s.usesQuota(wl) || wl.DeletionTimestamp != nil {
			return false
		}
		s.startWrite(t, &change{write: writes.Finalizers, apply: addBudgetFinalizer}) // it runs since before its budget came
		return true
	case !uses:
		s.startWrite(t, removeBudgetFinalizer(wl))
		return true
	}
	run, localQueue := workload.LastRun(wl)
	object := budget.Object{UID: string(wl.UID), Run: run, Deleting: wl.DeletionTimestamp != nil || workload.IsFinished(wl), Waits: !workload.HasReservation(wl)}
	a := s.budgets.account(types.NamespacedName{Namespace: wl.Namespace, Name: localQueue})
	_, release := a.stored.Next(&object)
	switch now := s.now(); {
	case !release:
		return false
	case object.Deleting:
		s.startWrite(t, removeBudgetFinalizer(wl))
	case !workload.TellsOfOther(wl):
		return false
	case !a.stored.MayStart(string(wl.UID), now):
		s.timers.set(workload.KeyOf(wl), now.Add(time.Second))
	default:
		s.startWrite(t, &change{apply: workload.ForgetLastRun})
	}
	return true
}

// withinBudgets is an admission that has a workload tell of its run first, if it uses a budget.
func (s *Shell) withinBudgets(key admission.Key, admit *change) *change {
	t := s.workloads[key]
	if t == nil || workload.TellsRuns(t.object) || !s.usesBudget(t.object) {
		return admit
	}
	reserve := admit.apply
	admit.write = writes.FinalizersAndStatus
	admit.apply = func(wl *kueue.Workload, now time.Time) bool {
		addBudgetFinalizer(wl, now)
		return reserve(wl, now)
	}
	return admit
}

func addBudgetFinalizer(wl *kueue.Workload, _ time.Time) bool {
	if workload.TellsRuns(wl) {
		return false
	}
	wl.Finalizers = append(slices.Clone(wl.Finalizers), workload.BudgetFinalizer)
	return true
}

func removeBudgetFinalizer(wl *kueue.Workload) *change {
	return &change{
		write: writes.Finalizers, last: workload.IsGone(wl),
		apply: func(wl *kueue.Workload, _ time.Time) bool {
			wl.Finalizers = slices.DeleteFunc(slices.Clone(wl.Finalizers), func(f string) bool { return f == workload.BudgetFinalizer })
			return true
		},
	}
}

// readAccounts takes in the accounts as the API server has them: the cache may be behind what the last leader wrote.
func (s *Shell) readAccounts(ctx context.Context) error {
	if s.budgets.unserved {
		return nil
	}
	list := &v1alpha1.BudgetAccountList{}
	for {
		if err := s.options.Direct.List(ctx, list, client.Limit(catchUpPage), client.Continue(list.Continue)); err != nil {
			return err
		}
		for i := range list.Items {
			s.handleSafely(message{object: list.Items[i].DeepCopy()})
		}
		if list.Continue == "" {
			return nil
		}
	}
}
