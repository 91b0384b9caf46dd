package engineview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

var reservedAt = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func ofNodes(name, start string, since int, nodes ...string) policy.Reservation {
	return policy.Reservation{
		Reservation: v1alpha1.Reservation{Name: name, Start: start, Duration: "2h", Nodes: nodes},
		For:         v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: "cq-" + name}, Policy: name, Since: reservedAt.Add(time.Duration(since) * time.Hour),
	}
}

// A node is reserved for one at a time: the older policy has it, the other one is told, and has its other nodes and times.
func TestNodesAreReservedForOne(t *testing.T) {
	a := AdvanceReservations([]policy.Reservation{
		ofNodes("a-young", "0 9 * * *", 2, "n1", "n2"), ofNodes("old", "2026-03-02T08:00", 1, "n1"), ofNodes("past", "2020-01-01T08:00", 0, "n1"),
	}, reservedAt)
	var got []string
	for _, r := range a.List {
		got = append(got, fmt.Sprint(r.From.Format("02T15:04"), " ", r.For, " ", r.Nodes))
	}
	if text := strings.Join(got, "; "); !strings.HasPrefix(text, "02T08:00 ClusterQueue/cq-old [n1]; 01T09:00 ClusterQueue/cq-a-young [n1 n2]; 02T09:00 ClusterQueue/cq-a-young [n2]; 03T09:00 ClusterQueue/cq-a-young [n1 n2]") {
		t.Error(text)
	}
	young := a.Lacking["ClusterQueue/cq-a-young, a-young"]
	if fmt.Sprint(young) != "[nodes: n1 is not reserved from 2026-03-02T09:00:00Z on, since it is for ClusterQueue/cq-old until 2026-03-02T10:00:00Z]" || len(a.Lacking) != 1 {
		t.Error(a.Lacking)
	}
	if fmt.Sprint(a.Over) != "[ClusterQueue/cq-past, past]" {
		t.Error(a.Over)
	}
}

// An admission names the nodes to avoid, so they are bounded in all.
func TestReservedNodesAreBounded(t *testing.T) {
	var list []policy.Reservation
	for i := range 10 {
		var nodes []string
		for j := range 64 {
			nodes = append(nodes, fmt.Sprintf("n%d-%d-%s", i, j, strings.Repeat("x", 60)))
		}
		list = append(list, ofNodes(fmt.Sprint("r", i), "2026-03-02T08:00", i, nodes...))
	}
	a := AdvanceReservations(list, reservedAt)
	names := 0
	for _, r := range a.List {
		names += len(strings.Join(r.Nodes, ",")) + 1
	}
	if names > mostNodeNames || names < mostNodeNames-100 || len(a.Lacking) == 0 || !strings.Contains(a.Lacking["ClusterQueue/cq-r9, r9"][0], "no more can be") {
		t.Error(names, len(a.Lacking))
	}
}
