package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func staleScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func suspendedJob() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "ns", "name": "train", "uid": "train"},
		"spec": map[string]any{"suspend": true, "template": map[string]any{"spec": map[string]any{"containers": []any{}}}},
	}}
}

func ownedWorkload() *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "wl"}}
	kinds.OwnWorkload(wl, suspendedJob(), kinds.Table()[0].GVK)
	return wl
}

// indexed adds the indexes that the controllers list workloads by.
func indexed(b *fake.ClientBuilder) *fake.ClientBuilder {
	for _, field := range []string{kinds.OwnerNameIndex, kinds.OwnerUIDIndex} {
		b = b.WithIndex(&kueue.Workload{}, field, func(obj client.Object) []string {
			owner := metav1.GetControllerOf(obj)
			if owner == nil {
				return nil
			}
			if field == kinds.OwnerUIDIndex {
				return []string{string(owner.UID)}
			}
			return []string{kinds.OwnerKey(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(), owner.Name)}
		})
	}
	return b.WithIndex(&kueue.Workload{}, kinds.AwaitedIndex, kinds.AwaitedJobs)
}

// A job that looks stopped in the cache, and was started since, does not release its quota.
func TestStoppedJobIsConfirmed(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(staleScheme(t)).WithObjects(suspendedJob()).Build()
	cached, started := suspendedJob(), suspendedJob()
	for _, job := range []*unstructured.Unstructured{cached, started} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			t.Fatal(err)
		}
	}
	if err := unstructured.SetNestedField(started.Object, false, "spec", "suspend"); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), started); err != nil {
		t.Fatal(err)
	}
	err := (&controller{client: c}).restore(t.Context(), kinds.Table()[0].Object(cached), ownedWorkload())
	if !apierrors.IsConflict(err) {
		t.Errorf("the job runs, and stopping it was confirmed: %v", err)
	}
}

// A start that is still on its way when the job is confirmed as stopped does not arrive any more.
func TestStartOnItsWayIsTooLate(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(staleScheme(t)).WithObjects(suspendedJob()).Build()
	job := suspendedJob()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	onItsWay := kinds.Table()[0].Object(job.DeepCopy())
	if err := (&controller{client: c}).restore(t.Context(), kinds.Table()[0].Object(job), ownedWorkload()); err != nil {
		t.Fatal(err)
	}
	if err := onItsWay.Start(t.Context(), c, ownedWorkload(), nil); !apierrors.IsConflict(err) {
		t.Errorf("the job was started after its quota was released: %v", err)
	}
}

// A job that the cache has not seen yet does not lose its workload.
func TestJobMissingFromTheCacheIsLookedUp(t *testing.T) {
	scheme := staleScheme(t)
	for exists, direct := range map[bool]client.Client{
		true:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(suspendedJob(), ownedWorkload()).Build(),
		false: fake.NewClientBuilder().WithScheme(scheme).WithObjects(ownedWorkload()).Build(),
	} {
		cached := indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(ownedWorkload()).WithStatusSubresource(&kueue.Workload{})).Build()
		r := &objectReconciler{controller: &controller{client: cached, filter: &managed.Filter{Direct: direct}, now: time.Now}, kind: kinds.Table()[0]}
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "train"}})
		if err != nil {
			t.Fatal(err)
		}
		wl := &kueue.Workload{}
		if err := cached.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "train"}, wl); err != nil {
			t.Fatal(err)
		}
		if exists == workload.IsFinished(wl) {
			t.Errorf("the job exists: %t; its workload: %v", exists, wl.Status.Conditions)
		}
	}
}

