package queue

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// job is the workload of job/NAME, of the same name.
func (p *harness) job(name, after, cpus string) *kueue.Workload {
	wl := p.workload(name, "main", "", 0, cpus)
	wl.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: name, UID: types.UID(name)}}
	if after != "" {
		wl.Annotations = map[string]string{v1alpha1.AfterAnnotation: after}
	}
	return wl
}

func (p *harness) end(name, reason string) {
	p.change(name, func(wl *kueue.Workload) { workload.Finish(wl, reason, "ended", p.time) })
}

func (p *harness) remove(name string) {
	p.turn([]message{{object: p.written[name], deleted: true}})
	delete(p.written, name)
	p.see()
}

// why is what a workload's status says: that it has quota, or why it waits.
func (p *harness) why(name string) string {
	if workload.HasReservation(p.written[name]) {
		return "quota"
	}
	c := apimeta.FindStatusCondition(p.written[name].Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func (p *harness) expect(name, want string) {
	p.t.Helper()
	if got := p.why(name); got != want {
		p.t.Errorf("%s: %s, want %s", name, got, want)
	}
}

const (
	succeeded = kueue.WorkloadFinishedReasonSucceeded
	failed    = kueue.WorkloadFinishedReasonFailed
)

// A job starts when what it comes after has ended so, and not before. That has come true for good, though the job that
// ended is deleted while others have not, or while there is no quota.
func TestComesAfterOthers(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(p.job("train", "ok job/prepare, any job/clean", "4"))
	p.expect("train", "Dependency: It comes after ok job/prepare (not in a queue), any job/clean (not in a queue)")
	p.see(p.job("prepare", "", "1"), p.job("clean", "", "1"))
	p.expect("train", "Dependency: It comes after ok job/prepare (has not ended), any job/clean (has not ended)")
	p.end("prepare", succeeded)
	p.remove("prepare")
	p.expect("train", "Dependency: It comes after any job/clean (has not ended)")
	p.submit("other", "main", "", 9, "2")
	p.end("clean", failed)
	p.remove("clean")
	if got := p.why("train"); !strings.HasPrefix(got, "WaitingForQuota") {
		t.Errorf("train: %s", got)
	}
	p.end("other", succeeded)
	p.expect("train", "quota")
	if got := p.written["train"].Annotations[v1alpha1.AfterMetAnnotation]; got != "ok job/prepare, any job/clean" {
		t.Errorf("it says of what has come true: %q", got)
	}
}

// What cannot come true any more is told, and the job waits: until a job of that name ends as it asks, or it asks for
// something else.
func TestDependencyNeverSatisfied(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(p.job("prepare", "", "1"), p.job("train", "ok job/prepare", "1"), p.job("tell", "notok job/prepare", "1"))
	p.end("prepare", failed)
	p.expect("tell", "quota")
	p.expect("train", "DependencyNeverSatisfied: It comes after ok job/prepare (failed)")
	if x := p.engine.Explain(admission.Key{Namespace: "ns", Name: "train"}, p.time); x.Reason != admission.ReasonDependencyNeverSatisfied || x.State != admission.StateHeldBack {
		t.Errorf("%+v", x)
	}
	p.remove("prepare")
	p.expect("train", "Dependency: It comes after ok job/prepare (not in a queue)")
	again := p.job("prepare", "", "1")
	again.UID = "prepare-2"
	p.see(again)
	p.end("prepare", succeeded)
	p.expect("train", "quota")

	p.see(p.job("late", "notok job/prepare", "1"))
	p.expect("late", "DependencyNeverSatisfied: It comes after notok job/prepare (succeeded)")
	p.change("late", func(wl *kueue.Workload) { wl.Annotations = nil })
	p.expect("late", "quota")

	p.see(p.job("wrong", "prepare", "1"))
	p.expect("wrong", `Misconfigured: annotation elasticai.io/after: "prepare" is not of the form "ok job/prepare"`)
}

// Those that wait for each other are all told, and go when one of them is changed.
func TestDependencyCycle(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(p.job("a", "ok job/b", "1"))
	p.see(p.job("b", "ok job/c", "1"))
	p.see(p.job("c", "any job/a", "1"))
	p.expect("a", "DependencyNeverSatisfied: It comes after ok job/b (which comes after it)")
	p.expect("b", "DependencyNeverSatisfied: It comes after ok job/c (which comes after it)")
	p.expect("c", "DependencyNeverSatisfied: It comes after any job/a (which comes after it)")
	p.change("c", func(wl *kueue.Workload) { wl.Annotations = nil })
	p.expect("c", "quota")
	p.expect("b", "Dependency: It comes after ok job/c (has not ended)")
	p.expect("a", "Dependency: It comes after ok job/b (has not ended)")
	p.end("c", succeeded)
	p.end("b", succeeded)
	p.expect("a", "quota")
}

// Another namespace's jobs can be waited for where a policy says so. Without one the answer is the same, whether such a
// job exists or not.
func TestDependencyAcrossNamespaces(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	there := p.job("prepare", "", "1")
	there.Namespace = "data"
	workload.Finish(there, succeeded, "ended", p.time)
	p.see(named(&corev1.Namespace{}, "data"), there)
	const refused = "DependencyNeverSatisfied: It comes after ok job/data/%s (no QueuePolicy lets jobs of this queue wait for those of namespace data)"
	p.see(p.job("train", "ok job/data/prepare", "1"), p.job("probe", "ok job/data/nothing", "1"))
	p.expect("train", fmt.Sprintf(refused, "prepare"))
	p.expect("probe", fmt.Sprintf(refused, "nothing"))
	policy := named(&v1alpha1.QueuePolicy{}, "pipelines")
	policy.Generation, policy.Spec.Dependencies = 1, &v1alpha1.Dependencies{Namespaces: []string{"data"}}
	policy.Spec.TargetRefs = []v1alpha1.TargetRef{{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "main"}}
	p.see(policy)
	p.expect("train", "quota")
	p.expect("probe", "Dependency: It comes after ok job/data/nothing (not in a queue)")
	p.turn([]message{{object: policy, deleted: true}})
	p.see()
	p.expect("train", "quota")
	p.expect("probe", fmt.Sprintf(refused, "nothing"))
}

// What would become of a job says what it would wait for.
func TestPlanOfOneThatComesAfter(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.see(p.job("prepare", "", "1"))
	x := p.engine.Consider(p.forEngine(p.job("train", "ok job/prepare", "1")), p.time)
	if x.Reason != admission.ReasonDependency || x.Message != "It comes after ok job/prepare (has not ended)" {
		t.Errorf("%+v", x)
	}
}

// reportedReason is why a workload waits, without how much quota is lacking, which changes with what others use.
func reportedReason(p *harness, name string) string {
	why := p.why(name)
	if strings.HasPrefix(why, "Dependency") {
		return why
	}
	reason, _, _ := strings.Cut(why, ":")
	return reason
}

// A new leader, which knows the objects alone, decides and writes nothing that the last one did not: what workloads wait
// for, and what of it has come true, is in them.
func TestRestartKeepsDependencies(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newHarness(t)
		p.oneQueue()
		jobs := []string{"a", "b", "c", "d"}
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			job := rapid.SampledFrom(jobs).Draw(r, "job")
			wl := p.written[job]
			switch what := rapid.IntRange(0, 4).Draw(r, "what"); {
			case wl == nil:
				var after []string
				for range rapid.IntRange(0, 2).Draw(r, "others") {
					after = append(after, rapid.SampledFrom([]string{"ok", "notok", "any"}).Draw(r, "when")+" job/"+rapid.SampledFrom(jobs).Draw(r, "whom"))
				}
				p.advance(1)
				p.see(p.job(job, strings.Join(after, ", "), rapid.SampledFrom([]string{"1", "3"}).Draw(r, "cpus")))
			case what == 0:
				p.remove(job)
			case what == 1 && workload.HasReservation(wl):
				p.change(job, func(wl *kueue.Workload) { workload.Evict(wl, kueue.WorkloadEvictedByPreemption, "", "evicted", p.time) })
				p.change(job, func(wl *kueue.Workload) {
					wl.Status.Admission = nil
					workload.SetPending(wl, admission.Pending{Reason: admission.ReasonPending, Message: "evicted"}, true, p.time)
				})
			case workload.HasReservation(wl) && !workload.IsFinished(wl):
				p.end(job, rapid.SampledFrom([]string{succeeded, failed}).Draw(r, "how"))
			}
			q := newHarness(t)
			q.time, q.version = p.time, p.version
			q.oneQueue()
			var all []client.Object
			for _, job := range rapid.Permutation(jobs).Draw(r, "order") {
				if wl := p.written[job]; wl != nil {
					all = append(all, wl.DeepCopy())
				}
			}
			q.see(all...)
			for _, job := range jobs {
				if wl := p.written[job]; wl != nil && (reportedReason(p, job) != reportedReason(q, job) || fmt.Sprint(wl.Annotations) != fmt.Sprint(q.written[job].Annotations)) {
					r.Fatalf("%s was: %s %v\nafter a restart: %s %v", job, p.why(job), wl.Annotations, q.why(job), q.written[job].Annotations)
				}
			}
		}
	})
}
