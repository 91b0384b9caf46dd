package queue

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// familyQueue has flavors "reserved" and "spot", with so many CPUs.
func familyQueue(generation int64, reserved, spot string, policy *kueue.ConcurrentAdmissionPolicy) *kueue.ClusterQueue {
	cq := queueObject("cq", "", "")
	cq.Generation = generation
	cq.Spec.ConcurrentAdmissionPolicy = policy
	cq.Spec.ResourceGroups[0].Flavors = nil
	for _, f := range [][2]string{{"reserved", reserved}, {"spot", spot}} {
		if f[1] != "" {
			cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, kueue.FlavorQuotas{
				Name: kueue.ResourceFlavorReference(f[0]), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(f[1])}},
			})
		}
	}
	return cq
}

var (
	preferred = &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors}}
	retained  = &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionRetainFirstAdmission}}
)

func newFamilyHarness(t *testing.T, cq *kueue.ClusterQueue) *harness {
	p := newHarness(t)
	p.gates.concurrent = true
	p.oneQueue()
	p.see(named(&kueue.ResourceFlavor{}, "reserved"), named(&kueue.ResourceFlavor{}, "spot"), cq)
	return p
}

// variant is the name of a job's variant.
func (p *harness) variant(job, flavor string) string {
	return workload.VariantName(p.written[job], flavor)
}

// stands says of a workload and its variants what they have: nothing, quota, or an admission, and in which flavor, or that
// they are evicted or not active.
func (p *harness) stands(job string) string {
	var all []string
	for _, name := range []string{job, p.variant(job, "reserved"), p.variant(job, "spot")} {
		wl := p.written[name]
		state := "waits"
		switch {
		case wl == nil:
			state = "-"
		case workload.HasReservation(wl):
			state = "reserved"
			if workload.IsAdmitted(wl) {
				state = "runs"
			}
			for _, flavor := range wl.Status.Admission.PodSetAssignments[0].Flavors {
				state += " on " + string(flavor)
			}
			if workload.IsEvicted(wl) {
				state += ", evicted"
			}
		case !workload.IsActive(wl):
			state = "inactive"
		}
		all = append(all, state)
	}
	return strings.Join(all, " | ")
}

func (p *harness) wantStanding(job, want string) {
	p.t.Helper()
	if got := p.stands(job); got != want {
		p.t.Fatalf("%s and its variants: %s\nwant %s", job, got, want)
	}
}

func (p *harness) reserving() int {
	status, _ := p.engine.Status("cq")
	return status.Reserving
}

// letGo is what a job's controller does once its pods have ended.
func (p *harness) letGo(job string) {
	p.change(job, func(wl *kueue.Workload) { workload.Release(wl, "gone", p.time) })
}

func evictionOf(wl *kueue.Workload) string {
	return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).Reason
}

// A job is admitted as one of its variants is, which alone counts, and moves to a better flavor once that has quota.
func TestJobMovesToABetterFlavor(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "0", "4", preferred))
	p.submit("job", "main", "", 0, "3")
	p.wantStanding("job", "runs on spot | waits | runs on spot")
	if p.written["job"].Labels[kueuelabels.ConcurrentAdmissionParent] != "true" || p.reserving() != 1 {
		t.Fatalf("labels %v, %d workloads with quota", p.written["job"].Labels, p.reserving())
	}
	if as := p.explainedAs(p.written["job"]); as.Name != p.variant("job", "spot") {
		t.Errorf("it is explained as %s", as)
	}
	p.submit("second", "main", "", 0, "2")
	p.wantStanding("second", "waits | waits | waits")
	local := p.statuses.Usage().LocalQueue(client.ObjectKey{Namespace: "ns", Name: "main"})
	if local.Pending != 3 || local.WithQuota != 1 || local.Admitted != 1 { // variants alone
		t.Errorf("the LocalQueue counts %d pending, %d with quota, %d admitted", local.Pending, local.WithQuota, local.Admitted)
	}

	p.see(familyQueue(2, "4", "4", preferred))
	p.wantStanding("job", "runs on spot, evicted | runs on reserved | runs on spot, evicted")
	if job, spot := evictionOf(p.written["job"]), evictionOf(p.written[p.variant("job", "spot")]); job != "VariantEvicted" || spot != "FlavorMigration" {
		t.Errorf("evictions: %s, %s", job, spot)
	}
	p.wantStanding("second", "waits | waits | waits") // until the pods on spot have ended
	p.letGo("job")
	p.wantStanding("job", "runs on reserved | runs on reserved | inactive")
	p.wantStanding("second", "runs on spot | waits | runs on spot")
	if p.reserving() != 2 {
		t.Errorf("%d workloads with quota", p.reserving())
	}

	p.end("job", kueue.WorkloadFinishedReasonSucceeded)
	p.wantStanding("second", "runs on spot, evicted | runs on reserved | runs on spot, evicted")
	for _, flavor := range []string{"reserved", "spot"} {
		if !workload.IsFinished(p.written[p.variant("job", flavor)]) {
			t.Errorf("the variant for %s goes on", flavor)
		}
	}
}

