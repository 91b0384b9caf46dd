package gpu

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/placement"
)

// gang a pod says it belongs to; the zero value is none. Anyone can write that on a pod: how many pods
// there are, and what of cards, is read from the gang's Workload, once that is admitted.
type gang struct {
	key      string
	podSet   string // empty where the pod does not say it
	workload client.ObjectKey
}

func gangOf(pod *corev1.Pod) gang {
	name, podSet := pod.Annotations[kueue.WorkloadAnnotation], pod.Labels[kueuelabels.PodSet]
	if name == "" {
		// Kueue itself names the Workload of a pod group after the group, and says no more on its pods.
		name, podSet = pod.Labels[kueuelabels.PodGroupName], ""
	}
	if name == "" {
		return gang{}
	}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: name}
	return gang{key: workloadGang(key), podSet: podSet, workload: key}
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
	pods, member := 0, false
	for i := range wl.Status.Admission.PodSetAssignments {
		if wl.Status.Admission.PodSetAssignments[i].TopologyAssignment != nil {
			return nil, nil // admission has chosen a node for every pod, and the pods name it
		}
		set, err := s.podSet(ctx, wl, &wl.Status.Admission.PodSetAssignments[i])
		if err != nil || set == nil {
			return nil, err
		}
		same := asksTheSame(&p, &set.Pod)
		if g.podSet == "" && !same {
			continue // the pod does not say which pod set it is of: those that it can be of count
		}
		if same && (g.podSet == "" || g.podSet == set.Name) {
			set.Pod, member = p, true // as it is, with all that was added at its start
		}
		pods += set.Count
		all.PodSets = append(all.PodSets, *set)
	}
	if g.podSet == "" {
		all.PodSets = []placement.PodSet{{Count: pods, Pod: p}}
	}
	if pods < 2 || !member {
		return nil, nil
	}
	return all, nil
}

// asksTheSame says whether a pod asks for the cards that its pod set was admitted with. What its claims
// ask for is not in a pod set.
func asksTheSame(pod, admitted *placement.Pod) bool {
	i := 0
	for _, c := range pod.Containers {
		if strings.HasPrefix(c.Name, egpu.ClaimPrefix) {
			continue
		}
		if i == len(admitted.Containers) || !reflect.DeepEqual(c, admitted.Containers[i]) {
			return false
		}
		i++
	}
	return i == len(admitted.Containers)
}

// podSet of an admitted workload, with the node labels of the flavors it was given for what is on its nodes.
func (s *Shell) podSet(ctx context.Context, wl *kueue.Workload, a *kueue.PodSetAssignment) (*placement.PodSet, error) {
	for i := range wl.Spec.PodSets {
		spec := &wl.Spec.PodSets[i]
		if spec.Name != a.Name {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: spec.Template.ObjectMeta, Spec: *spec.Template.Spec.DeepCopy()}
		pod.Namespace = wl.Namespace
		elsewhere := request.Elsewhere(wl.Status.Conditions)[string(a.Name)]
		for resource, name := range a.Flavors {
			if slices.Contains(elsewhere, string(resource)) {
				continue
			}
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
// to wait for its full size again. A replica that does not lead reserves nothing: it does not know yet what the
// leader before it has bound.
func (s *Shell) reserveGang(w *podRequest) error {
	all := w.all
	if all == nil || s.gangs[all.Key] > 0 || !s.reserved[all.Key].IsZero() {
		return nil
	}
	txn := s.engine.Begin()
	defer txn.Rollback()
	answer := w.placeGang(txn)
	if !answer.Fits {
		return &Refused{Reason: "the job's pods start together or not at all: " + answer.Refusal.Error()}
	}
	if !s.Leads() {
		return nil
	}
	until := s.options.Now().Add(s.options.Hold)
	txn.Commit(until)
	s.reserved[all.Key] = until
	return nil
}
