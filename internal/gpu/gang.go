package gpu

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/placement"
)

// gang a pod belongs to; the zero value is none.
type gang struct {
	key, podSet string
	workload    client.ObjectKey // where the sizes are, or
	size        int              // the size, said by the pod itself
}

func gangOf(pod *corev1.Pod) gang {
	if name := pod.Annotations[kueue.WorkloadAnnotation]; name != "" {
		key := client.ObjectKey{Namespace: pod.Namespace, Name: name}
		return gang{key: workloadGang(key), podSet: pod.Labels[kueuelabels.PodSet], workload: key}
	}
	if name := pod.Labels[kueuelabels.PodGroupName]; name != "" {
		if size, err := strconv.Atoi(pod.Annotations[kueuelabels.PodGroupTotal]); err == nil {
			return gang{key: "group:" + pod.Namespace + "/" + name, size: size}
		}
	}
	return gang{}
}

func workloadGang(key client.ObjectKey) string { return "workload:" + key.String() }

// sawWorkload ends the reservation of a job that no longer may run.
func (s *Shell) sawWorkload(wl *kueue.Workload, gone bool) {
	key := workloadGang(client.ObjectKeyFromObject(wl))
	finished := meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
	if _, reserved := s.reserved[key]; reserved && (gone || finished || wl.Status.Admission == nil) {
		delete(s.reserved, key)
		s.engine.Release(key)
		s.requeue(true)
	}
}

func (g gang) tie(p *placement.Pod) { p.Gang, p.PodSet = g.key, g.podSet }

// wholeGang describes all pods of the gang, or nil if there is nothing to place together.
func (s *Shell) wholeGang(ctx context.Context, g gang, p placement.Pod) (*placement.Gang, error) {
	if g.size > 1 {
		return &placement.Gang{Key: g.key, PodSets: []placement.PodSet{{Name: g.podSet, Count: g.size, Pod: p}}}, nil
	}
	if g.workload.Name == "" || !s.options.Queue {
		return nil, nil
	}
	wl := &kueue.Workload{}
	if err := s.options.Client.Get(ctx, g.workload, wl); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if wl.Status.Admission == nil {
		return nil, nil
	}
	all := &placement.Gang{Key: g.key}
	pods := 0
	for i := range wl.Status.Admission.PodSetAssignments {
		if wl.Status.Admission.PodSetAssignments[i].TopologyAssignment != nil {
			return nil, nil // admission has chosen a node for every pod, and the pods name it
		}
		set, err := s.podSet(ctx, wl, &wl.Status.Admission.PodSetAssignments[i])
		if err != nil || set == nil {
			return nil, err
		}
		if set.Name == g.podSet {
			set.Pod = p // as it is, with all that was added at its start
		}
		pods += set.Count
		all.PodSets = append(all.PodSets, *set)
	}
	if pods < 2 {
		return nil, nil
	}
	return all, nil
}

// podSet of an admitted workload, with the node labels of the flavors it was given.
func (s *Shell) podSet(ctx context.Context, wl *kueue.Workload, a *kueue.PodSetAssignment) (*placement.PodSet, error) {
	for i := range wl.Spec.PodSets {
		spec := &wl.Spec.PodSets[i]
		if spec.Name != a.Name {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: spec.Template.ObjectMeta, Spec: *spec.Template.Spec.DeepCopy()}
		pod.Namespace = wl.Namespace
		for _, name := range a.Flavors {
			flavor := &kueue.ResourceFlavor{}
			err := s.options.Client.Get(ctx, client.ObjectKey{Name: string(name)}, flavor)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for key, value := range flavor.Spec.NodeLabels {
				if pod.Spec.NodeSelector == nil {
					pod.Spec.NodeSelector = map[string]string{}
				}
				pod.Spec.NodeSelector[key] = value
			}
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, flavor.Spec.Tolerations...)
		}
		p, err := request.Pod(pod, s.options.Modes)
		if err != nil {
			return nil, err
		}
		count := spec.Count
		if a.Count != nil {
			count = *a.Count
		}
		return &placement.PodSet{Name: string(a.Name), Count: int(count), Pod: p}, nil
	}
	return nil, nil
}

// reserveGang reserves for all pods of a gang that has not started. A gang that has started is not made
// to wait for its full size again.
func (s *Shell) reserveGang(all *placement.Gang) error {
	if all == nil || s.gangs[all.Key] > 0 || !s.reserved[all.Key].IsZero() {
		return nil
	}
	txn := s.engine.Begin()
	defer txn.Rollback()
	answer := txn.Place(all)
	if !answer.Fits {
		return &Refused{Reason: "the job's pods start together or not at all: " + answer.Refusal.Error()}
	}
	until := s.options.Now().Add(s.options.Hold)
	txn.Commit(until)
	s.reserved[all.Key] = until
	return nil
}
