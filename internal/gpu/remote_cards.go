package gpu

import (
	"maps"

	"github.com/elastic-ai/elastic/internal/gpu/claims"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Claims whose cards are used over the network: the pod's node and the card's are chosen apart, in one turn of the loop.

// remoteCards of a claim, to the engine: a pod that is nothing but its cards. Those of a gang are reserved with its pods.
func (w *podRequest) remoteCards(l *unboundClaim) placement.Pod {
	p := devicePod(deviceKey(claims.DeviceName(l.claim)), l.cards, claims.Policy(l.class))
	p.Selector = connected
	if w.all != nil {
		p.Gang, p.PodSet = w.all.Key, cardSet(l)
	}
	return p
}

// connect has a pod go to nodes from which cards of others are reached.
func (w *podRequest) connect() {
	selector := maps.Clone(w.ask.Selector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, connected)
	w.ask.Selector = selector
}

// cardSet of a claim; no pod set's name has a slash.
func cardSet(l *unboundClaim) string { return "claims/" + l.claim.Name }

// eachDistance tells how far each node is from the nearest free card of each claim that is served from afar, and how far it may be; below 0: too far.
func (s *Shell) eachDistance(w *podRequest, names []string, tell func(node, distance, most int)) error {
	for i := range w.unbound {
		l := &w.unbound[i]
		if l.levels == nil {
			continue
		}
		p := w.remoteCards(l)
		distances, err := s.engine.Distances(&p, l.levels, names, nil)
		if err != nil {
			return err
		}
		for node, distance := range distances {
			tell(node, distance, len(l.levels))
		}
	}
	return nil
}

// leaveTooFar takes nodes out that no free card of a claim is near enough to.
func (s *Shell) leaveTooFar(w *podRequest, names []string, verdicts []placement.Verdict) error {
	return s.eachDistance(w, names, func(node, distance, _ int) {
		if distance < 0 && verdicts[node].Reason == placement.Fits {
			verdicts[node].Reason = placement.CardsTooFar
		}
	})
}

// preferNear rates nodes by how near the cards of claims are. Where there are none of these, scores stay as they are.
func (s *Shell) preferNear(w *podRequest, names []string, scores []int64) error {
	return s.eachDistance(w, names, func(node, distance, most int) {
		if distance < 0 {
			scores[node] = 0
			return
		}
		scores[node] = min(scores[node], 1+(placement.MaxScore-1)*int64(most-distance)/int64(most))
	})
}

// placeGang places all pods of a gang, and the cards that they use over the network with them.
func (w *podRequest) placeGang(txn *placement.Txn) placement.Answer {
	var cards []placement.PodSet
	var levels []string
	for i := range w.unbound {
		if l := &w.unbound[i]; l.levels != nil {
			cards = append(cards, placement.PodSet{Name: cardSet(l), Count: 1, Pod: w.remoteCards(l)})
			levels = narrower(levels, l.levels)
		}
	}
	if len(cards) == 0 {
		return txn.Place(w.all)
	}
	return txn.PlaceNear(w.all, cards, levels)
}

// narrower of two lists is the one that goes less far; a pod whose claims differ has all of its cards that near.
func narrower(a, b []string) []string {
	if a == nil || len(b) < len(a) || a[len(a)-1] == placement.Anywhere && b[len(b)-1] != placement.Anywhere {
		return b
	}
	return a
}
