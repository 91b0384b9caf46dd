package world

import "testing"

// A gang is as many pods as its queue's own nodes make of it: those of other queues, and a few larger ones, change nothing.
func TestGangsGoByTheNodesOfTheirQueue(t *testing.T) {
	two := []Share{{"a", 4, 8}, {"b", 4, 4}}
	jobs := "x,,a,0,100,16,,,\ny,,b,0,100,8,,,\nz,,b,0,100,6,,,\n"
	for _, c := range []*Cluster{Partitions(two), Pool(two), set(t, Partitions(two), "+1x16:B200@a"), set(t, Pool(two), "+1x16:B200")} {
		if w, r := simulate(t, trace(t, jobs), c, Settings{}); r.Ended != 3 || r.Makespan != 100 {
			t.Error(starts(w))
		}
	}
	// All jobs of 16 cards run at once: none waits for the one node of 16.
	jobs = "x,,a,0,100,16,,,\ny,,a,0,100,16,,,\nz,,a,0,100,16,,,\n"
	c := set(t, Partitions(two), "+1x16:B200@a,queue/a.quota=48")
	if w, r := simulate(t, trace(t, jobs), c, Settings{}); r.Makespan != 100 {
		t.Error(starts(w))
	}
}

// What an eviction costs goes by whether the job was on several nodes as its queue has them.
func TestRestartsGoByTheNodesOfTheQueue(t *testing.T) {
	c := set(t, Partitions([]Share{{"a", 4, 8}, {"b", 2, 4}}), "queue/b.withinClusterQueue=LowerPriority")
	tr := trace(t, "x,,b,0,100,8,,,\ny,,b,50,10,8,,,\n")
	tr.Jobs[1].Priority = 1
	w, _ := simulate(t, tr, c, Settings{Restart: Restart{OneNode: 1, ManyNodes: 7}})
	if got, want := starts(w), "x 0-117, y 50-60"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A job that asks for CPU alone, and for more than a node has, runs on several.
func TestJobsWithoutCardsOnSeveralNodes(t *testing.T) {
	c := byProduct()
	c.Nodes[0].Taints = nil // nobody tolerates them who gets no flavor
	c = set(t, c, "+2x8")
	w, _ := simulate(t, trace(t, "a,,q,0,100,0,150,,\nb,,q,0,100,0,60,1400000,\n"), c, Settings{})
	if got, want := starts(w), "a 0-100, b 100-200"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
