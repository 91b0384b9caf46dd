package jobs

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// elasticLife is a kind whose jobs may be scaled while they run.
type elasticLife struct {
	sample string
	one    int // pods that one step of scale adds
	// suspend is where the flag is; spec.suspend by default.
	suspend []string
	running string
	scale   func(job *unstructured.Unstructured, to int64) error
	// template is the path of the template of the pods that are scaled; empty where the
	// sandbox has the operator.
	template func(job *unstructured.Unstructured) map[string]any
}

// inList writes a field of one element of a list.
func inList(job *unstructured.Unstructured, at int, value any, field string, list ...string) error {
	elements, found, err := unstructured.NestedSlice(job.Object, list...)
	if err != nil || !found || at >= len(elements) {
		return fmt.Errorf("%v has no element %d: %w", list, at, err)
	}
	elements[at].(map[string]any)[field] = value
	return unstructured.SetNestedSlice(job.Object, elements, list...)
}

func element(job *unstructured.Unstructured, at int, fields []string, list ...string) map[string]any {
	elements, _, _ := unstructured.NestedSlice(job.Object, list...)
	found, _, _ := unstructured.NestedMap(elements[at].(map[string]any), fields...)
	return found
}

// elasticTrain is a declared kind with elastic set.
var elasticTrain = elasticLife{
	sample: "declared/train", one: 1, running: `{riding: 3}`, suspend: []string{"spec", "paused"},
	scale: func(job *unstructured.Unstructured, to int64) error {
		return inList(job, 1, to, "size", "spec", "crews")
	},
	template: func(job *unstructured.Unstructured) map[string]any {
		return element(job, 1, []string{"pod"}, "spec", "crews")
	},
}

var elasticLives = []elasticLife{
	{
		sample: "job", one: 1,
		scale: func(job *unstructured.Unstructured, to int64) error {
			return unstructured.SetNestedField(job.Object, to, "spec", "parallelism")
		},
	},
	{
		sample: "jobset", one: 2,
		running: `{replicatedJobsStatus: [{name: leader, active: 1, ready: 1, failed: 0, succeeded: 0, suspended: 0}, {name: workers, active: 1, ready: 1, failed: 0, succeeded: 0, suspended: 0}]}`,
		scale: func(job *unstructured.Unstructured, to int64) error {
			template := element(job, 1, []string{"template"}, "spec", "replicatedJobs")
			template["spec"].(map[string]any)["parallelism"], template["spec"].(map[string]any)["completions"] = to, to
			return inList(job, 1, template, "template", "spec", "replicatedJobs")
		},
		template: func(job *unstructured.Unstructured) map[string]any {
			return element(job, 1, []string{"template", "spec", "template"}, "spec", "replicatedJobs")
		},
	},
	{
		sample: "raycluster", one: 1, running: `{state: ready}`,
		scale: func(job *unstructured.Unstructured, to int64) error {
			return inList(job, 0, to, "replicas", "spec", "workerGroupSpecs")
		},
		template: func(job *unstructured.Unstructured) map[string]any {
			return element(job, 0, []string{"template"}, "spec", "workerGroupSpecs")
		},
	},
}

func TestElastic(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	for _, l := range elasticLives {
		t.Run(l.sample, func(t *testing.T) {
			t.Parallel()
			l.live(t)
		})
	}
}

