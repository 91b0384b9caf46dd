package gpu

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// tracked is a pod that has a node.
type tracked struct {
	uid     types.UID
	version uint64 // in which it was found on its node
	node    string
	gang    string
	// granted are the cards that the pod was given. They do not change while it lives, whatever its
	// annotations say; while it is swapped out it has none of them.
	granted []placement.Grant
	out     bool
	guessed bool // another scheduler bound it, and which cards it has is a guess
}

// binding is a pod whose Binding is on its way.
type binding struct {
	uid  types.UID
	gone bool        // the pod went meanwhile
	seen *corev1.Pod // bound, as a watch reported it before the answer came
}

// attempt is a bind whose answer was an error. The API server may have done it all the same.
type attempt struct {
	uid    types.UID
	node   string
	grants []placement.Grant
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
	b := s.binding[key]
	if b != nil && b.uid != pod.UID {
		b = nil
	}
	if gone || finished(pod) {
		if b != nil {
			b.gone = true
		}
		if s.endedMeanwhile != nil {
			s.endedMeanwhile[pod.UID] = true
		}
		s.lost(key, pod.UID)
		s.sawUses(pod, true)
		s.sawServer(pod, true)
		return
	}
	if v := version(pod.ResourceVersion); v > 0 && v <= s.listed {
		return // a late watch: it was listed as it is since, or it is gone
	}
	s.sawUses(pod, false)
	s.sawServer(pod, false)
	t := s.pods[key]
	if t != nil && t.uid != pod.UID {
		s.lost(key, t.uid) // deleted and made again while we looked elsewhere
		t = nil
	}
	switch {
	case pod.Spec.NodeName == "":
	case b != nil:
		b.seen = pod // by us: what the answer says is entered
	case t != nil && t.node == pod.Spec.NodeName:
		s.swapped(pod, t)
	default:
		s.found(pod)
	}
}

// read what a bound pod requests.
func (s *Shell) read(pod *corev1.Pod) placement.Pod {
	p, err := request.Pod(pod, s.options.Modes)
	if err != nil {
		// It runs in spite of that; which cards it has is not known.
		s.options.Log.V(1).Info("a running pod has an invalid card request", "pod", p.Key, "error", err.Error())
		p.Containers = nil
	}
	gangOf(pod).tie(&p)
	return p
}

// swapped looks at whether a pod has left its cards or was called back. Nothing else about a pod on its
// node changes what it has.
func (s *Shell) swapped(pod *corev1.Pod, t *tracked) {
	out := egpu.IsSwappedOut(pod)
	if t.out == out {
		return
	}
	p := s.read(pod)
	switch {
	case out:
		s.unstray(p.Key, t.node)
		s.bound(p, tracked{uid: t.uid, node: t.node, granted: t.granted, out: true, guessed: t.guessed}, nil)
		s.requeue(false) // there is capacity for others
	case t.granted != nil && !t.guessed:
		s.bound(p, tracked{uid: t.uid, node: t.node, granted: t.granted}, t.granted)
	default:
		s.found(pod)
	}
}

// found a pod on a node that we did not bind, or not in this process's life.
func (s *Shell) found(pod *corev1.Pod) {
	p, node := s.read(pod), pod.Spec.NodeName
	at := version(pod.ResourceVersion)
	if len(p.Containers) == 0 {
		s.bound(p, tracked{uid: pod.UID, version: at, node: node, out: egpu.IsSwappedOut(pod)}, nil)
		return
	}
	if a, tried := s.attempts[p.Key]; tried && a.uid == pod.UID && a.node == node {
		s.bound(p, tracked{uid: pod.UID, version: at, node: node, granted: a.grants}, a.grants)
		return
	}
	s.bound(p, tracked{uid: pod.UID, version: at, node: node, guessed: true}, nil)
	s.stray(p, node, s.annotated(pod, p))
}

// bound enters a pod into the engine, with the cards it has now.
func (s *Shell) bound(p placement.Pod, t tracked, grants []placement.Grant) {
	if !s.apply(placement.PodBound{Pod: p, Node: t.node, Grants: grants}) {
		return
	}
	if s.pods[p.Key] == nil && p.Gang != "" {
		s.gangs[p.Gang]++
	}
	if old := s.pods[p.Key]; old != nil {
		s.touch(old.node)
		if t.version == 0 && t.uid == old.uid {
			t.version = old.version
		}
	}
	s.touch(t.node)
	delete(s.attempts, p.Key)
	t.gang = p.Gang
	s.pods[p.Key] = &t
}

func (s *Shell) lost(key string, uid types.UID) {
	if s.attempts[key].uid == uid {
		delete(s.attempts, key)
	}
	t := s.pods[key]
	if t == nil || t.uid != uid {
		return
	}
	delete(s.pods, key)
	s.touch(t.node)
	s.unstray(key, t.node)
	if t.gang != "" {
		if s.gangs[t.gang]--; s.gangs[t.gang] == 0 {
			delete(s.gangs, t.gang)
		}
	}
	s.apply(placement.PodGone{Key: key})
	s.requeue(false)
}

// sameCards says whether two lists of grants name the same cards for the same containers.
func sameCards(a, b []placement.Grant) bool {
	return slices.EqualFunc(a, b, func(x, y placement.Grant) bool {
		return x.Container == y.Container && slices.Equal(indexes(x), indexes(y))
	})
}

func indexes(g placement.Grant) []int {
	out := make([]int, len(g.Cards))
	for i, c := range g.Cards {
		out[i] = c.Index
	}
	slices.Sort(out)
	return out
}