// A job that was deleted and created again under its name leaves no workload behind.
func TestWorkloadOfAnEarlierJobOfThatName(t *testing.T) {
	scheme := staleScheme(t)
	again := suspendedJob()
	again.SetUID("again")
	again.SetLabels(map[string]string{kinds.QueueNameLabel: "main"})
	cached := indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(ownedWorkload(), again).WithStatusSubresource(&kueue.Workload{})).Build()
	c := &controller{client: cached, filter: &managed.Filter{Direct: cached, Namespaces: labels.Everything(), Kinds: &kinds.InUse{}}, recorder: events.NewFakeRecorder(10), now: time.Now, builder: kinds.WorkloadBuilder{Client: cached}}
	r := &objectReconciler{controller: c, kind: kinds.Table()[0]}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "train"}})
	if err != nil {
		t.Fatal(err)
	}
	wl := &kueue.Workload{}
	if err := cached.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "train"}, wl); err != nil || !workload.IsFinished(wl) {
		t.Errorf("the workload of the job before it is not finished: %v, %v", err, wl.Status.Conditions)
	}
}

// A StatefulSet makes its pods again under their names, and the workload of one that is gone does not keep its quota.
func TestWorkloadOfAnEarlierPodOfThatName(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set-1", UID: "before", Labels: map[string]string{kinds.ManagedLabel: "true", kinds.QueueNameLabel: "main"}}}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-before", UID: "wl"}}
	kinds.OwnWorkload(wl, pod, podKind().GVK)
	pod.UID = "again"
	cached := indexed(fake.NewClientBuilder().WithScheme(staleScheme(t)).WithObjects(pod, wl).WithStatusSubresource(&kueue.Workload{})).Build()
	c := &controller{client: cached, filter: &managed.Filter{Direct: cached, Namespaces: labels.Everything(), Kinds: &kinds.InUse{}}, recorder: events.NewFakeRecorder(10), now: time.Now, builder: kinds.WorkloadBuilder{Client: cached}}
	r := &podReconciler{controller: c, reader: cached, kind: podKind(), kinds: c.filter.Kinds}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
		t.Fatal(err)
	}
	if err := cached.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil || !workload.IsFinished(wl) {
		t.Errorf("the workload of the pod before it is not finished: %v, %v", err, wl.Status.Conditions)
	}
}

// Nothing is reconciled on workloads that are older than those of the API server when it began to lead.
func TestReconcilesOnceTheCacheHasCaughtUp(t *testing.T) {
	scheme := staleScheme(t)
	direct := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ownedWorkload()).Build()
	cached := indexed(fake.NewClientBuilder().WithScheme(scheme)).Build()
	c := &controller{client: cached, filter: &managed.Filter{Direct: direct}}
	if ready, err := c.caughtUp(t.Context()); ready || err != nil {
		t.Fatalf("the cache lacks a workload, and it is ready: %v", err)
	}
	if err := cached.Create(t.Context(), ownedWorkload()); err != nil {
		t.Fatal(err)
	}
	wl := &kueue.Workload{}
	for range 1000 { // until the cache's version is as new
		if ready, err := c.caughtUp(t.Context()); err != nil {
			t.Fatal(err)
		} else if ready {
			return
		}
		if err := cached.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "train"}, wl); err != nil {
			t.Fatal(err)
		}
		wl.Labels = map[string]string{"version": wl.ResourceVersion}
		if err := cached.Update(t.Context(), wl); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("it never caught up")
}

// A job that the cache shows with what its last admission added, and that was restored since, gets its
// workload when the cache shows that.
func TestWorkloadIsMadeFromTheRestoredJob(t *testing.T) {
	scheme := staleScheme(t)
	stale := suspendedJob()
	if err := unstructured.SetNestedField(stale.Object, "last", "spec", "template", "metadata", "annotations", kueue.WorkloadAnnotation); err != nil {
		t.Fatal(err)
	}
	restored := suspendedJob()
	restored.SetResourceVersion("77")
	empty := fake.NewClientBuilder().WithScheme(scheme).Build()
	c := &controller{
		client: empty, recorder: events.NewFakeRecorder(10), now: time.Now, builder: kinds.WorkloadBuilder{Client: empty},
		filter: &managed.Filter{Direct: fake.NewClientBuilder().WithScheme(scheme).WithObjects(restored).Build()},
	}
	stale.SetResourceVersion("76")
	var later *requeueError
	if err := c.create(t.Context(), kinds.Table()[0].Object(stale)); !errors.As(err, &later) {
		t.Errorf("a workload was made from a job of the past: %v", err)
	}
	stale.SetResourceVersion("77")
	if err := c.create(t.Context(), kinds.Table()[0].Object(stale)); err != nil {
		t.Errorf("no workload was made of a job as it is: %v", err)
	}
}

