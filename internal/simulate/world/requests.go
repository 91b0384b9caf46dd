package world

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// requests makes jobs into workloads. Jobs that ask for the same share their pod sets.
type requests struct {
	cards string
	sizes map[string]*madeSize // of each queue; those of one size share it
	// quota lists resources that some queue counts: others are asked of nodes alone.
	quota   map[string]bool
	nodes   map[string]bool // resources that nodes have
	lastPod string          // placement policy of the last, smaller pod of a gang; empty: the cluster's
	names   []string
}

type request struct {
	cards       int32
	cpu, memory int64
}

// madeSize is the pod sets of jobs for which pods are of one size.
type madeSize struct {
	podSize
	made map[request][]admission.PodSet
}

func newRequests(c *Cluster) *requests {
	r := &requests{cards: c.Cards, sizes: map[string]*madeSize{}, lastPod: c.LastPod, quota: map[string]bool{}, nodes: map[string]bool{}}
	shared := map[podSize]*madeSize{}
	for queue, size := range c.podSizes() {
		if shared[size] == nil {
			shared[size] = &madeSize{size, map[request][]admission.PodSet{}}
		}
		r.sizes[queue] = shared[size]
	}
	for i := range c.Queues {
		for _, g := range c.Queues[i].Groups {
			for _, name := range g.Resources {
				r.quota[name] = true
			}
		}
	}
	for i := range c.Nodes {
		r.nodes[admission.CPU] = r.nodes[admission.CPU] || c.Nodes[i].CPU > 0
		r.nodes["memory"] = r.nodes["memory"] || c.Nodes[i].Memory > 0
	}
	return r
}

// name of a job's workload: its number, so that names sort as jobs were submitted.
func (r *requests) name(i int) string {
	for len(r.names) <= i {
		digits := strconv.AppendInt(append(make([]byte, 0, 24), "000000000"...), int64(len(r.names)), 10)
		r.names = append(r.names, string(digits[min(len(digits)-9, 9):]))
	}
	return r.names[i]
}

// podSets of a job: as many pods with all cards of a node as it takes, and one with the rest. One that asks for no cards is as
// many equal pods as it takes for each to fit on a node.
func (r *requests) podSets(j *Job) []admission.PodSet {
	if j.Found != nil {
		return j.Found.workload.PodSets
	}
	size := r.sizes[j.Queue]
	key := request{j.Cards, j.CPU, j.Memory}
	if sets, ok := size.made[key]; ok {
		return sets
	}
	var sets []admission.PodSet
	if whole := int(j.Cards) / size.cards; whole > 0 {
		sets = append(sets, r.podSet("main", j, whole, size.cards, ""))
	}
	if rest := int(j.Cards) % size.cards; rest > 0 {
		policy := ""
		if len(sets) > 0 {
			policy = r.lastPod
		}
		sets = append(sets, r.podSet("rest", j, 1, rest, policy))
	}
	if len(sets) == 0 {
		sets = append(sets, r.podSet("rest", j, size.podsWithoutCards(j), 0, ""))
	}
	size.made[key] = sets
	return sets
}

func (r *requests) podSet(name string, j *Job, count, cards int, policy string) admission.PodSet {
	ps := admission.PodSet{Name: name, Count: int32(count), Policy: policy, Requests: admission.Requests{}, NodeRequests: admission.Requests{}}
	part := func(all int64) int64 { // a pod's part of what the job asks for
		if j.Cards == 0 {
			return (all + int64(count) - 1) / int64(count)
		}
		return all * int64(cards) / int64(j.Cards)
	}
	for _, ask := range []struct {
		resource string
		amount   int64
	}{{r.cards, int64(cards)}, {admission.CPU, part(j.CPU)}, {"memory", part(j.Memory)}} {
		if ask.amount > 0 && r.quota[ask.resource] {
			ps.Requests[ask.resource] = ask.amount
		}
		if ask.amount > 0 && (ask.resource == r.cards || r.nodes[ask.resource]) {
			ps.NodeRequests[ask.resource] = ask.amount
		}
	}
	return ps
}

// join names the first few of a list.
func join(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(slices.Clone(names[:most]), ", "), len(names)-most)
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// namespace of the workloads that are of no LocalQueue of the cluster. No namespace has such a name.
const namespace = "(simulated)"

// localQueue of a job: one of the cluster's, or that of its ClusterQueue, which has its name.
func (w *World) localQueue(i int) admission.Key {
	if j := &w.trace.Jobs[i]; j.Local == nil {
		return admission.Key{Namespace: namespace, Name: j.Queue}
	}
	return *w.trace.Jobs[i].Local
}

// key of a job's workload.
func (w *World) key(i int) admission.Key {
	key := admission.Key{Namespace: namespace, Name: w.requests.name(i)}
	if local := w.trace.Jobs[i].Local; local != nil {
		key.Namespace = local.Namespace
	}
	return key
}

// workload is a job's object while it waits.
func (w *World) workload(i int) admission.Workload {
	j, s := &w.trace.Jobs[i], &w.jobs[i]
	created := j.Submit
	if j.Found != nil {
		created -= j.Found.age
	}
	wl := admission.Workload{
		Key: w.key(i), UID: w.requests.name(i), LocalQueue: w.localQueue(i).Name, Priority: j.Priority,
		Created: w.clock(created), PodSets: w.requests.podSets(j), MaxRunTime: time.Duration(j.Limit) * time.Second,
		RanBefore: time.Duration(s.ran) * time.Second, AdvanceReservation: w.reservationOf(j), Nominated: s.nominated, Moving: s.moving,
	}
	if s.preempted+s.evicted > 0 {
		wl.EvictedAt, wl.EvictedBy, wl.EvictedFor, wl.PreemptedByOthers = w.clock(s.since), kueue.WorkloadEvictedByPreemption, s.evictedFor, s.byOthers
		switch {
		case s.byBudget:
			wl.EvictedBy = string(admission.ReasonBudgetSpent)
		case s.byFault:
			wl.EvictedBy = kueue.WorkloadEvictedDueToNodeFailures
		}
	}
	wl.ExpectedRunTime = w.learned.expected(&wl)
	return wl
}

// JobOf is the job of a workload, -1 for one that is none's.
func JobOf(key admission.Key) int {
	i, err := strconv.Atoi(key.Name)
	if err != nil {
		return -1
	}
	return i
}
