package simulate

import (
	"errors"
	"time"

	"github.com/elastic-ai/elastic/internal/placement"
)

// Replayed is what came of a trace run in its own time.
type Replayed struct {
	Policy string `json:"policy"`
	Pods   int    `json:"pods"`
	// Waited pods did not start at once; Never did not start at all.
	Waited int `json:"waited"`
	Never  int `json:"never"`
	// MeanWait and MaxWait are over all pods that started, in seconds.
	MeanWait float64 `json:"meanWaitSeconds"`
	MaxWait  int64   `json:"maxWaitSeconds"`
	// Busiest is the largest part of the cards that was allocated at one time.
	Busiest float64 `json:"busiest"`
}

// replay is a run of a trace with departures. Pods that do not fit wait in the order they came;
// later ones may pass them.
type replay struct {
	clock    Clock
	engine   *placement.Engine
	waiting  []*TracePod
	out      Replayed
	held     int64
	capacity int64
	waits    int64
	started  int
	err      error
	begun    map[string]int64 // when each pod that runs did, where somebody asks
}

// Replay runs the trace in its own time: pods arrive when the trace created them, run as long as they
// did there, and leave.
func Replay(nodes []placement.Node, pods []TracePod, policy string) (Replayed, error) {
	r, err := newReplay(nodes, pods, policy)
	if err != nil {
		return Replayed{}, err
	}
	r.clock.Run()
	r.out.Never = len(r.waiting)
	if r.started > 0 {
		r.out.MeanWait = float64(r.waits) / float64(r.started)
	}
	return r.out, r.err
}

// newReplay has the arrivals of a trace on its clock.
func newReplay(nodes []placement.Node, pods []TracePod, policy string) (*replay, error) {
	e, err := placement.New(placement.Options{Policy: policy})
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if err := e.Apply(placement.NodeChanged{Node: nodes[i]}); err != nil {
			return nil, err
		}
	}
	r := &replay{engine: e, out: Replayed{Policy: policy, Pods: len(pods)}, capacity: capacityOf(nodes)}
	for i := range pods {
		p := &pods[i]
		r.clock.At(p.Created, func() {
			if !r.start(p) {
				r.waiting = append(r.waiting, p)
			}
		})
	}
	return r, nil
}

// start the pod if it fits now.
func (r *replay) start(p *TracePod) bool {
	node, err := r.engine.Best(&p.Pod)
	var refusal *placement.Refusal
	if errors.As(err, &refusal) {
		return false
	}
	var a placement.Assignment
	if err == nil {
		a, err = r.engine.Assign(&p.Pod, node, time.Time{})
	}
	if err == nil {
		err = r.engine.Apply(placement.PodBound{Pod: p.Pod, Node: node, Grants: a.Grants})
	}
	if err != nil {
		r.err = errors.Join(r.err, err)
		return false
	}
	wait := r.clock.Now() - p.Created
	r.started++
	r.waits += wait
	if wait > 0 {
		r.out.Waited++
		r.out.MaxWait = max(r.out.MaxWait, wait)
	}
	r.held += p.Demand
	if r.begun != nil {
		r.begun[p.Key] = r.clock.Now()
	}
	r.out.Busiest = max(r.out.Busiest, float64(r.held)/float64(max(r.capacity, 1)))
	r.clock.At(r.clock.Now()+max(p.Deleted-p.Created, 0), func() { r.end(p) })
	return true
}

// end of a pod; pending pods may start.
func (r *replay) end(p *TracePod) {
	r.err = errors.Join(r.err, r.engine.Apply(placement.PodGone{Key: p.Key}))
	r.held -= p.Demand
	delete(r.begun, p.Key)
	still := r.waiting[:0]
	for _, w := range r.waiting {
		if !r.start(w) {
			still = append(still, w)
		}
	}
	r.waiting = still
}
