package gpu

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Which cards a pod has that this process did not bind. The record is the status of the node's GPU
// objects, which no tenant may write. Where it does not name the pod yet, because its scheduler ended
// between the bind and the record, the pod's annotation says it, if that agrees with what the pod asks
// for and the cards have it free. Any other pod was bound by someone else: it is counted on the cards
// that we would have given it, and its agent gives it none.

// stray is a pod on a node whose cards no record names.
type stray struct {
	pod    placement.Pod
	said   []placement.Grant // by its annotation; nil where that is not believed
	placed bool
}

// believeFor is how long after it took over a leader takes a pod's annotation for the word of the
// leader before it: a bind of that one may still be on its way.
const believeFor = 3 * bindTimeout

// annotated are the cards that a pod's annotation names, where it may be believed and agrees with the request.
func (s *Shell) annotated(pod *corev1.Pod, p placement.Pod) []placement.Grant {
	if s.Leads() && s.options.Now().After(s.believeUntil) {
		return nil // we bind, and this one we did not bind
	}
	grants, said := request.Grants(pod, p.Containers)
	if !said {
		return nil
	}
	for i, g := range grants {
		distinct := slices.Compact(indexes(g))
		if len(distinct) != len(g.Cards) || len(distinct) != p.Containers[i].Cards.Count {
			s.disbelieve(p.Key, pod.UID, "its annotation names another number of cards than it asks for")
			return nil
		}
	}
	return grants
}

func (s *Shell) disbelieve(key string, uid types.UID, why string) {
	namespace, name, _ := strings.Cut(key, "/")
	s.event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}, "CardsNotGiven",
		"It has no cards: %s. Leave the annotations of the GPU scheduler alone, and have it bind the pod", why)
	s.options.Log.Info("a pod's cards are not what its annotation says; it is counted by guess, and its agent gives it none", "pod", key, "why", why)
}

// recorded are the cards that the node's GPU objects name for a pod.
func (s *Shell) recorded(key string, uid types.UID, node string, containers []placement.Container) (grants []placement.Grant, guessed, known bool) {
	entry := s.nodes.Get(node)
	if entry == nil {
		return nil, false, false
	}
	cards := map[string][]placement.CardGrant{}
	for _, g := range entry.GPUs {
		r := g.Status.Allocated[key]
		if r == nil || r.UID != uid {
			continue
		}
		known, guessed = true, guessed || r.Guessed
		for _, c := range r.Containers {
			cards[c.Container] = append(cards[c.Container], placement.CardGrant{Index: g.Spec.Index})
		}
	}
	for _, c := range containers {
		if len(cards[c.Name]) != c.Cards.Count {
			return nil, guessed, known && guessed // a part of it is written yet
		}
		slices.SortFunc(cards[c.Name], func(a, b placement.CardGrant) int { return cmp.Compare(a.Index, b.Index) })
		grants = append(grants, placement.Grant{Container: c.Name, Cards: cards[c.Name]})
	}
	return grants, guessed, known
}

func (s *Shell) stray(p placement.Pod, node string, said []placement.Grant) {
	if s.strays[node] == nil {
		s.strays[node] = map[string]*stray{}
	}
	s.strays[node][p.Key] = &stray{pod: p, said: said}
	s.placeStrays(node)
}

func (s *Shell) unstray(key, node string) {
	if delete(s.strays[node], key); len(s.strays[node]) == 0 {
		delete(s.strays, node)
	}
}

// placeStrays of a node: first those that a record names, then those whose annotation is believed, and
// the others as far as the cards have free capacity.
func (s *Shell) placeStrays(node string) {
	if entry := s.nodes.Get(node); entry == nil || entry.Applied == nil {
		return // what is not described has no cards
	}
	keys := slices.Sorted(maps.Keys(s.strays[node]))
	moved := false
	for _, key := range keys {
		moved = s.placeRecorded(key, node) || moved
	}
	for _, key := range keys {
		x := s.strays[node][key]
		moved = moved || x != nil && x.said != nil && !x.placed
	}
	if moved {
		s.lift(keys, node)
		for _, key := range keys {
			s.placeAnnotated(key, node)
		}
	}
	for _, key := range keys {
		s.placeGuess(key, node)
	}
}

// placeRecorded says whether the pod has other cards now.
func (s *Shell) placeRecorded(key, node string) bool {
	x, t := s.strays[node][key], s.pods[key]
	grants, guessed, known := s.recorded(key, t.uid, node, x.pod.Containers)
	switch {
	case !known:
		return false
	case guessed:
		x.said = nil
		if x.placed && !t.guessed {
			s.unplace(x, t)
		}
		return false
	}
	s.unstray(key, node)
	moved := t.guessed || !sameCards(t.granted, grants)
	if moved {
		s.bound(x.pod, tracked{uid: t.uid, node: node, granted: grants}, grants)
	}
	return moved
}

func (s *Shell) unplace(x *stray, t *tracked) {
	s.bound(x.pod, tracked{uid: t.uid, node: t.node, guessed: true}, nil)
	x.placed = false
}

// lift guesses off their cards, and annotated pods off cards that are given out too far: neither takes the
// place of a pod that was given the card.
func (s *Shell) lift(keys []string, node string) {
	for _, key := range keys {
		x, t := s.strays[node][key], s.pods[key]
		if x != nil && x.placed && (t.guessed || !s.haveFree(node, t.granted)) {
			s.unplace(x, t)
		}
	}
}

func (s *Shell) placeAnnotated(key, node string) {
	x := s.strays[node][key]
	if x == nil || x.said == nil || x.placed {
		return
	}
	uid := s.pods[key].uid
	s.bound(x.pod, tracked{uid: uid, node: node, granted: x.said}, x.said)
	if x.placed = s.haveFree(node, x.said); x.placed {
		return
	}
	s.disbelieve(key, uid, "the cards that its annotation names do not have that free")
	s.bound(x.pod, tracked{uid: uid, node: node, guessed: true}, nil)
	x.said = nil
}

// haveFree says whether cards are there, and given out no further than they go.
func (s *Shell) haveFree(node string, grants []placement.Grant) bool {
	status, _ := s.engine.NodeStatus(node)
	for _, g := range grants {
		for _, c := range g.Cards {
			at := slices.IndexFunc(status.Cards, func(has placement.CardStatus) bool { return has.Index == c.Index })
			if at < 0 || status.Cards[at].FreeCore < 0 || status.Cards[at].FreeMemory < 0 {
				return false
			}
		}
	}
	return true
}

func (s *Shell) placeGuess(key, node string) {
	x, t := s.strays[node][key], s.pods[key]
	if x == nil || x.placed {
		return
	}
	cards := x.pod
	cards.Resources = nil // it is there: only cards are in question
	assignment, err := s.engine.Assign(&cards, node, time.Time{})
	if err != nil {
		s.options.Log.V(1).Info("a pod does not say which cards it has, and no free card fits it", "pod", key, "node", node, "error", err.Error())
		return
	}
	s.bound(x.pod, tracked{uid: t.uid, node: node, granted: assignment.Grants, guessed: true}, assignment.Grants)
	x.placed = true
}
