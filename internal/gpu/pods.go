package gpu

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// tracked is a pod that has a node.
type tracked struct {
	uid    types.UID
	node   string
	gang   string
	grants []placement.Grant
}

// binding is a pod whose Binding is on its way.
type binding struct {
	uid  types.UID
	gone bool // the pod went meanwhile
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// sawPod takes in what is known of a pod. What is older than our own bind changes nothing.
func (s *Shell) sawPod(pod *corev1.Pod, gone bool) {
	key := pod.Namespace + "/" + pod.Name
	if gone || finished(pod) || pod.Spec.NodeName != "" {
		delete(s.refused, client.ObjectKeyFromObject(pod))
	}
	if gone || finished(pod) {
		if b := s.binding[key]; b != nil && b.uid == pod.UID {
			b.gone = true
		}
		s.lost(key, pod.UID)
		return
	}
	t := s.pods[key]
	if t != nil && t.uid != pod.UID {
		s.lost(key, t.uid) // deleted and made again while we looked elsewhere
		t = nil
	}
	if pod.Spec.NodeName == "" {
		return
	}
	p, err := request.Pod(pod, s.options.Modes)
	if err != nil {
		// It runs in spite of that; which cards it has is not known.
		s.options.Log.V(1).Info("a running pod has an invalid card request", "pod", key, "error", err.Error())
		p.Containers = nil
	}
	gangOf(pod).tie(&p)
	grants, said := request.Grants(pod, p.Containers)
	if t != nil && t.node == pod.Spec.NodeName && (!said || sameGrants(t.grants, grants)) {
		return
	}
	if len(p.Containers) > 0 && !said {
		s.stray(p, pod.UID, pod.Spec.NodeName)
		return
	}
	less := t != nil && len(grants) < len(t.grants)
	s.bound(p, pod.UID, pod.Spec.NodeName, grants)
	if less {
		s.requeue(false) // it was swapped out: there is capacity for others
	}
}

// bound enters a pod into the engine.
func (s *Shell) bound(p placement.Pod, uid types.UID, node string, grants []placement.Grant) {
	if !s.apply(placement.PodBound{Pod: p, Node: node, Grants: grants}) {
		return
	}
	if s.pods[p.Key] == nil && p.Gang != "" {
		s.gangs[p.Gang]++
	}
	if old := s.pods[p.Key]; old != nil {
		s.changed[old.node] = true
	}
	s.changed[node] = true
	s.pods[p.Key] = &tracked{uid: uid, node: node, gang: p.Gang, grants: grants}
}

func (s *Shell) lost(key string, uid types.UID) {
	t := s.pods[key]
	if t == nil || t.uid != uid {
		return
	}
	delete(s.pods, key)
	s.changed[t.node] = true
	s.unstray(key, t.node)
	if t.gang != "" {
		if s.gangs[t.gang]--; s.gangs[t.gang] == 0 {
			delete(s.gangs, t.gang)
		}
	}
	s.apply(placement.PodGone{Key: key})
	s.requeue(false)
}

// stray is a pod on a node that does not say which cards it has: another scheduler put it there. It is
// counted on cards that we would have given it, or on none while there are none for it.
func (s *Shell) stray(p placement.Pod, uid types.UID, node string) {
	s.bound(p, uid, node, nil)
	if s.strays[node] == nil {
		s.strays[node] = map[string]placement.Pod{}
	}
	s.strays[node][p.Key] = p
	s.placeStrays(node)
}

func (s *Shell) unstray(key, node string) {
	if delete(s.strays[node], key); len(s.strays[node]) == 0 {
		delete(s.strays, node)
	}
}

// placeStrays of a node, as far as its cards have free capacity.
func (s *Shell) placeStrays(node string) {
	for _, key := range slices.Sorted(maps.Keys(s.strays[node])) {
		p, t := s.strays[node][key], s.pods[key]
		cards := p
		cards.Resources = nil // it is there: only cards are in question
		assignment, err := s.engine.Assign(&cards, node, time.Time{})
		if err != nil {
			s.options.Log.V(1).Info("a pod does not say which cards it has, and no free card fits it", "pod", key, "node", node, "error", err.Error())
			continue
		}
		s.bound(p, t.uid, node, assignment.Grants)
		s.unstray(key, node)
	}
}

func sameGrants(a, b []placement.Grant) bool {
	return slices.EqualFunc(a, b, func(x, y placement.Grant) bool {
		return x.Container == y.Container && slices.EqualFunc(x.Cards, y.Cards, func(c, d placement.CardGrant) bool { return c.Index == d.Index })
	})
}
