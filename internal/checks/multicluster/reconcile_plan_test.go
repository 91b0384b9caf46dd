package multicluster

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// set gives a workload a condition.
func set(wl *kueue.Workload, name, reason string, at time.Time) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
		Type: name, Status: metav1.ConditionTrue, Reason: reason, Message: reason, LastTransitionTime: metav1.NewTime(at),
	})
}

// waiting is a workload of two pods that has its quota and waits for the check.
func waiting(changes ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: 2}}, Priority: ptr.To(int32(5))}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "multi", State: kueue.CheckStatePending}}
	set(wl, kueue.WorkloadQuotaReserved, "QuotaReserved", noon)
	for _, change := range changes {
		change(wl)
	}
	return wl
}

func nominated(names ...string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = names }
}

func named(name string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Name = name }
}

// running is one that a cluster runs.
func running(cluster string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.ClusterName = &cluster
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		set(wl, kueue.WorkloadAdmitted, "Admitted", noon)
	}
}

// larger is the workload of an elastic job that takes the place of another.
func larger(wl *kueue.Workload) {
	wl.Annotations = map[string]string{workload.ReplacesAnnotation: "/first"}
}

func cluster(name string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Status.ClusterName = &name }
}

func is(name, reason string, at time.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { set(wl, name, reason, at) }
}

func check(state kueue.CheckState) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = state }
}

// copied is a copy of it in a cluster's queue, and admitted one that may run.
func copied(changes ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{Spec: waiting().Spec}
	for _, change := range changes {
		change(wl)
	}
	return wl
}

func admitted(at time.Time, changes ...func(*kueue.Workload)) *kueue.Workload {
	return copied(append([]func(*kueue.Workload){func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{}
		set(wl, kueue.WorkloadQuotaReserved, "QuotaReserved", at)
		set(wl, kueue.WorkloadAdmitted, "Admitted", at)
	}}, changes...)...)
}

func at(name string, copied *kueue.Workload) remoteState {
	return remoteState{name: name, configured: true, copy: copied, job: copied != nil && copied.Status.Admission != nil}
}

func lost(name string, since time.Time) remoteState {
	return remoteState{name: name, configured: true, lost: since}
}