// A workload that was deleted, and that the cache has still, is waited for as well.
func TestReconcilesOnceTheCacheHasSeenDeletions(t *testing.T) {
	scheme := staleScheme(t)
	direct := fake.NewClientBuilder().WithScheme(scheme).Build()
	cached := indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(ownedWorkload())).Build()
	c := &controller{client: cached, filter: &managed.Filter{Direct: direct}}
	if ready, err := c.caughtUp(t.Context()); ready || err != nil {
		t.Fatalf("the cache has a workload of the past, and it is ready: %v", err)
	}
	if err := cached.Delete(t.Context(), ownedWorkload()); err != nil {
		t.Fatal(err)
	}
	if ready, err := c.caughtUp(t.Context()); !ready || err != nil {
		t.Errorf("the cache has caught up, and it is not ready: %v", err)
	}
}

// A workload that was deleted and made again under its name, and one that came after the list, are not waited for.
func TestReconcilesAlthoughNamesComeAgain(t *testing.T) {
	scheme := staleScheme(t)
	first, second := ownedWorkload(), ownedWorkload()
	first.UID, second.UID = "first", "second"
	direct := fake.NewClientBuilder().WithScheme(scheme).Build()
	cached := indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(first.DeepCopy())).Build()
	c := &controller{client: cached, filter: &managed.Filter{Direct: direct}}
	if ready, err := c.caughtUp(t.Context()); ready || err != nil {
		t.Fatalf("the cache has a workload of the past, and it is ready: %v", err)
	}
	if err := errors.Join(cached.Delete(t.Context(), first.DeepCopy()), cached.Create(t.Context(), second.DeepCopy()), direct.Create(t.Context(), second.DeepCopy())); err != nil {
		t.Fatal(err)
	}
	if ready, err := c.caughtUp(t.Context()); !ready || err != nil {
		t.Errorf("another workload has its name, and it is not ready: %v", err)
	}

	late := &lateReader{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(first.DeepCopy()).Build()}
	c = &controller{client: indexed(fake.NewClientBuilder().WithScheme(scheme).WithObjects(first.DeepCopy())).Build(), filter: &managed.Filter{Direct: late}}
	if ready, err := c.caughtUp(t.Context()); !ready || err != nil {
		t.Errorf("a workload came after the list, and it is not ready: %v", err)
	}
}

// lateReader lists nothing of what is there by now.
type lateReader struct{ client.Client }

func (*lateReader) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// A late watch may deliver a workload that was created and deleted before this process began to lead. Its job is not
// started.
func TestWorkloadFromBeforeThatIsGoneStartsNothing(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	w.admit(w.workloadOf(w.settle("job")), oneOf("cq", 5))
	is := w.filter.Direct
	w.filter.Direct = fake.NewClientBuilder().WithScheme(staleScheme(t)).Build()
	w.catchUp.listedAt = "1000000"
	if suspended, _, _ := unstructured.NestedBool(w.settle("job").Object, "spec", "suspend"); !suspended {
		t.Error("the job was started on quota that is released")
	}
	w.filter.Direct = is
	if suspended, _, _ := unstructured.NestedBool(w.settle("job").Object, "spec", "suspend"); suspended {
		t.Error("its workload exists, and it was not started")
	}
}