// Where both flavors have quota, the job starts on the better one, and nobody is evicted.
func TestJobStartsOnTheBestFlavor(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "4", "4", preferred))
	p.submit("job", "main", "", 0, "3")
	p.wantStanding("job", "runs on reserved | runs on reserved | inactive")
	for _, event := range p.recordedEvents() {
		if strings.Contains(event, "EvictedDueTo") {
			t.Error(event)
		}
	}
}

func TestFirstAdmissionIsRetained(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "0", "4", retained))
	p.submit("job", "main", "", 0, "3")
	p.wantStanding("job", "runs on spot | inactive | runs on spot")
	p.see(familyQueue(2, "4", "4", retained))
	p.wantStanding("job", "runs on spot | inactive | runs on spot")
}

// A flavor that a queue loses takes its variant with it; the job goes on with another one.
func TestFlavorIsTakenAway(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "4", "0", preferred))
	p.submit("job", "main", "", 0, "3")
	p.wantStanding("job", "runs on reserved | runs on reserved | inactive")
	p.see(familyQueue(2, "", "4", preferred))
	gone := p.variant("job", "reserved")
	if !p.workloads[admission.Key{Namespace: "ns", Name: gone}].outdated {
		t.Fatal("the variant is not deleted")
	}
	p.remove(gone)
	if got := evictionOf(p.written["job"]); got != "ConcurrentAdmission" {
		t.Errorf("evicted: %s", got)
	}
	p.letGo("job")
	p.wantStanding("job", "runs on spot | - | runs on spot")
}

// Whatever is true of a family is in its objects: a new leader writes nothing.
func TestNewLeaderKnowsFamilies(t *testing.T) {
	old := newFamilyHarness(t, familyQueue(1, "0", "4", preferred))
	old.submit("job", "main", "", 0, "3")
	old.submit("waits", "main", "", 0, "3")
	p := newHarness(t)
	p.gates.concurrent = true
	messages := []message{}
	for _, wl := range old.written {
		messages = append(messages, message{object: wl.DeepCopy()})
	}
	slices.SortFunc(messages, func(a, b message) int { return strings.Compare(b.object.GetName(), a.object.GetName()) })
	for _, obj := range []*kueue.ResourceFlavor{named(&kueue.ResourceFlavor{}, "reserved"), named(&kueue.ResourceFlavor{}, "spot")} {
		messages = append(messages, message{object: obj})
	}
	lq := &kueue.LocalQueue{}
	lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", "main", "main", "cq"
	messages = append(messages, message{object: named(&corev1.Namespace{}, "ns")}, message{object: lq}, message{object: familyQueue(1, "0", "4", preferred)})
	p.turn(messages)
	if writes, creates := p.workloadWrites.waiting, p.variantWrites.waiting; len(writes)+len(creates) > 0 {
		for _, w := range writes {
			t.Errorf("writes %s: %+v", w.workload.Name, w.workload.Status.Conditions)
		}
		t.Errorf("creates %d", len(creates))
	}
	if p.reserving() != 1 {
		t.Errorf("%d workloads with quota", p.reserving())
	}
}

