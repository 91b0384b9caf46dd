package quotarules

import (
	"testing"
	"time"
)

// The next change is that of the next look at which something changes, with the nodes that there are.
func TestNextChange(t *testing.T) {
	cq, r := queue("100"), from(50, 10*time.Minute)
	look(t, cq, r, start, nodesOf("H100 8", "H100 8"))
	if at, changes := Next(cq, r, start); !at.IsZero() || len(changes) > 0 {
		t.Errorf("nothing was lost: %s, %v", at, changes)
	}
	look(t, cq, r, start.Add(time.Minute), nodesOf("H100 8", "H100 8 lost"))
	before := quotaOf(cq, 0).NominalQuota.String()
	at, changes := Next(cq, r, start.Add(2*time.Minute))
	if !at.Equal(start.Add(11*time.Minute)) || len(changes) != 1 || changes[0].Flavor != "h100" || changes[0].From.String() != "8" || changes[0].To.String() != "4" {
		t.Errorf("%s, %v", at, changes)
	}
	if after := quotaOf(cq, 0).NominalQuota.String(); after != before {
		t.Errorf("asking changed the quota from %s to %s", before, after)
	}
}
