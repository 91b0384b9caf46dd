package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// cpuBudget is a policy that gives a target an amount of CPU-hours a day.
func cpuBudget(name, amount string, target v1alpha1.TargetRef, edit ...func(*v1alpha1.Budget)) *v1alpha1.QueuePolicy {
	p := named(&v1alpha1.QueuePolicy{}, name)
	p.UID, p.Generation, p.Spec.TargetRefs = types.UID(name), 1, []v1alpha1.TargetRef{target}
	b := v1alpha1.Budget{Period: v1alpha1.PeriodDay, Amount: resource.MustParse(amount), Currency: "CPU", Rates: []v1alpha1.Rate{{Resource: "cpu", PerHour: resource.MustParse("1")}}}
	for _, e := range edit {
		e(&b)
	}
	p.Spec.Budgets = []v1alpha1.Budget{b}
	return p
}

var onQueue = v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: "cq"}

// accounts are those that the API server would have.
type accounts map[string]*v1alpha1.BudgetAccount

// settle lets the shell work, and stores its accounts, until nothing is left to do.
func (p *harness) settle(stored accounts) {
	for range 20 {
		p.turn(p.results(stored))
		if len(p.statusWrites.waiting)+len(p.workloadWrites.waiting) == 0 {
			return
		}
	}
	p.t.Fatal("it does not come to rest")
}

// results are what the shell hears of its writes, of accounts as well.
func (p *harness) results(stored accounts) []message {
	var messages []message
	for _, sent := range p.workloadWrites.waiting {
		p.version++
		written := sent.workload.DeepCopy()
		written.ResourceVersion = strconv.Itoa(p.version)
		p.written[written.Name] = written
		messages = append(messages, message{written: &writeResult{sent: sent, written: written}})
		if written.DeletionTimestamp != nil && len(written.Finalizers) == 0 {
			delete(p.written, written.Name)
			messages = append(messages, message{object: written, deleted: true})
		}
	}
	p.workloadWrites.waiting = nil
	for _, object := range p.statusWrites.waiting {
		if account, ok := object.(*v1alpha1.BudgetAccount); ok {
			p.version++
			written := account.DeepCopy()
			written.ResourceVersion = strconv.Itoa(p.version)
			stored[written.Name] = written
			messages = append(messages, message{statusWritten: &statusResult{queue: written}})
		}
	}
	p.statusWrites.waiting = nil
	return messages
}

// spent is what the engine takes to be spent of the only budget, in hours.
func (p *harness) spent() string {
	p.t.Helper()
	if len(p.budgets.inForce) != 1 {
		p.t.Fatalf("%d budgets are in force", len(p.budgets.inForce))
	}
	b := p.budgets.inForce[0]
	use, known := p.engine.BudgetUse(b.Name(), p.time)
	if !known {
		p.t.Fatal("the engine does not know the budget")
	}
	_, one := b.Units()
	return decimal(use.Spent, one)
}

func (p *harness) later(d time.Duration, stored accounts) {
	p.time = p.time.Add(d)
	p.settle(stored)
}

// alter is another client's write to a workload; the shell sees it, and nothing has come back yet.
func (p *harness) alter(stored accounts, name string, how func(*kueue.Workload)) {
	wl := p.written[name].DeepCopy()
	how(wl)
	p.version++
	wl.ResourceVersion = strconv.Itoa(p.version)
	p.written[name] = wl
	p.turn([]message{{object: wl}})
	p.settle(stored)
}

// restarted is another leader's shell, which knows what is stored alone.
func (p *harness) restarted(policies []*v1alpha1.QueuePolicy, stored accounts) *harness {
	next := newHarness(p.t)
	next.time, next.version = p.time, p.version
	next.oneQueue()
	messages := []message{}
	for _, policy := range policies {
		messages = append(messages, message{object: policy})
	}
	for _, account := range stored {
		messages = append(messages, message{object: account.DeepCopy()})
	}
	for name, wl := range p.written {
		next.written[name] = wl
		messages = append(messages, message{object: wl})
	}
	next.turn(messages)
	next.settle(stored)
	return next
}