// Variants take turns at preempting others, the best first, each for five minutes.
func TestVariantsTakeTurnsAtPreempting(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "2", "2", retained))
	p.submit("low", "main", "", 0, "2")
	p.wantStanding("low", "runs on reserved | runs on reserved | inactive")
	p.submit("lower", "main", "", 0, "2")
	p.wantStanding("lower", "runs on spot | inactive | runs on spot")
	p.submit("high", "main", "", 9, "2")
	open := func(flavor string) bool { return !workload.IsPreemptionGated(p.written[p.variant("high", flavor)]) }
	if !open("reserved") || open("spot") {
		t.Fatalf("open: reserved %v, spot %v", open("reserved"), open("spot"))
	}
	p.wantStanding("low", "runs on reserved, evicted | runs on reserved, evicted | inactive")
	p.wantStanding("lower", "runs on spot | inactive | runs on spot")
	p.advance(5*time.Minute - time.Second)
	p.see()
	p.wantStanding("lower", "runs on spot | inactive | runs on spot")
	p.advance(2 * time.Second) // low does not go
	p.see()
	if !open("spot") {
		t.Error("the next variant does not have its turn")
	}
	p.letGo("low")
	if !strings.HasPrefix(p.stands("high"), "runs on reserved") {
		t.Error(p.stands("high"))
	}
}

// Who may create workloads may call one a variant. The job of its parent does not run on the quota of something smaller.
func TestForgedVariantsAreNone(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "4", "4", preferred))
	job := p.workload("job", "main", "", 0, "9") // which does not fit
	forged := p.workload(workload.VariantName(job, "reserved"), "main", "", 0, "1")
	forged.Annotations = map[string]string{kueuelabels.AllowedFlavors: "reserved"}
	forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, kueue.SchemeGroupVersion.WithKind("Workload"))}
	other := forged.DeepCopy()
	other.Name, other.UID = "other", "other"
	other.Spec.PodSets, other.OwnerReferences[0].UID = job.Spec.PodSets, "of a job before"
	p.see(job, forged, other)
	for _, name := range []string{forged.Name, "other"} {
		if p.started(name) || !p.workloads[admission.Key{Namespace: "ns", Name: name}].outdated {
			t.Errorf("%s has quota, or is not deleted", name)
		}
	}
	if p.started("job") {
		t.Error("the job runs")
	}

	free := p.workload("free", "main", "", 0, "3") // in a queue without a policy the label says nothing
	free.Labels = map[string]string{kueuelabels.ConcurrentAdmissionParent: "true"}
	plain := newHarness(t)
	plain.gates.concurrent = true
	plain.oneQueue()
	plain.see(free)
	plain.submit("next", "main", "", 0, "3")
	if !plain.started("free") || plain.started("next") {
		t.Errorf("free %v, next %v", plain.started("free"), plain.started("next"))
	}
}

// A job whose pods do not become ready loses the quota of its variant, and waits as long as it would without variants.
func TestVariantsWaitForTheBackoffOfTheirJob(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "0", "4", preferred))
	p.options.Lifecycle.PodsReady = &workload.PodsReadySettings{Timeout: time.Minute, BackoffBase: time.Hour, BackoffMax: 2 * time.Hour}
	p.submit("job", "main", "", 0, "3")
	p.advance(2 * time.Minute)
	p.see()
	p.wantStanding("job", "runs on spot, evicted | waits | runs on spot, evicted")
	if got := evictionOf(p.written[p.variant("job", "spot")]); got != kueue.WorkloadEvictedByPodsReadyTimeout {
		t.Errorf("evicted: %s", got)
	}
	p.letGo("job")
	p.wantStanding("job", "waits | waits | waits")
	p.submit("other", "main", "", 0, "3")
	p.wantStanding("other", "runs on spot | waits | runs on spot")
	p.end("other", kueue.WorkloadFinishedReasonSucceeded)
	p.wantStanding("job", "waits | waits | waits")
	p.advance(2 * time.Hour)
	p.see()
	p.wantStanding("job", "runs on spot | waits | runs on spot")
}

// The maximum execution time is the job's, on whichever flavors it ran.
func TestTimeOfAJobIsOver(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "0", "4", preferred))
	job := p.workload("job", "main", "", 0, "3")
	job.Spec.MaximumExecutionTimeSeconds = ptr.To[int32](600)
	p.see(job)
	p.advance(400 * time.Second)
	p.see(familyQueue(2, "4", "4", preferred))
	p.letGo("job")
	p.wantStanding("job", "runs on reserved | runs on reserved | inactive")
	p.advance(201 * time.Second)
	p.see()
	if workload.IsActive(p.written["job"]) || evictionOf(p.written["job"]) != "DeactivatedDueToMaximumExecutionTimeExceeded" {
		t.Fatalf("active %v, %s", workload.IsActive(p.written["job"]), p.stands("job"))
	}
	p.letGo("job")
	p.wantStanding("job", "inactive | inactive | inactive")
}

