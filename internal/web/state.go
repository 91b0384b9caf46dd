package web

import (
	"bytes"
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// State is what one set of rights sees, as records. Watches change it; tabs subscribe to it.
type State struct {
	mu sync.Mutex

	nodes    map[string]*nodeState
	pods     map[string]podOwner
	cardNode map[string]string // where a card is
	podNode  map[string]string // where a pod has a share
	queues   map[string]queueRecord
	cohorts  map[string]cohortRecord
	locals   map[string]string   // the ClusterQueue of a LocalQueue, by namespace/name
	moved    map[string]struct{} // LocalQueues of which that changed since the last refresh
	jobs     map[string]jobRecord
	problems map[string]problemRecord

	// records as they were sent last, and what may have changed since.
	records map[string]map[string][]byte
	dirty   map[ref]struct{}

	subscribers map[*subscriber]struct{}
	history     *history
	// evictions of each queue since the last sample.
	evictions map[string]int32
	prices    priceList

	allowedEvery time.Duration
}

// nodeState is a node, and the cards that GPU objects put there.
type nodeState struct {
	record nodeRecord
	known  bool // the Node itself was seen
	cards  map[string]cardRecord
}

type ref struct{ kind, key string }

// subscriber is a tab. Changes that do not fit close it: it begins again.
type subscriber struct{ changes chan *message }

// backlog is how many messages a tab may be behind: a quarter of a second each.
const backlog = 64

// shown is how many finished jobs the page has at most, and for how long.
const (
	shownFinished = 500
	shownFor      = time.Hour
)

// NewState is empty.
func NewState() *State {
	s := &State{
		nodes: map[string]*nodeState{}, pods: map[string]podOwner{}, cardNode: map[string]string{}, podNode: map[string]string{},
		queues: map[string]queueRecord{}, cohorts: map[string]cohortRecord{}, locals: map[string]string{}, moved: map[string]struct{}{},
		jobs: map[string]jobRecord{}, problems: map[string]problemRecord{},
		records: map[string]map[string][]byte{}, dirty: map[ref]struct{}{}, subscribers: map[*subscriber]struct{}{},
		history: newHistory(), evictions: map[string]int32{}, allowedEvery: allowedEvery, prices: priceList{models: map[string]string{}},
	}
	for _, kind := range kindsInOrder {
		s.records[kind] = map[string][]byte{}
	}
	return s
}

// kindsInOrder is the order in which a new tab gets them: what the first view needs first.
var kindsInOrder = []string{kindProblems, kindQueues, kindCohorts, kindNodes, kindJobs}

func (s *State) mark(kind, key string) { s.dirty[ref{kind, key}] = struct{}{} }

func (s *State) node(name string) *nodeState {
	n := s.nodes[name]
	if n == nil {
		n = &nodeState{record: nodeRecord{Name: name}, cards: map[string]cardRecord{}}
		s.nodes[name] = n
	}
	s.mark(kindNodes, name)
	return n
}

func (s *State) setNode(r nodeRecord) {
	n := s.node(r.Name)
	n.record, n.known = r, true
}

func (s *State) dropNode(name string) {
	n := s.node(name)
	n.known, n.record = false, nodeRecord{Name: name}
	s.forgetEmpty(name)
}

func (s *State) setCard(node string, card cardRecord) {
	if before, there := s.cardNode[card.Name]; there && before != node {
		s.dropCard(card.Name)
	}
	s.cardNode[card.Name] = node
	s.node(node).cards[card.Name] = card
	for _, share := range card.Shares {
		s.podNode[share.Pod] = node
	}
}

func (s *State) dropCard(card string) {
	node, there := s.cardNode[card]
	if !there {
		return
	}
	delete(s.cardNode, card)
	delete(s.node(node).cards, card)
	s.forgetEmpty(node)
}

func (s *State) forgetEmpty(node string) {
	if n := s.nodes[node]; n != nil && !n.known && len(n.cards) == 0 {
		delete(s.nodes, node)
	}
}

func (s *State) setPod(pod string, owner podOwner) {
	s.pods[pod] = owner
	s.markPod(pod)
}

func (s *State) dropPod(pod string) {
	delete(s.pods, pod)
	s.markPod(pod)
	delete(s.podNode, pod)
}

func (s *State) markPod(pod string) {
	if node := s.podNode[pod]; node != "" {
		s.mark(kindNodes, node)
	}
}

func (s *State) setLocal(key, clusterQueue string) {
	before := s.locals[key]
	if before == clusterQueue {
		return
	}
	if s.locals[key] = clusterQueue; clusterQueue == "" {
		delete(s.locals, key)
	}
	s.mark(kindQueues, before)
	s.mark(kindQueues, clusterQueue)
	s.moved[key] = struct{}{}
}

// markMoved marks the jobs of LocalQueues that lead elsewhere, in one pass however many those are.
func (s *State) markMoved() {
	if len(s.moved) == 0 {
		return
	}
	for name, job := range s.jobs {
		if _, moved := s.moved[job.Namespace+"/"+job.Local]; moved {
			s.mark(kindJobs, name)
		}
	}
	clear(s.moved)
}

func (s *State) setJob(r jobRecord) {
	key := r.Namespace + "/" + r.Name
	// One that was not known brings evictions from before anybody looked.
	if before, known := s.jobs[key]; known && r.Evicted > before.Evicted {
		s.evictions[cmp.Or(before.Queue, r.Queue, s.locals[r.Namespace+"/"+r.Local])] += r.Evicted - before.Evicted
	}
	s.jobs[key] = r
	s.mark(kindJobs, key)
}

func (s *State) dropJob(key string) {
	delete(s.jobs, key)
	s.mark(kindJobs, key)
}

// prune forgets finished jobs that are too old, or too many.
func (s *State) prune(now time.Time) {
	var finished []string
	for key, job := range s.jobs {
		if job.State == stateFinished || job.State == stateFailed {
			finished = append(finished, key)
		}
	}
	slices.SortFunc(finished, func(a, b string) int { return cmp.Compare(s.jobs[b].Since, s.jobs[a].Since) })
	for i, key := range finished {
		if i >= shownFinished || now.Unix()-s.jobs[key].Since > int64(shownFor.Seconds()) {
			s.dropJob(key)
		}
	}
}

// render is a record as it is now; nil where there is none.
func (s *State) render(r ref) []byte {
	switch r.kind {
	case kindNodes:
		if n := s.nodes[r.key]; n != nil && len(n.cards) > 0 {
			return encode(s.nodeWithCards(n))
		}
	case kindQueues:
		if q, ok := s.queues[r.key]; ok {
			for key, clusterQueue := range s.locals {
				if clusterQueue == r.key {
					q.LocalQueues = append(q.LocalQueues, key)
				}
			}
			slices.Sort(q.LocalQueues)
			return encode(q)
		}
	case kindCohorts:
		if c, ok := s.cohorts[r.key]; ok {
			return encode(c)
		}
	case kindJobs:
		if j, ok := s.jobs[r.key]; ok {
			j.Queue = cmp.Or(j.Queue, s.locals[j.Namespace+"/"+j.Local])
			return encode(j)
		}
	case kindProblems:
		if p, ok := s.problems[r.key]; ok {
			return encode(p)
		}
	}
	return nil
}

func (s *State) nodeWithCards(n *nodeState) nodeRecord {
	r := n.record
	r.Cards = slices.SortedFunc(maps.Values(n.cards), func(a, b cardRecord) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), strings.Compare(a.Name, b.Name))
	})
	for i := range r.Cards {
		c := &r.Cards[i]
		r.Model = cmp.Or(r.Model, c.Model)
		c.Shares = slices.Clone(c.Shares)
		for k := range c.Shares {
			owner := s.pods[c.Shares[k].Pod]
			c.Shares[k].Queue, c.Shares[k].Workload = owner.queue, owner.workload
		}
	}
	if !n.known && len(r.Cards) > 0 {
		r.Ready = s.problems["nodes"].What != "" // who may not read nodes is not told that all are lost
	}
	return r
}