func withBudget(t *testing.T, policy *v1alpha1.QueuePolicy) (*harness, accounts) {
	p := newHarness(t)
	p.oneQueue()
	stored := accounts{}
	p.turn([]message{{object: policy}})
	p.settle(stored)
	return p, stored
}

func (p *harness) add(stored accounts, name, cpus string, runs time.Duration) {
	wl := p.workload(name, "main", "", 0, cpus)
	if runs > 0 {
		wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(runs / time.Second))
	}
	wl.Finalizers = []string{kueue.ResourceInUseFinalizerName}
	p.version++
	wl.ResourceVersion = strconv.Itoa(p.version)
	p.written[name] = wl
	p.turn([]message{{object: wl}})
	p.settle(stored)
}

// Whatever becomes of a workload, what it spent is counted once: while it runs, when its run is over, when it is in the
// account, when the workload is gone, and by another leader at any of these times.
func TestBudgetCountsExactly(t *testing.T) {
	policy := cpuBudget("team", "10", onQueue)
	p, stored := withBudget(t, policy)
	check := func(when, want string) {
		t.Helper()
		if got := p.spent(); got != want {
			t.Fatalf("%s: %s are spent, not %s", when, got, want)
		}
		again := p.restarted([]*v1alpha1.QueuePolicy{policy}, stored)
		if got := again.spent(); got != want {
			t.Fatalf("%s, by another leader: %s are spent, not %s", when, got, want)
		}
	}
	p.add(stored, "a", "2", 0)
	p.add(stored, "b", "1", 0)
	if wl := p.written["a"]; !workload.HasReservation(wl) || !workload.TellsRuns(wl) {
		t.Fatalf("a: %v, finalizers %v", wl.Status.Conditions, wl.Finalizers)
	}
	p.later(time.Hour, stored)
	check("both run for an hour", "3")
	p.alter(stored, "a", func(wl *kueue.Workload) {
		workload.Evict(wl, "Preempted", "", "", p.time)
	})
	p.later(time.Hour, stored)
	check("a stops", "6")
	p.alter(stored, "a", func(wl *kueue.Workload) { workload.Release(wl, "", p.time) })
	p.later(time.Second, stored)
	if wl := p.written["a"]; !workload.HasReservation(wl) {
		t.Fatalf("a does not run again: %v", wl.Status.Conditions)
	}
	p.later(time.Hour-time.Second, stored)
	if account := stored["ns.main"]; account == nil || len(account.Status.Sums) != 1 || account.Status.Sums[0].Used[0].UnitSeconds != 2000*7200 {
		t.Fatalf("account: %+v", account)
	}
	check("a ran again", "9")
	p.alter(stored, "b", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	check("b is finished", "9")
	if wl := p.written["b"]; workload.TellsRuns(wl) {
		t.Errorf("b: finalizers %v", wl.Finalizers)
	}
	p.alter(stored, "a", func(wl *kueue.Workload) {
		wl.DeletionTimestamp = ptr.To(metav1.NewTime(p.time))
	})
	p.later(30*time.Second, stored)
	check("a is deleted, and its pods end", "9.016667")
	p.alter(stored, "a", func(wl *kueue.Workload) {
		wl.Finalizers = slices.DeleteFunc(slices.Clone(wl.Finalizers), func(f string) bool { return f == kueue.ResourceInUseFinalizerName })
		wl.Annotations = map[string]string{"elasticai.io/stopped-at": p.time.UTC().Format(time.RFC3339)}
	})
	if p.written["a"] != nil {
		t.Errorf("a is still there: %v", p.written["a"].Finalizers)
	}
	check("a is gone", "9.016667")
	p.later(time.Hour, stored)
	check("an hour later", "9.016667")
}

// A workload that a budget does not suffice for waits until the next period begins, and starts then; with Drain what runs
// is stopped when all is spent, and waits as well.
func TestBudgetHoldsAndDrains(t *testing.T) {
	policy := cpuBudget("team", "4", onQueue, func(b *v1alpha1.Budget) { b.WhenSpent, b.TimeZone = v1alpha1.WhenSpentDrain, "Europe/Berlin" })
	p, stored := withBudget(t, policy) // 04:04:05 in Berlin
	p.add(stored, "endless", "2", 0)
	p.add(stored, "large", "2", 3*time.Hour)
	message := func(name string) string {
		return apimeta.FindStatusCondition(p.written[name].Status.Conditions, kueue.WorkloadQuotaReserved).Message
	}
	if got, want := message("large"), "the budget of ClusterQueue/cq: of 4 CPU a day, 0 are spent and 0 committed, and it needs 6"; !strings.Contains(got, want) {
		t.Errorf("large: %s, not %s", got, want)
	}
	if workload.HasReservation(p.written["large"]) || !workload.HasReservation(p.written["endless"]) {
		t.Fatal("large starts, or endless does not")
	}
	p.later(2*time.Hour-time.Second, stored)
	if workload.IsEvicted(p.written["endless"]) {
		t.Fatal("something is left, and endless is stopped")
	}
	p.later(time.Second, stored)
	if c := apimeta.FindStatusCondition(p.written["endless"].Status.Conditions, kueue.WorkloadEvicted); c == nil || c.Reason != string(admission.ReasonBudgetSpent) {
		t.Fatalf("all is spent, and endless is %v", c)
	}
	p.alter(stored, "endless", func(wl *kueue.Workload) { workload.Release(wl, "", p.time) })
	p.later(time.Second, stored)
	if workload.HasReservation(p.written["endless"]) {
		t.Fatal("nothing is left, and endless starts")
	}
	if got := p.spent(); got != "4" {
		t.Errorf("%s are spent", got)
	}
	midnight := time.Date(2026, 1, 3, 0, 0, 0, 0, p.budgets.inForce[0].Window.From.Location())
	p.time = midnight.Add(-time.Second)
	p.settle(stored)
	if workload.HasReservation(p.written["large"]) && workload.HasReservation(p.written["endless"]) {
		t.Error("both start before midnight in Berlin")
	}
	p.time = midnight
	p.settle(stored)
	if got := p.spent(); got != "0" {
		t.Errorf("%s are spent of the next day", got)
	}
	if !workload.HasReservation(p.written["endless"]) {
		t.Errorf("endless waits on: %s", message("endless"))
	}
}

// A deleted policy leaves Kueue's behaviour, and no finalizers; what was spent is there if it comes back, until its
// period is over.
func TestBudgetGoes(t *testing.T) {
	policy := cpuBudget("team", "4", onQueue)
	p, stored := withBudget(t, policy)
	p.add(stored, "ends", "2", 0)
	p.add(stored, "runs", "1", 0)
	p.later(time.Hour, stored)
	p.alter(stored, "ends", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	p.add(stored, "large", "2", 3*time.Hour)
	if workload.HasReservation(p.written["large"]) {
		t.Fatal("large starts beyond the budget")
	}
	p.turn([]message{{object: policy, deleted: true}})
	p.settle(stored)
	for name, wl := range p.written {
		if workload.TellsRuns(wl) {
			t.Errorf("%s: finalizers %v", name, wl.Finalizers)
		}
	}
	if !workload.HasReservation(p.written["large"]) {
		t.Error("the policy is gone, and large waits on")
	}
	p.turn([]message{{object: cpuBudget("again", "4", onQueue)}})
	p.settle(stored)
	if got := p.spent(); got != "3" {
		t.Errorf("%s are spent when the policy is back", got)
	}
	if !workload.TellsRuns(p.written["runs"]) {
		t.Error("runs does not tell of its run, though a budget counts it")
	}
}

// An account whose periods are over for so long that nobody asks for them, and that no budget counts, is deleted, also where
// there never was a policy.
func TestBudgetAccountExpires(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	account := named(&v1alpha1.BudgetAccount{}, "ns.old")
	account.UID, account.ResourceVersion, account.Spec = "1", "1", v1alpha1.BudgetAccountSpec{Namespace: "ns", LocalQueue: "old"}
	account.Status.Sums = []v1alpha1.BudgetSum{{Period: v1alpha1.PeriodDay, TimeZone: "UTC", From: metav1.NewTime(p.time.Add(-25 * time.Hour)), Until: metav1.NewTime(p.time.Add(-time.Minute))}}
	deleted := func(messages ...message) bool {
		p.turn(messages)
		for _, object := range p.statusWrites.waiting {
			if a, ok := object.(*v1alpha1.BudgetAccount); ok && a.ResourceVersion == "1" && len(a.Status.Sums) == 0 {
				return true
			}
		}
		return false
	}
	if deleted(message{object: account}) {
		t.Error("it is deleted with its period")
	}
	if p.time = p.time.Add(14*24*time.Hour - 2*time.Minute); deleted() {
		t.Error("it is deleted before two weeks are over")
	}
	if p.time = p.time.Add(2 * time.Minute); !deleted() {
		t.Error("it is not deleted")
	}
}

// Two policies: the older one counts on a target, each on its own.
func TestTwoBudgets(t *testing.T) {
	p, stored := withBudget(t, cpuBudget("first", "4", onQueue))
	younger := cpuBudget("second", "1", onQueue)
	younger.CreationTimestamp = metav1.NewTime(p.time)
	local := cpuBudget("local", "2", v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "main"})
	p.turn([]message{{object: younger}, {object: local}})
	p.settle(stored)
	if len(p.budgets.inForce) != 2 || p.budgets.inForce[0].Policy != "first" || p.budgets.inForce[1].Policy != "local" {
		t.Fatalf("in force: %+v", p.budgets.inForce)
	}
	p.add(stored, "large", "1", 3*time.Hour)
	p.add(stored, "small", "1", 2*time.Hour)
	if workload.HasReservation(p.written["large"]) || !workload.HasReservation(p.written["small"]) {
		t.Error("the LocalQueue's budget does not count beside its ClusterQueue's")
	}
}

// There is one warning a period, also after a change of leader.
func TestBudgetWarns(t *testing.T) {
	policy := cpuBudget("team", "10", v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "main"})
	p, stored := withBudget(t, policy)
	warnings := func(p *harness) int {
		n := 0
		for {
			select {
			case e := <-p.options.Recorder.(*events.FakeRecorder).Events:
				if strings.Contains(e, "BudgetNearlySpent") {
					n++
				}
			default:
				return n
			}
		}
	}
	p.add(stored, "a", "4", 0)
	p.later(2*time.Hour-time.Second, stored)
	if n := warnings(p); n != 0 {
		t.Fatalf("%d warnings before 80%%", n)
	}
	p.later(time.Second, stored)
	p.later(time.Second, stored)
	if n := warnings(p); n != 1 {
		t.Fatalf("%d warnings at 80%%", n)
	}
	c := p.budgetCondition(policy)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "80% of the budget of LocalQueue/ns/main") {
		t.Fatalf("condition: %+v", c)
	}
	known := policy.DeepCopy()
	apimeta.SetStatusCondition(&known.Status.Conditions, *c)
	again := p.restarted([]*v1alpha1.QueuePolicy{known}, stored)
	if n := warnings(again); n != 0 {
		t.Errorf("%d warnings by the next leader", n)
	}
}