// A deactivated job has no variant in the queue; activated again it has all of them.
func TestDeactivatedJob(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "0", "4", preferred))
	p.submit("job", "main", "", 0, "3")
	p.change("job", func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) })
	p.letGo("job")
	p.wantStanding("job", "inactive | inactive | inactive")
	if p.reserving() != 0 {
		t.Errorf("%d workloads with quota", p.reserving())
	}
	p.change("job", func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) })
	p.wantStanding("job", "runs on spot | waits | runs on spot")
}

// checkedQueue has a check for workloads on the better flavor.
func checkedQueue() *kueue.ClusterQueue {
	cq := familyQueue(1, "4", "4", preferred)
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{
		Name: "nodes", OnFlavors: []kueue.ResourceFlavorReference{"reserved"},
	}}}
	return cq
}

func (p *harness) answer(variant string, state kueue.CheckState) {
	p.change(variant, func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = state })
}

// Variants pass their checks at the same time. The job starts on the flavor that is ready first; if a check of a better one
// fails it runs on, and once that check is ready it moves.
func TestVariantsPassChecksAtTheSameTime(t *testing.T) {
	p := newFamilyHarness(t, checkedQueue())
	p.see(check("nodes", "nodes", true))
	p.submit("job", "main", "", 0, "3")
	better := p.variant("job", "reserved")
	p.wantStanding("job", "runs on spot | reserved on reserved | runs on spot")
	if len(p.written["job"].Status.AdmissionChecks) != 0 || p.reserving() != 2 {
		t.Errorf("checks of the parent: %v; %d workloads with quota", p.written["job"].Status.AdmissionChecks, p.reserving())
	}
	p.answer(better, kueue.CheckStateRetry)
	p.wantStanding("job", "runs on spot | reserved on reserved | runs on spot") // it has been evicted, and tries again
	p.answer(better, kueue.CheckStateReady)
	p.wantStanding("job", "runs on spot, evicted | runs on reserved | runs on spot, evicted")
	p.letGo("job")
	p.wantStanding("job", "runs on reserved | runs on reserved | inactive")
}

// A check that rejects a variant has answered for good: others go on without it.
func TestRejectedVariantStaysOut(t *testing.T) {
	p := newFamilyHarness(t, checkedQueue())
	p.see(check("nodes", "nodes", true))
	p.submit("first", "main", "", 0, "4")
	p.submit("job", "main", "", 0, "3")
	p.wantStanding("job", "waits | waits | waits")
	p.answer(p.variant("first", "reserved"), kueue.CheckStateRejected)
	p.wantStanding("first", "runs on spot | inactive | runs on spot")
	p.wantStanding("job", "waits | reserved on reserved | waits")
	p.answer(p.variant("job", "reserved"), kueue.CheckStateRejected)
	p.wantStanding("job", "waits | inactive | waits")
	p.end("first", kueue.WorkloadFinishedReasonSucceeded)
	p.wantStanding("job", "runs on spot | inactive | runs on spot")
}

// What a job changes while it waits or runs, its variants follow: their priority, and pods that are done.
func TestVariantsFollowTheirParent(t *testing.T) {
	p := newFamilyHarness(t, familyQueue(1, "0", "4", preferred))
	p.submit("first", "main", "", 0, "4")
	p.submit("second", "main", "", 0, "4")
	p.advance(time.Second)
	p.submit("third", "main", "", 0, "4")
	p.change("third", func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To[int32](-1) })
	p.change("second", func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To[int32](-2) })
	p.change("first", func(wl *kueue.Workload) {
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	})
	p.wantStanding("third", "runs on spot | waits | runs on spot")
	p.wantStanding("second", "waits | waits | waits")
}

// With the gate off a policy means nothing.
func TestNoVariantsWithoutTheGate(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(named(&kueue.ResourceFlavor{}, "reserved"), named(&kueue.ResourceFlavor{}, "spot"), familyQueue(1, "0", "4", preferred))
	p.submit("job", "main", "", 0, "3")
	p.wantStanding("job", "runs on spot | - | -")
}

