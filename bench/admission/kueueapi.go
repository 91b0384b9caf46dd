package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueuev1 "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// apiServer is what Kueue's scheduler talks to: workloads by number. Reads share
// memory, where the real client copies; writes are kept and listed. It is as cheap as it can be.
type apiServer struct {
	client.Client
	mu        sync.Mutex
	workloads []*kueuev1.Workload
	written   []int32
}

func newAPIServer(w *work) *apiServer {
	a := &apiServer{workloads: make([]*kueuev1.Workload, len(w.jobs))}
	for i := range w.jobs {
		a.workloads[i] = kueueWorkload(w, i)
	}
	return a
}

func (a *apiServer) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch o := obj.(type) {
	case *kueuev1.Workload:
		*o = *a.workloads[jobIndex(key.Name)]
	case *corev1.Namespace:
		o.Name = key.Name
	default:
		return fmt.Errorf("get of %T is not expected", obj)
	}
	return nil
}

// List finds no limit ranges, and nothing that was there before the start.
func (a *apiServer) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (a *apiServer) Status() client.SubResourceWriter { return statusWriter{a: a} }

type statusWriter struct {
	client.SubResourceWriter
	a *apiServer
}

func (s statusWriter) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	patch, ok := obj.(*kueuev1.Workload)
	if !ok {
		return fmt.Errorf("patch of %T is not expected", obj)
	}
	a := s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	job := jobIndex(patch.Name)
	updated := *a.workloads[job]
	updated.Status = patch.Status
	a.workloads[job] = &updated
	a.written = append(a.written, job)
	return nil
}

// noEvents drops events.
type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// virtualClock tells the run's time.
type virtualClock struct {
	clock.RealClock
	now time.Time
}

func (c *virtualClock) Now() time.Time                  { return c.now }
func (c *virtualClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

var bothStrategies = &config.FairSharing{PreemptionStrategies: []config.PreemptionStrategy{
	config.LessThanOrEqualToFinalShare, config.LessThanInitialShare,
}}

func kueueFlavor() *kueuev1.ResourceFlavor {
	return &kueuev1.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}}
}

func kueueQuota(nominal, borrowingLimit int64) []kueuev1.ResourceGroup {
	if nominal == 0 {
		return nil
	}
	q := kueuev1.ResourceQuota{Name: corev1.ResourceCPU, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}
	if borrowingLimit > 0 {
		q.BorrowingLimit = resource.NewQuantity(borrowingLimit, resource.DecimalSI)
	}
	return []kueuev1.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors:          []kueuev1.FlavorQuotas{{Name: flavor, Resources: []kueuev1.ResourceQuota{q}}},
	}}
}

func kueueWeight(w float64) *kueuev1.FairSharing {
	q := resource.MustParse(strconv.FormatFloat(w, 'f', -1, 64))
	return &kueuev1.FairSharing{Weight: &q}
}

func kueueCohort(c cohort) *kueuev1.Cohort {
	return &kueuev1.Cohort{
		ObjectMeta: metav1.ObjectMeta{Name: c.name},
		Spec: kueuev1.CohortSpec{
			ParentName: kueuev1.CohortReference(c.parent), ResourceGroups: kueueQuota(c.nominal, 0), FairSharing: kueueWeight(c.weight),
		},
	}
}

func kueueQueue(q queue) *kueuev1.ClusterQueue {
	none := kueuev1.None
	return &kueuev1.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: q.name},
		Spec: kueuev1.ClusterQueueSpec{
			CohortName: kueuev1.CohortReference(q.cohort), ResourceGroups: kueueQuota(q.nominal, q.borrowingLimit),
			QueueingStrategy: kueuev1.BestEffortFIFO, NamespaceSelector: &metav1.LabelSelector{}, StopPolicy: &none,
			FlavorFungibility: &kueuev1.FlavorFungibility{WhenCanBorrow: kueuev1.MayStopSearch, WhenCanPreempt: kueuev1.TryNextFlavor},
			Preemption: &kueuev1.ClusterQueuePreemption{
				WithinClusterQueue: kueuev1.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueuev1.PreemptionPolicyAny,
			},
			FairSharing: kueueWeight(q.weight),
		},
		Status: kueuev1.ClusterQueueStatus{Conditions: []metav1.Condition{{Type: kueuev1.ClusterQueueActive, Status: metav1.ConditionTrue}}},
	}
}

func kueueLocalQueue(q queue) *kueuev1.LocalQueue {
	return &kueuev1.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: q.name},
		Spec:       kueuev1.LocalQueueSpec{ClusterQueue: kueuev1.ClusterQueueReference(q.name)},
	}
}

func kueueWorkload(w *work, i int) *kueuev1.Workload {
	j := &w.jobs[i]
	name, active := jobName(i), true
	priority := j.priority
	return &kueuev1.Workload{
		TypeMeta: metav1.TypeMeta{APIVersion: kueuev1.SchemeGroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1, ResourceVersion: "1",
			CreationTimestamp: metav1.NewTime(w.created(i)),
		},
		Spec: kueuev1.WorkloadSpec{
			QueueName: kueuev1.LocalQueueName(w.queues[j.queue].name), Priority: &priority, Active: &active,
			PodSets: []kueuev1.PodSet{{
				Name: "main", Count: 1,
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name:      "c",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(j.cpus, resource.DecimalSI)}},
					}},
				}},
			}},
		},
	}
}
