package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/admission"
)

// requests makes jobs into workloads. Jobs that ask for the same share their pod sets.
type requests struct {
	cards   string
	perNode int
	// quota lists resources that some queue counts: others are asked of nodes alone.
	quota   map[string]bool
	nodes   map[string]bool // resources that nodes have
	lastPod string          // placement policy of the last, smaller pod of a gang; empty: the cluster's
	made    map[request][]admission.PodSet
	names   []string
}

type request struct {
	cards       int32
	cpu, memory int64
}

func newRequests(c *Cluster) *requests {
	r := &requests{cards: c.Cards, perNode: c.mostCardsOnNode(), lastPod: c.LastPod, quota: map[string]bool{}, nodes: map[string]bool{}, made: map[request][]admission.PodSet{}}
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
		r.names = append(r.names, fmt.Sprintf("%09d", len(r.names)))
	}
	return r.names[i]
}

// podSets of a job: as many pods with all cards of a node as it takes, and one with the rest.
func (r *requests) podSets(j *Job) []admission.PodSet {
	if j.Found != nil {
		return j.Found.workload.PodSets
	}
	key := request{j.Cards, j.CPU, j.Memory}
	if sets, ok := r.made[key]; ok {
		return sets
	}
	var sets []admission.PodSet
	if whole := int(j.Cards) / max(r.perNode, 1); whole > 0 {
		sets = append(sets, r.podSet("main", j, whole, r.perNode, ""))
	}
	if rest := int(j.Cards) % max(r.perNode, 1); rest > 0 || len(sets) == 0 {
		policy := ""
		if len(sets) > 0 {
			policy = r.lastPod
		}
		sets = append(sets, r.podSet("rest", j, 1, rest, policy))
	}
	r.made[key] = sets
	return sets
}

func (r *requests) podSet(name string, j *Job, count, cards int, policy string) admission.PodSet {
	ps := admission.PodSet{Name: name, Count: int32(count), Policy: policy, Requests: admission.Requests{}, NodeRequests: admission.Requests{}}
	part := func(all int64) int64 { // a pod's part of what the job asks for
		if j.Cards == 0 {
			return all
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
