package placement

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Event says what is true now. Events may come in any order: pods of a node that is not known yet
// are remembered, and count once it is.
type Event interface{ isEvent() }

// NodeChanged: a node appeared or its description changed. It replaces what was known of it.
type NodeChanged struct{ Node Node }

// NodeGone: a node left. Its bound pods stay in the engine until their own PodGone; reservations there end.
type NodeGone struct{ Name string }

// CardChanged: one card's description changed (health, load, model). A new Index adds a card.
type CardChanged struct {
	Node string
	Card Card
}

// CardLoad: a new measurement for one card.
type CardLoad struct {
	Node  string
	Index int
	Load  Load
}

// PodBound: the pod is on the node, with these cards. What the cluster says wins over what was
// reserved, and is accepted even beyond capacity.
type PodBound struct {
	Pod    Pod
	Node   string
	Grants []Grant
}

// PodGone: the pod ended or was deleted; what it had is free.
type PodGone struct{ Key string }

func (NodeChanged) isEvent() {}
func (NodeGone) isEvent()    {}
func (CardChanged) isEvent() {}
func (CardLoad) isEvent()    {}
func (PodBound) isEvent()    {}
func (PodGone) isEvent()     {}

// Apply takes an event in. An error means that the event makes no sense (a card index twice, a
// request that no node could serve) and that nothing changed.
func (e *Engine) Apply(ev Event) error {
	if len(e.marks) > 0 {
		return fmt.Errorf("placement: event %T inside a transaction", ev)
	}
	switch ev := ev.(type) {
	case NodeChanged:
		return e.nodeChanged(ev.Node)
	case NodeGone:
		e.nodeGone(ev.Name)
	case CardChanged:
		return e.cardChanged(ev.Node, ev.Card)
	case CardLoad:
		e.cardLoad(ev)
	case PodBound:
		return e.podBound(ev)
	case PodGone:
		e.podGone(ev.Key)
	default:
		return fmt.Errorf("placement: unknown event %T", ev)
	}
	return nil
}

const mostCards = 64 // sets of cards are bits of a word

func checkCards(node string, cards []Card) error {
	if len(cards) > mostCards {
		return fmt.Errorf("node %s: %d cards: at most %d are supported", node, len(cards), mostCards)
	}
	for i := range cards {
		for j := range i {
			if cards[i].Index == cards[j].Index {
				return fmt.Errorf("node %s: two cards with index %d", node, cards[i].Index)
			}
		}
		if cards[i].Memory < 0 || cards[i].TFLOPS < 0 {
			return fmt.Errorf("node %s: card %d: negative memory or rating", node, cards[i].Index)
		}
	}
	return nil
}

func (e *Engine) nodeChanged(desc Node) error {
	if err := checkCards(desc.Name, desc.Cards); err != nil {
		return err
	}
	n := e.nodeNamed(desc.Name)
	if n.known && reflect.DeepEqual(n.desc, desc) {
		return nil // nodes report often and change rarely
	}
	if !n.known || !maps.Equal(n.desc.Labels, desc.Labels) {
		e.labels++
	}
	n.known = true
	n.desc = desc
	n.desc.Cards = slices.Clone(desc.Cards)
	e.rebuild(n)
	return nil
}

func (e *Engine) nodeGone(name string) {
	n := e.byName[name]
	if n == nil {
		return
	}
	// By key: the order of holdings depends on what was tried and undone, and a demand snapshot may fall in between.
	for _, h := range n.sorted() {
		if !h.bound {
			e.remove(h)
		}
	}
	e.labels++
	n.known = false
	n.desc = Node{Name: name}
	e.rebuild(n)
	e.forget(n)
}

func (e *Engine) cardChanged(name string, card Card) error {
	n := e.byName[name]
	if n == nil || !n.known {
		return fmt.Errorf("card %d of unknown node %s", card.Index, name)
	}
	cards := slices.Clone(n.desc.Cards)
	if i := slices.IndexFunc(cards, func(c Card) bool { return c.Index == card.Index }); i >= 0 {
		cards[i] = card
	} else {
		cards = append(cards, card)
	}
	if err := checkCards(name, cards); err != nil {
		return err
	}
	n.desc.Cards = cards
	e.rebuild(n)
	return nil
}

func (e *Engine) cardLoad(ev CardLoad) {
	n := e.byName[ev.Node]
	if n == nil {
		return
	}
	for i := range n.desc.Cards {
		if n.desc.Cards[i].Index == ev.Index {
			n.desc.Cards[i].Load = ev.Load
			n.view.Cards[i].Busy, n.view.Cards[i].MemoryBusy = float32(ev.Load.Core), float32(ev.Load.Memory)
			e.touch(n)
		}
	}
}

func (e *Engine) podBound(ev PodBound) error {
	s, err := e.shapeOf(&ev.Pod)
	if err != nil {
		return err
	}
	if old := e.pods[ev.Pod.Key]; old != nil {
		if old.became(&ev, s) {
			return nil
		}
		e.remove(old)
		defer e.forget(old.node)
	} else if taken := e.placeholderFor(&ev.Pod, ev.Node, ev.Grants); taken != nil {
		e.remove(taken)
	}
	h := e.newHolding(&ev.Pod, s, e.nodeNamed(ev.Node))
	h.bound = true
	h.takes = takesOf(s, &ev.Pod, ev.Grants)
	e.add(h)
	return nil
}

// became marks a reservation as bound where the pod went just there: nothing else changes.
func (h *holding) became(ev *PodBound, s *shape) bool {
	if h.node.name != ev.Node || h.shape != s || h.pod.Gang != ev.Pod.Gang || h.pod.PodSet != ev.Pod.PodSet || !sameCards(h.takes, ev.Grants) {
		return false
	}
	h.pod, h.bound, h.until = ev.Pod, true, time.Time{}
	return true
}

func (e *Engine) podGone(key string) {
	if h := e.pods[key]; h != nil {
		e.remove(h)
		e.forget(h.node)
	}
}