// renderAll renders records, with all processors where they are many: of a new session someone waits for all of them.
func (s *State) renderAll(changed []ref) [][]byte {
	rendered := make([][]byte, len(changed))
	var parts sync.WaitGroup
	size := max(piece, (len(changed)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := 0; from < len(changed); from += size {
		part := func() {
			for i := from; i < min(from+size, len(changed)); i++ {
				rendered[i] = s.render(changed[i])
			}
		}
		if from+size >= len(changed) {
			part()
		} else {
			parts.Go(part)
		}
	}
	parts.Wait()
	return rendered
}

// refresh renders what changed, and returns what differs from what was sent.
func (s *State) refresh() (set map[string][][]byte, gone map[string][]string) {
	s.markMoved()
	set, gone = map[string][][]byte{}, map[string][]string{}
	changed := slices.Collect(maps.Keys(s.dirty))
	for i, now := range s.renderAll(changed) {
		r := changed[i]
		before := s.records[r.kind][r.key]
		switch {
		case now == nil && before != nil:
			delete(s.records[r.kind], r.key)
			gone[r.kind] = append(gone[r.kind], r.key)
		case now != nil && !bytes.Equal(now, before):
			s.records[r.kind][r.key] = now
			set[r.kind] = append(set[r.kind], now)
		}
	}
	clear(s.dirty)
	return set, gone
}

// flush sends what changed to all tabs.
func (s *State) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirty) == 0 {
		return
	}
	set, gone := s.refresh()
	s.send(messages(set, gone))
}

// forgetChanges of a state that no tab looks at: they would only add up.
func (s *State) forgetChanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.dirty)
	clear(s.moved)
}

func (s *State) send(all []*message) {
	for _, message := range all {
		for tab := range s.subscribers {
			select {
			case tab.changes <- message:
			default:
				delete(s.subscribers, tab)
				close(tab.changes)
			}
		}
	}
}

// subscribe returns all records, and a channel of what changes after them.
func (s *State) subscribe() (*subscriber, []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(messages(s.refresh()))
	set := map[string][][]byte{}
	for kind, all := range s.records {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			set[kind] = append(set[kind], all[key])
		}
	}
	tab := &subscriber{changes: make(chan *message, backlog)}
	s.subscribers[tab] = struct{}{}
	return tab, messages(set, nil)
}

func (s *State) unsubscribe(tab *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.subscribers[tab]; there {
		delete(s.subscribers, tab)
		close(tab.changes)
	}
}

// piece is how many records one message has at most: the browser reads it without a pause that shows.
const piece = 300

// messages puts records into messages, kind by kind.
func messages(set map[string][][]byte, gone map[string][]string) []*message {
	var all []*message
	for _, kind := range kindsInOrder {
		for chunk := range slices.Chunk(set[kind], piece) {
			var b bytes.Buffer
			b.WriteString(`{"kind":"` + kind + `","set":[`)
			b.Write(bytes.Join(chunk, []byte(",")))
			b.WriteString("]}")
			all = append(all, &message{event: "records", data: b.Bytes()})
		}
		if len(gone[kind]) > 0 {
			slices.Sort(gone[kind])
			all = append(all, &message{event: "records", data: encode(map[string]any{"kind": kind, "gone": gone[kind]})})
		}
	}
	return all
}