// What the loop and the account say of each LocalQueue add up to what the engine says, also for one that was
// deactivated, and whose pods have not ended.
func TestBudgetReport(t *testing.T) {
	policy := cpuBudget("team", "10", onQueue)
	p, stored := withBudget(t, policy)
	p.add(stored, "a", "1", 2*time.Hour)
	p.add(stored, "b", "1", 0)
	p.later(time.Hour, stored)
	p.alter(stored, "b", func(wl *kueue.Workload) {
		wl.Spec.Active = ptr.To(false)
		workload.Evict(wl, kueue.WorkloadDeactivated, "", "", p.time)
	})
	p.later(time.Hour/2, stored)
	p.budgets.changed = true
	p.settle(stored)
	report := p.budgetReport(p.budgets.inForce[0], types.NamespacedName{Namespace: "ns", Name: "main"})
	if got, want := fmt.Sprint(report.Amount, report.Spent, report.Committed, report.Left, report.SpentHere), "10 3 0.5 6.5 3"; got != want && got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s, not %s", got, want)
	}
}

// No two LocalQueues have one account, and every name can be stored.
func TestAccountNames(t *testing.T) {
	long := strings.Repeat("a", 252)
	seen := map[string]bool{}
	for _, name := range []types.NamespacedName{{Namespace: "ns", Name: "main"}, {Namespace: "ns", Name: "b.main"}, {Namespace: "b", Name: "ns.main"}, {Namespace: "ns", Name: long + "a"}, {Namespace: "ns", Name: long + "b"}} {
		account := accountName(name)
		if seen[account] || len(account) > longestName {
			t.Errorf("%s has the account %s", name, account)
		}
		seen[account] = true
	}
}

