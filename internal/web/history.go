package web

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// Samples of queues are taken this often, and six hours of them are retained, of so many queues.
const (
	sampleEvery   = 30 * time.Second
	samples       = int(6 * time.Hour / sampleEvery)
	sampledQueues = 500
)

// history is a ring of samples for each queue.
type history struct {
	times []int64 // of the newest samples, oldest first
	// queues by name, each with as many samples as there are times; 0 where it was not there.
	queues map[string]*series
}

// series is one queue over time.
type series struct {
	Used    []float32 `json:"used"`
	Nominal []float32 `json:"nominal"`
	Waiting []float32 `json:"waiting"`
	Running []float32 `json:"running"`
	Evicted []float32 `json:"evicted"`
	missed  int       // samples since the queue was last there
}

func newHistory() *history { return &history{queues: map[string]*series{}} }

// sample adds the queues' present state.
func (h *history) sample(now time.Time, queues map[string]queueRecord, evicted map[string]int32) {
	h.times = shift(append(h.times, now.Unix()))
	for name, q := range queues {
		s := h.queues[name]
		if s == nil {
			if len(h.queues) >= sampledQueues {
				continue
			}
			s = &series{}
			for range len(h.times) - 1 {
				s.add(0, 0, 0, 0, 0)
			}
			h.queues[name] = s
		}
		var used, nominal float64
		for _, quota := range q.Quotas {
			used, nominal = used+cardsIn(quota.Resource, quota.Used), nominal+cardsIn(quota.Resource, quota.Nominal)
		}
		s.missed = -1
		s.add(float32(used), float32(nominal), float32(q.Pending), float32(q.Admitted), float32(evicted[name]))
	}
	for name, s := range h.queues {
		if s.missed++; s.missed > 0 {
			s.add(0, 0, 0, 0, 0)
		}
		if s.missed >= samples {
			delete(h.queues, name)
		}
	}
}

func (s *series) add(used, nominal, waiting, running, evicted float32) {
	s.Used, s.Nominal = shift(append(s.Used, used)), shift(append(s.Nominal, nominal))
	s.Waiting, s.Running = shift(append(s.Waiting, waiting)), shift(append(s.Running, running))
	s.Evicted = shift(append(s.Evicted, evicted))
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
	evicted := map[string]int32{}
	for _, job := range s.jobs {
		evicted[job.Queue] += job.Evicted
	}
	s.history.sample(now, s.queues, evicted)
}

// past of one queue, or of all; encoded, as samples go on.
func (s *State) past(queue string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := past{Times: s.history.times, Queues: s.history.queues}
	if queue != "" {
		out.Queues = map[string]*series{}
		if one := s.history.queues[queue]; one != nil {
			out.Queues[queue] = one
		}
	}
	return encode(out)
}