func TestDecide(t *testing.T) {
	const timeout = 15 * time.Minute
	later := noon.Add(time.Minute)
	for name, test := range map[string]struct {
		local    *kueue.Workload
		gone     bool // the check no longer concerns it
		remotes  []remoteState
		siblings []*kueue.Workload
		elastic  bool
		next     bool // another one is about to replace it
		want     plan
		state    kueue.CheckState // of the answer
		says     string
	}{
		"clusters are nominated first": {
			local: waiting(), remotes: []remoteState{at("a", nil), lost("b", noon), at("c", nil)},
			want: plan{nominate: []string{"a", "c"}, create: []string{"a", "c"}},
		},
		"copies are where they are to be and only there": {
			local: waiting(nominated("a", "b")), remotes: []remoteState{at("a", nil), at("b", copied()), {name: "z", copy: copied()}},
			want: plan{remove: []string{"z"}, create: []string{"a"}},
		},
		"other checks come first": {
			local: waiting(func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "other", State: kueue.CheckStatePending})
			}), remotes: []remoteState{at("a", nil)},
		},
		"a copy in another shape is made anew": {
			local:   waiting(nominated("a")),
			remotes: []remoteState{at("a", copied(func(wl *kueue.Workload) { wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}} }))},
			want:    plan{remove: []string{"a"}},
		},
		"a larger slice goes where the one runs that it replaces": {
			local: waiting(named("larger")), remotes: []remoteState{at("a", nil), at("b", nil)}, elastic: true,
			siblings: []*kueue.Workload{waiting(named("first"), running("b"))},
			want:     plan{nominate: []string{"b"}, create: []string{"b"}},
		},
		"also where the queue says so": {
			local: waiting(running("b"), check(kueue.CheckStatePending)), remotes: []remoteState{at("a", nil), at("b", nil)}, elastic: true,
			want: plan{create: []string{"b"}},
		},
		"and waits there": {
			local: waiting(running("b"), check(kueue.CheckStatePending)), remotes: []remoteState{at("a", nil), at("b", copied())}, elastic: true,
		},
		"until it is admitted": {
			local: waiting(running("b"), check(kueue.CheckStatePending)), remotes: []remoteState{at("a", nil), at("b", admitted(noon))}, elastic: true,
			want:  plan{sync: "b", start: true},
			state: kueue.CheckStateReady, says: `The workload was admitted on "b"`,
		},
		"also before it has quota": {
			local: copied(larger, cluster("b")), remotes: []remoteState{at("a", nil), at("b", nil)}, elastic: true, gone: true,
		},
		"not once it was evicted": {
			local: copied(larger, cluster("b"), is(kueue.WorkloadEvicted, "Preempted", noon)), remotes: []remoteState{at("a", nil), at("b", nil)}, elastic: true, gone: true,
			want: plan{clear: true},
		},
		"what it replaced is left alone here": {
			local: waiting(running("b"), is(kueue.WorkloadFinished, kueue.WorkloadSliceReplaced, later)), elastic: true,
			remotes: []remoteState{at("a", nil), at("b", admitted(noon))},
		},
		"and is not over because it is there": {
			local: waiting(running("b")), elastic: true, next: true,
			remotes: []remoteState{at("b", admitted(noon, is(kueue.WorkloadFinished, kueue.WorkloadSliceReplaced, later)))},
		},
		"a job that became smaller is there, too": {
			local: waiting(running("a")), elastic: true,
			remotes: []remoteState{at("a", admitted(noon, func(wl *kueue.Workload) { wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}} }))},
			want:    plan{sync: "a", start: true, resize: "a"},
		},
		"one that is no elastic job is not": {
			local:   waiting(running("a")),
			remotes: []remoteState{at("a", admitted(noon, func(wl *kueue.Workload) { wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}} }))},
			state:   kueue.CheckStateRetry, says: `Admitting remote no longer exists, Previously: "Ready"`,
		},
		"priority follows": {
			local:   waiting(nominated("a")),
			remotes: []remoteState{at("a", copied(func(wl *kueue.Workload) { wl.Spec.Priority = ptr.To(int32(1)) }))},
			want:    plan{follow: []string{"a"}},
		},
		"the first to admit it wins": {
			local:   waiting(nominated("a", "b", "c")),
			remotes: []remoteState{at("a", admitted(later)), at("b", admitted(noon)), at("c", copied())},
			want:    plan{remove: []string{"a", "c"}, sync: "b", start: true, choose: "b"},
			state:   kueue.CheckStateReady, says: `The workload was admitted on "b"`,
		},
		"a cluster that is not nominated cannot win": {
			local:   waiting(nominated("a")),
			remotes: []remoteState{at("a", copied()), at("b", admitted(noon))},
			want:    plan{nominate: []string{"a", "b"}},
		},
		"it goes on where it is": {
			local:   waiting(running("b")),
			remotes: []remoteState{at("a", admitted(noon)), at("b", admitted(later))},
			want:    plan{remove: []string{"a"}, sync: "b", start: true},
		},
		"a lost cluster is waited for": {
			local: waiting(running("a")), remotes: []remoteState{lost("a", noon.Add(-5*time.Minute)), at("b", nil)},
			want: plan{after: 10 * time.Minute},
		},
		"but not for ever": {
			local: waiting(running("a")), remotes: []remoteState{lost("a", noon.Add(-timeout)), at("b", nil)},
			state: kueue.CheckStateRetry, says: `Admitting remote lost, Previously: "Ready"`,
		},
		"then its place is free, whatever it may still do": {
			local:   waiting(running("a"), check(kueue.CheckStateRetry), is(kueue.WorkloadEvicted, "AdmissionCheck", noon)),
			remotes: []remoteState{lost("a", noon.Add(-timeout)), at("b", nil)},
			want:    plan{clear: true},
		},
		"what it did is removed when it is back": {
			local: waiting(running("b")), remotes: []remoteState{at("a", admitted(noon.Add(-time.Hour))), at("b", admitted(noon))},
			want: plan{remove: []string{"a"}, sync: "b", start: true},
		},
		"the copy was deleted": {
			local: waiting(running("a")), remotes: []remoteState{at("a", nil)},
			state: kueue.CheckStateRetry, says: `Admitting remote no longer exists, Previously: "Ready"`,
		},
		"the cluster is no longer one of the check's": {
			local: waiting(running("a")), remotes: []remoteState{at("b", nil), {name: "a", copy: admitted(noon), job: true}},
			state: kueue.CheckStateRetry, says: `Admitting remote no longer exists, Previously: "Ready"`,
		},
		"it was evicted there": {
			local: waiting(running("a")), remotes: []remoteState{at("a", admitted(noon, is(kueue.WorkloadEvicted, "Preempted", later)))},
			state: kueue.CheckStateRetry, says: `Workload evicted on worker cluster: "a", resetting for re-admission. Previously: "Ready"`,
		},
		"that is said once": {
			local:   waiting(running("a"), check(kueue.CheckStateRetry)),
			remotes: []remoteState{at("a", admitted(noon, is(kueue.WorkloadEvicted, "Preempted", later)))},
		},
		"evicted here it is stopped there": {
			local:   waiting(running("a"), is(kueue.WorkloadEvicted, "Preempted", later)),
			remotes: []remoteState{at("a", admitted(noon))},
			want:    plan{stop: "a", sync: "a"},
		},
		"once": {
			local:   waiting(running("a"), is(kueue.WorkloadEvicted, "Preempted", later)),
			remotes: []remoteState{at("a", admitted(noon, is(kueue.WorkloadDeactivationTarget, "EvictedOnManagerCluster", later)))},
			want:    plan{sync: "a"},
		},
		"when it has stopped it is removed": {
			local:   waiting(running("a"), is(kueue.WorkloadEvicted, "Preempted", later)),
			remotes: []remoteState{at("a", copied())},
			want:    plan{remove: []string{"a"}},
		},
		"and when it is gone no cluster runs it": {
			local: waiting(running("a"), is(kueue.WorkloadEvicted, "Preempted", later)), remotes: []remoteState{at("a", nil)},
			want: plan{clear: true},
		},
		"evicted before anybody took it": {
			local: waiting(nominated("a"), is(kueue.WorkloadEvicted, "Preempted", later)), remotes: []remoteState{at("a", copied())},
			want: plan{remove: []string{"a"}},
		},
		"it ended there": {
			local:   waiting(running("a")),
			remotes: []remoteState{at("a", admitted(noon, is(kueue.WorkloadFinished, "Succeeded", later)))},
			want: plan{sync: "a", finish: &metav1.Condition{
				Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded", Message: "Succeeded", LastTransitionTime: metav1.NewTime(later),
			}},
		},
		"an end that was none": {
			local:   waiting(running("a")),
			remotes: []remoteState{at("a", admitted(noon, is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonOutOfSync, later)))},
			want:    plan{warn: true},
			state:   kueue.CheckStateRetry, says: `Remote workload on worker cluster "a" is out of sync with its user job, resetting for re-dispatch, Previously: "Ready"`,
		},
		"what has ended here goes there": {
			local:   waiting(running("a"), is(kueue.WorkloadFinished, "Succeeded", later)),
			remotes: []remoteState{at("a", admitted(noon)), lost("b", noon)},
			want:    plan{remove: []string{"a"}},
		},
		"what has no quota here goes there": {
			local:   waiting(nominated("a"), func(wl *kueue.Workload) { wl.Status.Conditions, wl.Status.Admission = nil, nil }),
			remotes: []remoteState{at("a", copied())},
			want:    plan{remove: []string{"a"}, clear: true},
		},
		"the check is no longer its": {
			local: waiting(running("a")), gone: true, remotes: []remoteState{{name: "a", copy: admitted(noon), job: true}},
			want: plan{remove: []string{"a"}},
		},
		"the first of a job's workloads is sent out": {
			local: waiting(named("0")), siblings: []*kueue.Workload{waiting(named("1"))}, remotes: []remoteState{at("a", nil), at("b", nil)},
			want: plan{nominate: []string{"a", "b"}, create: []string{"a", "b"}},
		},
		"the others wait for it": {
			local: waiting(named("1"), nominated("a")), siblings: []*kueue.Workload{waiting(named("0"))}, remotes: []remoteState{at("a", copied())},
			want: plan{remove: []string{"a"}},
		},
		"unless it has no quota": {
			local: waiting(named("1")), siblings: []*kueue.Workload{copied(named("0"))}, remotes: []remoteState{at("a", nil)},
			want: plan{nominate: []string{"a"}, create: []string{"a"}},
		},
		"and go where it runs": {
			local: waiting(named("1")), siblings: []*kueue.Workload{waiting(named("0"), running("b"))}, remotes: []remoteState{at("a", nil), at("b", nil)},
			want: plan{nominate: []string{"b"}, create: []string{"b"}},
		},
		"and nowhere else": {
			local:    waiting(named("1"), nominated("a", "b")),
			siblings: []*kueue.Workload{waiting(named("0"), running("b"))},
			remotes:  []remoteState{at("a", admitted(noon)), at("b", copied())},
			want:     plan{nominate: []string{"b"}, remove: []string{"a"}},
		},
		"they are brought together": {
			local: waiting(named("1"), running("a")), siblings: []*kueue.Workload{waiting(named("0"), running("b"))}, remotes: []remoteState{at("a", admitted(noon))},
			state: kueue.CheckStateRetry, says: `Another cluster runs the rest of its job, Previously: "Ready"`,
		},
		"where the first is": {
			local: waiting(named("0"), running("b")), siblings: []*kueue.Workload{waiting(named("1"), running("a"))}, remotes: []remoteState{at("b", admitted(noon))},
			want: plan{sync: "b", start: true},
		},
		"ready without a cluster": {
			local: waiting(check(kueue.CheckStateReady)), remotes: []remoteState{at("a", nil)},
			state: kueue.CheckStateRetry,
			says:  `Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it, Previously: "Ready"`,
		},
		"one without a name, from an older Kueue, goes on where it runs": {
			local: waiting(check(kueue.CheckStateReady)), remotes: []remoteState{at("a", nil), at("b", admitted(noon))},
			want: plan{sync: "b", start: true},
		},
		"and ends there": {
			local:   waiting(check(kueue.CheckStateReady)),
			remotes: []remoteState{at("b", admitted(noon, is(kueue.WorkloadFinished, "Succeeded", later)))},
			want: plan{sync: "b", finish: &metav1.Condition{
				Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded", Message: "Succeeded", LastTransitionTime: metav1.NewTime(later),
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation{local: test.local, remotes: test.remotes, now: noon, elastic: test.elastic, next: test.next}
			for _, other := range test.siblings {
				s.siblings = append(s.siblings, *other)
			}
			if !test.gone {
				s.check = &test.local.Status.AdmissionChecks[0]
			}
			got := decide(s, settings{workerLostTimeout: timeout, dispatcher: dispatcher{name: kueueconfig.MultiKueueDispatcherModeAllAtOnce}})
			var state kueue.AdmissionCheckState
			if got.answer != nil {
				state, got.answer = *got.answer, nil
			}
			if state.State != test.state || state.Message != test.says {
				t.Errorf("the answer is %s %q, want %s %q", state.State, state.Message, test.state, test.says)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// One cluster at a time preempts others for a workload, the one that has waited longest for it first.
func TestOneClusterPreemptsAtATime(t *testing.T) {
	settings := settings{orchestrated: true, dispatcher: dispatcher{name: kueueconfig.MultiKueueDispatcherModeAllAtOnce}}
	blocked := func(since time.Time) func(*kueue.Workload) {
		return is(kueue.WorkloadBlockedOnPreemptionGates, kueue.PreemptionGated, since)
	}
	opened := func(at time.Time) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { workload.OpenGate(wl, kueuelabels.MultiKueueGate, at) }
	}
	a := func(changes ...func(*kueue.Workload)) remoteState { return at("a", copied(changes...)) }
	b := func(changes ...func(*kueue.Workload)) remoteState { return at("b", copied(changes...)) }
	const turn = workload.PreemptionTurn
	for name, test := range map[string]struct {
		remotes []remoteState
		want    plan
	}{
		"copies come with their gate closed": {remotes: []remoteState{at("a", nil), b()}, want: plan{create: []string{"a"}}},
		"nobody has to preempt":              {remotes: []remoteState{a(), b()}},
		"the first":                          {remotes: []remoteState{a(blocked(noon)), b(blocked(noon.Add(-time.Second)))}, want: plan{open: "b", after: turn}},
		"the other waits": {
			remotes: []remoteState{a(blocked(noon)), b(blocked(noon), opened(noon.Add(-time.Minute)))}, want: plan{after: 4 * time.Minute},
		},
		"until it is its turn": {remotes: []remoteState{a(blocked(noon)), b(blocked(noon), opened(noon.Add(-turn)))}, want: plan{open: "a", after: turn}},
		"a clock that is wrong": {
			remotes: []remoteState{a(blocked(noon)), b(blocked(noon), opened(noon.Add(time.Hour)))}, want: plan{open: "a", after: turn},
		},
		"a cluster that does not answer": {remotes: []remoteState{a(blocked(noon)), lost("b", noon)}, want: plan{open: "a", after: turn}},
	} {
		t.Run(name, func(t *testing.T) {
			wl := waiting(nominated("a", "b"))
			if !test.remotes[1].lost.IsZero() {
				wl = waiting(nominated("a"))
			}
			s := situation{local: wl, remotes: test.remotes, now: noon, check: &wl.Status.AdmissionChecks[0]}
			test.want.gated = true
			if got := decide(s, settings); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestIncremental(t *testing.T) {
	remotes := []remoteState{at("c", nil), at("b", nil), lost("x", noon), at("a", nil), at("d", nil)}
	for name, test := range map[string]struct {
		before  []string
		after   time.Duration
		byName  bool
		want    []string
		waiting time.Duration
	}{
		"the first in the order given":     {want: []string{"c", "b"}, waiting: round},
		"no more before the round is over": {before: []string{"c", "b"}, after: time.Minute, want: []string{"c", "b"}, waiting: 4 * time.Minute},
		"then the next":                    {before: []string{"c", "b"}, after: round, want: []string{"c", "b", "a", "d"}},
		"all of them in the end":           {before: []string{"c", "b", "a", "d"}, after: time.Hour, want: []string{"c", "b", "a", "d"}},
		"by name":                          {byName: true, want: []string{"a", "b"}, waiting: round},
		"in the place of one that is lost": {before: []string{"x", "c"}, want: []string{"x", "c", "b"}, waiting: round},
	} {
		t.Run(name, func(t *testing.T) {
			wl := waiting(nominated(test.before...))
			s := situation{local: wl, check: &wl.Status.AdmissionChecks[0], remotes: remotes, now: noon.Add(test.after)}
			d := dispatcher{name: kueueconfig.MultiKueueDispatcherModeIncremental, step: 2, inOrder: !test.byName}
			if got, again := d.nominate(&s); !slices.Equal(got, test.want) || again != test.waiting {
				t.Errorf("got %v and again after %s, want %v after %s", got, again, test.want, test.waiting)
			}
		})
	}
	wl := waiting(nominated("d"))
	s := situation{local: wl, check: &wl.Status.AdmissionChecks[0], remotes: remotes, now: noon}
	if got, _ := (dispatcher{name: "example.com/mine"}).nominate(&s); !slices.Equal(got, []string{"d"}) {
		t.Errorf("an external dispatcher's nomination became %v", got)
	}
}

// The gates switch what they do in Kueue.
func TestSettings(t *testing.T) {
	config := v1alpha1.MultiKueue{IncrementalDispatcherConfig: &kueueconfig.IncrementalDispatcherConfig{StepSize: ptr.To(int32(7))}}
	for _, on := range []bool{true, false} {
		gates, err := features.New(map[string]bool{
			string(features.MultiKueueRemoteSpecSync): on, string(features.MultiKueueIncrementalDispatcherConfig): on,
			string(features.MultiKueueIncrementalDispatcherRespectConfigOrder): on,
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := settingsOf(config, gates)
		if err != nil || got.forward != on || got.dispatcher.inOrder != on || (got.dispatcher.step == 7) != on {
			t.Errorf("with the gates %t it is %+v, %v", on, got, err)
		}
	}
}

// A job that is dropped goes at once, and what belongs to it after it, as in Kueue: without a garbage collector, or while one
// is behind, what was asked for here must not wait for pods there. One that is going already is left alone.
func TestDropDoesNotWaitForPods(t *testing.T) {
	var how []metav1.DeletionPropagation
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			how = append(how, *(&client.DeleteOptions{}).ApplyOptions(options).PropagationPolicy)
			return nil
		},
	}).Build()
	job := &unstructured.Unstructured{}
	job.SetUID("1")
	there := &session{Client: c}
	for _, going := range []bool{false, true} {
		if going {
			job.SetDeletionTimestamp(ptr.To(metav1.NewTime(noon)))
		}
		if err := there.drop(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(how, []metav1.DeletionPropagation{metav1.DeletePropagationBackground}) {
		t.Errorf("deleted with %v", how)
	}
}

// The name of the cluster that runs a workload is written as Kueue writes it, as its field manager: who takes it back as
// that one, by leaving it out, must not find another owner. Where another dispatcher nominated, an apply leaves its names
// there, which the API refuses beside the one that was chosen: then all is written at once.
func TestFieldManagerOfTheAnswer(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		invalid bool
		want    []string
	}{
		"nominated here":       {false, []string{"application/apply-patch+yaml kueue-admission"}},
		"nominated by another": {true, []string{"application/apply-patch+yaml kueue-admission", "application/merge-patch+json "}},
	} {
		var sent, data []string
		c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				text, err := patch.Data(obj)
				sent = append(sent, string(patch.Type())+" "+(&client.SubResourcePatchOptions{}).ApplyOptions(options).FieldManager)
				data = append(data, string(text))
				if test.invalid && patch.Type() == types.ApplyYAMLPatchType {
					return apierrors.NewInvalid(kueue.SchemeGroupVersion.WithKind("Workload").GroupKind(), "wl", nil)
				}
				return err
			},
		}).Build()
		counted := ""
		w := &workloads{client: c, recorder: events.NewFakeRecorder(4), admitted: func(queue, cluster string) { counted += queue + " " + cluster }}
		p := plan{answer: &kueue.AdmissionCheckState{Name: "multi", State: kueue.CheckStateReady}, choose: "a"}
		if err := w.answer(t.Context(), &situation{local: waiting(nominated("a", "b"))}, p); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sent, test.want) || !strings.Contains(data[0], `"clusterName":"a"`) || strings.Contains(data[0], "nominated") || counted != "cq a" {
			t.Errorf("%s: sent %q, %q, counted %q", name, sent, data, counted)
		}
		if test.invalid && (!strings.Contains(data[1], `"clusterName":"a"`) || !strings.Contains(data[1], `"nominatedClusterNames":null`)) {
			t.Errorf("%s: sent %q", name, data[1])
		}
	}
}

// What the nodes cost that a cluster bought for a workload is written with the answer, where the cluster's prices are known here, and no more than those
// allow. What a cluster says whose prices nobody knows is nothing.
func TestCostInAnotherCluster(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	bought := admitted(noon, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{
			Name: "main", NodeSelector: map[string]string{cloudv1.PurchaseLabel: "1-1"}, Annotations: map[string]string{cloudv1.PriceAnnotation: "70.00"},
		}}}}
	})
	for name, test := range map[string]struct {
		dearest float64
		want    string
	}{
		"as it says":               {40, `\"units\":70000000`},
		"as much as may be":        {30, `\"units\":60000000`}, // for each of two pods
		"nobody knows a price":     {0, ""},
		"there are no CloudOffers": {-1, ""},
	} {
		data := ""
		c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
				text, err := patch.Data(obj)
				data = string(text)
				return err
			},
		}).Build()
		w := &workloads{client: c, recorder: events.NewFakeRecorder(4), now: func() time.Time { return noon }, admitted: func(string, string) {}}
		if test.dearest >= 0 {
			w.dearest = func(_ context.Context, cluster string) (float64, error) {
				if cluster != "a" {
					t.Errorf("asked for the prices of %s", cluster)
				}
				return test.dearest, nil
			}
		}
		s := situation{local: waiting(nominated("a", "b")), now: noon, remotes: []remoteState{at("b", nil), at("a", bought)}}
		s.check = &s.local.Status.AdmissionChecks[0]
		p := decide(s, settings{workerLostTimeout: time.Minute})
		if p.choose != "a" {
			t.Fatalf("%s: %+v", name, p)
		}
		if err := w.answer(t.Context(), &s, p); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(data, "elasticai.io/NodesBought") != (test.want != "") || !strings.Contains(data, test.want) {
			t.Errorf("%s: %s", name, data)
		}
	}
}