// live: a job grows when there is quota for it, and its additional pods are gated
// until then; it shrinks at once; no quota is ever counted twice.
func (l elasticLife) live(t *testing.T) {
	a := newArena(t)
	a.open(t)
	objects := samples(t, l.sample)
	job := objects[len(objects)-1]
	job.SetNamespace(a.namespace)
	annotations := map[string]string{kinds.ElasticAnnotation: "true"}
	job.SetAnnotations(annotations)
	if err := l.scale(job, 2); err != nil {
		t.Fatal(err)
	}
	if l.template == nil { // a Job with pods that run until they are deleted
		for _, set := range []struct {
			value any
			path  []string
		}{
			{int64(100), []string{"spec", "completions"}},
			{map[string]any{sandbox.RunFor: "forever"}, []string{"spec", "template", "metadata", "annotations"}},
		} {
			if err := unstructured.SetNestedField(job.Object, set.value, set.path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	cluster.Make(t, job)
	first := cluster.WorkloadOf(t, job)
	waitCondition(t, first, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	if l.suspend == nil {
		l.suspend = []string{"spec", "suspend"}
	}
	// An operator makes pods when the job is started, from the template it has then.
	sandbox.Eventually(t, "it is started", func(ctx context.Context) error {
		now, err := fetch(ctx, job)
		if err != nil {
			return err
		}
		if suspended, _, _ := unstructured.NestedBool(now.Object, l.suspend...); suspended {
			return fmt.Errorf("it is suspended")
		}
		return nil
	})
	if l.running != "" {
		setStatus(t, job, l.running)
	}
	l.play(t, a, job, 2)
	waitGrown(t, a, 2*l.one, 0)
	a.waitCards(t, 2*l.one)

	// Another workload takes the rest: the job cannot grow yet, and its additional pods stay
	// gated. The running pods continue.
	other := a.ballast(t, 8-2*l.one)
	waitCondition(t, other, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	l.resize(t, job, 3)
	l.play(t, a, job, 3)
	waitGrown(t, a, 2*l.one, l.one)
	second := a.successor(t, first)
	waitCondition(t, second, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	a.waitCards(t, 8)

	// There is free quota: the new workload replaces the old one.
	if err := cluster.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if replaced := waitCondition(t, first, kueue.WorkloadFinished, metav1.ConditionTrue); replaced.Reason != kueue.WorkloadSliceReplaced {
		t.Fatalf("the first workload finished as %s", replaced.Reason)
	}
	waitGrown(t, a, 3*l.one, 0)
	a.waitCards(t, 3*l.one)

	// It shrinks, and must request the released quota again.
	l.resize(t, job, 1)
	l.play(t, a, job, 1)
	a.waitCards(t, l.one)
	other = a.ballast(t, 8-l.one)
	waitCondition(t, other, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	l.resize(t, job, 2)
	l.play(t, a, job, 2)
	waitGrown(t, a, l.one, l.one)
	third := a.successor(t, second)
	waitCondition(t, third, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	if err := cluster.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, third, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	waitGrown(t, a, 2*l.one, 0)
	a.waitCards(t, 2*l.one)
	now, err := fetch(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if suspended, _, _ := unstructured.NestedBool(now.Object, l.suspend...); suspended {
		t.Fatal("it was stopped on the way")
	}

	// It is preempted like any other job.
	intruder := a.intruder(t)
	waitCondition(t, third, kueue.WorkloadEvicted, metav1.ConditionTrue)
	if err := cluster.Delete(t.Context(), intruder); err != nil {
		t.Fatal(err)
	}
}

func (l elasticLife) resize(t *testing.T, job *unstructured.Unstructured, to int64) {
	t.Helper()
	sandbox.Eventually(t, "it can be scaled", func(ctx context.Context) error {
		now, err := fetch(ctx, job)
		if err != nil {
			return err
		}
		if err := l.scale(now, to); err != nil {
			return err
		}
		return cluster.Update(ctx, now)
	})
}

// play creates and deletes pods as the job's operator would.
func (l elasticLife) play(t *testing.T, a *arena, job *unstructured.Unstructured, size int) {
	t.Helper()
	if l.template == nil {
		return
	}
	now, err := fetch(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		name := fmt.Sprintf("%s-%d", job.GetName(), i)
		if i < size*l.one {
			template := l.template(now)
			if err := unstructured.SetNestedField(template, "forever", "metadata", "annotations", sandbox.RunFor); err != nil {
				t.Fatal(err)
			}
			makePod(t, a, now, name, template["metadata"], template["spec"])
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}
		if err := cluster.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// waitGrown waits until so many pods may run, and so many are gated.
func waitGrown(t *testing.T, a *arena, free, waiting int) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d pods may run, %d wait", free, waiting), func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		gated := 0
		for i := range pods {
			if slices.Contains(pods[i].Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate}) {
				gated++
			}
		}
		if len(pods)-gated != free || gated != waiting {
			return fmt.Errorf("%d pods may run, %d wait", len(pods)-gated, gated)
		}
		return nil
	})
}

// waitCards waits until the queue reports so many cards in use.
func (a *arena) waitCards(t *testing.T, want int) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d cards are taken", want), func(ctx context.Context) error {
		queue := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, clientKey(a.queue), queue); err != nil {
			return err
		}
		for _, flavor := range queue.Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				if r.Name == sandbox.GPU && r.Total.Value() == int64(want) {
					return nil
				}
			}
		}
		return fmt.Errorf("taken is %v", queue.Status.FlavorsReservation)
	})
}

// ballast uses cards and does nothing else.
func (a *arena) ballast(t *testing.T, cards int) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, GenerateName: "ballast-"},
		Spec: kueue.WorkloadSpec{QueueName: "main", Priority: ptr.To(int32(0)), PodSets: []kueue.PodSet{{
			Name: "main", Count: int32(cards),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "example.com/train:1",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{sandbox.GPU: resource.MustParse("1")}},
			}}}},
		}}},
	}
	cluster.Make(t, wl)
	return wl
}

// successor is the workload slice that is to replace another workload.
func (a *arena) successor(t *testing.T, old *kueue.Workload) *kueue.Workload {
	t.Helper()
	var found *kueue.Workload
	sandbox.Eventually(t, "a workload that takes the place of "+old.Name, func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := cluster.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Annotations[workload.ReplacesAnnotation] == old.Namespace+"/"+old.Name {
				found = &list.Items[i]
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
	return found
}