// A budget in US dollars without rates is at the prices of CloudOffers: what runs at those of now, and what has run at those
// of when it ended, which a price that changes later does not change; by another leader as well.
func TestBudgetAtPricesOfCloudOffers(t *testing.T) {
	policy := cpuBudget("team", "100", onQueue, func(b *v1alpha1.Budget) { b.Currency, b.Rates = "USD", nil })
	p, stored := withBudget(t, policy)
	price := "2"
	offers := func(p *harness) {
		p.turn([]message{{object: priced("default", price)}})
		p.settle(stored)
	}
	check := func(when, want string) {
		t.Helper()
		if got := p.spent(); got != want {
			t.Fatalf("%s: %s dollars are spent, not %s", when, got, want)
		}
		again := p.restarted([]*v1alpha1.QueuePolicy{policy}, stored)
		offers(again)
		if got := again.spent(); got != want {
			t.Fatalf("%s, by another leader: %s dollars are spent, not %s", when, got, want)
		}
	}
	offers(p)
	p.add(stored, "a", "3", 0)
	p.alter(stored, "a", func(wl *kueue.Workload) { wl.Annotations = map[string]string{v1alpha1.SubmittedByAnnotation: "ann"} })
	p.later(time.Hour, stored)
	check("three CPUs for an hour at 2", "6")
	price = "2.5"
	offers(p)
	check("what runs is at the price of now", "7.5")
	p.alter(stored, "a", func(wl *kueue.Workload) { workload.Evict(wl, "Preempted", "", "", p.time) })
	p.alter(stored, "a", func(wl *kueue.Workload) { workload.Release(wl, "", p.time) })
	p.later(time.Second, stored)
	p.alter(stored, "a", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	price = "50"
	offers(p)
	check("an evicted run and one of a second, and then the price rose", "7.502083")
	p.add(stored, "dear", "1", time.Hour)
	p.add(stored, "too-dear", "1", 2*time.Hour)
	if !workload.HasReservation(p.written["dear"]) || workload.HasReservation(p.written["too-dear"]) {
		t.Errorf("of 92.5 dollars one of 50 and then one of 100 start: %t, %t", workload.HasReservation(p.written["dear"]), workload.HasReservation(p.written["too-dear"]))
	}
	p.later(24*time.Hour, stored)
	got := p.spending(types.NamespacedName{Namespace: "ns", Name: "main"})
	if len(got) == 2 && (len(got[1].Users) != 2 || got[1].Users[0].User != "" || got[1].Users[1].User != "ann" || got[1].Users[1].Dollars != "7.502083") {
		t.Errorf("of an evicted job and of another that nobody is known of: %+v", got[1].Users)
	}
	if len(got) != 2 || got[1].From.Day() != 2 || got[0].From.Day() != 3 || len(got[1].By) != 1 || got[1].By[0].Flavor != "default" {
		t.Errorf("%+v", got)
	}
}
