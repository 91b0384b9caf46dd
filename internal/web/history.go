package web

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// Samples of queues are taken this often, and six hours of them are retained, of so many queues.
const (
	sampleEvery   = 30 * time.Second
	samples       = int(6 * time.Hour / sampleEvery)
	sampledQueues = 500
	sampledCards  = 5000
)

// history is a ring of samples for each queue.
type history struct {
	times []int64 // of the newest samples, oldest first
	// queues by name, each with as many samples as there are times; 0 where it was not there.
	queues map[string]*series
	cards  map[string]*cardSeries
}

// cardSeries is one card over time, in percent: how busy it was, or unknown, and how much of its compute was given out.
type cardSeries struct {
	load, given []uint8
	missed      int
}

const unknownLoad = 255

// series is one queue over time. Evicted is since the sample before, and cost of an hour, at what is used then.
type series struct {
	Used    []float32 `json:"used"`
	Nominal []float32 `json:"nominal"`
	Waiting []float32 `json:"waiting"`
	Running []float32 `json:"running"`
	Evicted []float32 `json:"evicted"`
	Cost    []float32 `json:"cost,omitempty"`
	missed  int       // samples since the queue was last there
}

func newHistory() *history {
	return &history{queues: map[string]*series{}, cards: map[string]*cardSeries{}}
}

// sample adds the queues' present state.
func (h *history) sample(now time.Time, queues map[string]queueRecord, evicted map[string]int32, prices *priceList) {
	h.times = shift(append(h.times, now.Unix()))
	for name, q := range queues {
		s := h.queues[name]
		if s == nil {
			if len(h.queues) >= sampledQueues {
				continue
			}
			s = &series{}
			for range len(h.times) - 1 {
				s.add(nothing)
			}
			h.queues[name] = s
		}
		at := moments{waiting: float64(q.Pending), running: float64(q.Admitted), evicted: float64(evicted[name])}
		for _, quota := range q.Quotas {
			used := cardsIn(quota.Resource, quota.Used)
			at.used, at.nominal, at.cost = at.used+used, at.nominal+cardsIn(quota.Resource, quota.Nominal), at.cost+used*prices.of(quota.Flavor)
		}
		s.missed = -1
		s.add(at)
	}
	for name, s := range h.queues {
		if s.missed++; s.missed > 0 {
			s.add(nothing)
		}
		if s.missed >= samples {
			delete(h.queues, name)
		}
	}
}

// sampleCards adds the cards' present state, after that of the queues.
func (h *history) sampleCards(nodes map[string]*nodeState) {
	for _, n := range nodes {
		for name, card := range n.cards {
			s := h.cards[name]
			if s == nil {
				if len(h.cards) >= sampledCards {
					continue
				}
				s = &cardSeries{}
				for range len(h.times) - 1 {
					s.add(unknownLoad, 0)
				}
				h.cards[name] = s
			}
			given, load := int64(0), unknownLoad
			for _, share := range card.Shares {
				given += share.Core
			}
			if card.Load != nil {
				load = min(max(*card.Load, 0), 100)
			}
			s.missed = -1
			s.add(uint8(load), uint8(min(max(given, 0), 100)))
		}
	}
	for name, s := range h.cards {
		if s.missed++; s.missed > 0 {
			s.add(unknownLoad, 0)
		}
		if s.missed >= samples {
			delete(h.cards, name)
		}
	}
}

func (s *cardSeries) add(load, given uint8) {
	s.load, s.given = shift(append(s.load, load)), shift(append(s.given, given))
}

// moments is a sample of one queue.
type moments struct{ used, nominal, waiting, running, evicted, cost float64 }

var nothing moments // of a queue that is not there

func (s *series) add(at moments) {
	s.Used, s.Nominal = shift(append(s.Used, float32(at.used))), shift(append(s.Nominal, float32(at.nominal)))
	s.Waiting, s.Running = shift(append(s.Waiting, float32(at.waiting))), shift(append(s.Running, float32(at.running)))
	s.Evicted, s.Cost = shift(append(s.Evicted, float32(at.evicted))), shift(append(s.Cost, float32(at.cost)))
}

// priceList is what one card of a flavor costs for an hour: by the flavor's name, or by the model of its nodes.
type priceList struct {
	prices map[string]float64
	models map[string]string // by flavor
}

func (p *priceList) of(flavor string) float64 {
	if price, named := p.prices[flavor]; named {
		return price
	}
	return p.prices[p.models[flavor]]
}

// shift drops the oldest once there are enough. When the array is used up, append copies what is left into a new one.
func shift[T any](list []T) []T {
	return list[max(0, len(list)-samples):]
}

// cardsIn an amount of quota: whole cards, or percent of one; 0 of what is no card.
func cardsIn(resource string, amount float64) float64 {
	switch corev1.ResourceName(resource) {
	case egpu.ResourceWhole:
		return amount
	case egpu.ResourceCore, egpu.ResourceCoreOld, egpu.ResourceQGPUCore:
		return amount / 100
	}
	return 0
}

// past is what the page draws.
type past struct {
	Times  []int64            `json:"times"`
	Queues map[string]*series `json:"queues"`
}

// sample takes a sample now, and forgets what is too old to show.
func (s *State) sample(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune(now)
	s.history.sample(now, s.queues, s.evictions, &s.prices)
	clear(s.evictions)
	s.history.sampleCards(s.nodes)
}

// past of these queues; encoded, as samples go on.
func (s *State) past(names []string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := past{Times: s.history.times, Queues: map[string]*series{}}
	for _, name := range names {
		if one := s.history.queues[name]; one != nil {
			out.Queues[name] = one
		}
	}
	return encode(out)
}

// pastOfCard is what the page draws of a card that is seen: null where the load was not known.
func (s *State) pastOfCard(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := struct {
		Times []int64 `json:"times"`
		Load  []*int  `json:"load"`
		Given []int   `json:"given"`
	}{Times: s.history.times}
	if card := s.history.cards[name]; card != nil {
		for i, load := range card.load {
			var known *int
			if load != unknownLoad {
				known = new(int)
				*known = int(load)
			}
			out.Load, out.Given = append(out.Load, known), append(out.Given, int(card.given[i]))
		}
	}
	return encode(out)
}

// seenQueues are those of which the past may be shown: one, or all that are seen, or were in the time of the history.
func (s *State) seenQueues(one string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.queues {
		names = append(names, name)
	}
	for name := range s.history.queues {
		if _, there := s.queues[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if one != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name != one })
	}
	return names
}