// Copies that another cluster sends have a preemption gate, which that cluster opens.
func TestGateOfACopy(t *testing.T) {
	p := newHarness(t)
	p.gates.orchestrated = true
	p.oneQueue()
	p.submit("low", "main", "", 0, "3")
	high := p.workload("high", "main", "", 9, "3")
	high.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: kueuelabels.MultiKueueGate}}
	p.see(high)
	p.expect("high", "AdmissionGated: Workload requires preemption, but it's gated")
	if gates := p.written["high"].Status.PreemptionGates; len(gates) != 1 || gates[0].Position != kueue.PreemptionGatePositionClosed ||
		workload.BlockedOnGatesSince(p.written["high"]).IsZero() || workload.IsEvicted(p.written["low"]) {
		t.Fatalf("%+v", p.written["high"].Status)
	}
	p.change("high", func(wl *kueue.Workload) { workload.OpenGate(wl, kueuelabels.MultiKueueGate, p.time) })
	if !workload.IsEvicted(p.written["low"]) {
		t.Fatal("the gate is open, and nobody is preempted")
	}
	p.letGo("low")
	p.expect("high", "quota")
	if !workload.BlockedOnGatesSince(p.written["high"]).IsZero() {
		t.Error("it has quota, and says that it is gated")
	}
}

// Whatever happens to jobs, checks and quotas, families come to rest, and then a job runs on the quota of a variant, which
// nobody else counts.
func TestFamiliesComeToRest(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		policy := preferred
		if seed%3 == 0 {
			policy = retained
		}
		cq := func(generation int64) *kueue.ClusterQueue {
			cq := familyQueue(generation, strconv.Itoa(r.IntN(6)), strconv.Itoa(r.IntN(6)), policy)
			if seed%2 == 0 {
				cq.Spec.AdmissionChecksStrategy = checkedQueue().Spec.AdmissionChecksStrategy
			}
			return cq
		}
		p := newFamilyHarness(t, cq(1))
		p.see(check("nodes", "nodes", true))
		jobs := 0
		for step := range 60 {
			p.recordedEvents() // its channel holds so many
			p.advance(time.Duration(r.IntN(200)) * time.Second)
			name := "job" + strconv.Itoa(r.IntN(max(jobs, 1)))
			switch job := p.written[name]; {
			case job == nil || r.IntN(8) == 0:
				p.submit("job"+strconv.Itoa(jobs), "main", "", r.Int32N(3), strconv.Itoa(1+r.IntN(4)))
				jobs++
			case r.IntN(5) == 0:
				p.see(cq(int64(step) + 2))
			case r.IntN(6) == 0 && !workload.IsFinished(job):
				p.change(name, func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(!workload.IsActive(wl)) })
			case workload.IsEvicted(job) && workload.HasReservation(job):
				p.letGo(name)
			case r.IntN(10) == 0 && workload.IsAdmitted(job) && !workload.IsFinished(job):
				p.end(name, kueue.WorkloadFinishedReasonSucceeded)
			default:
				v := p.written[p.variant(name, "reserved")]
				if v != nil && workload.HasReservation(v) && !workload.IsEvicted(v) && !workload.IsAdmitted(v) && len(v.Status.AdmissionChecks) > 0 {
					p.answer(v.Name, []kueue.CheckState{kueue.CheckStateReady, kueue.CheckStateRetry, kueue.CheckStateRejected}[r.IntN(3)])
				}
			}
			p.atRest(seed, step, jobs)
		}
	}
}

// atRest checks what is true of families when nothing is left to do.
func (p *harness) atRest(seed uint64, step, jobs int) {
	p.t.Helper()
	with := 0
	for i := range jobs {
		name := "job" + strconv.Itoa(i)
		job, runs := p.written[name], 0
		for _, flavor := range []string{"reserved", "spot"} {
			v := p.written[p.variant(name, flavor)]
			if v == nil || workload.IsFinished(v) {
				continue
			}
			if workload.UsesQuota(v) {
				with++
			}
			used := workload.HasReservation(job) && job.Status.Admission.PodSetAssignments[0].Flavors["cpu"] == kueue.ResourceFlavorReference(flavor)
			if used && !workload.IsFinished(job) && (workload.IsAdmitted(v) || workload.IsEvicted(job)) {
				runs++
			}
			if workload.IsEvicted(v) && workload.HasReservation(v) && !used {
				p.t.Fatalf("seed %d, step %d: %s keeps quota that nobody uses: %s", seed, step, v.Name, p.stands(name))
			}
		}
		if workload.HasReservation(job) && !workload.IsFinished(job) && runs != 1 {
			p.t.Fatalf("seed %d, step %d: %s", seed, step, p.stands(name))
		}
	}
	if p.reserving() != with {
		p.t.Fatalf("seed %d, step %d: %d workloads with quota, the queue counts %d", seed, step, with, p.reserving())
	}
}
