package quotarules

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotation of a ClusterQueue is what was declared, and what its nodes had.
const Annotation = "elasticai.io/nominal-quota"

// most is how many amounts are held at once: when nodes go one after the other, the last of them go together.
const most = 16

// record is what is stored of one quota: of one resource of one flavor.
type record struct {
	// Declared is the nominal quota that somebody wrote, and Lending the lending limit; they come back with the last policy.
	Declared resource.Quantity  `json:"declared"`
	Lending  *resource.Quantity `json:"lending,omitempty"`
	// Written is the nominal quota that was written last: any other was declared since.
	Written resource.Quantity `json:"written"`
	// Nodes is what nodes had, where that counts.
	Nodes *history `json:"nodes,omitempty"`
}

// history is what the nodes of a flavor had.
type history struct {
	Now resource.Quantity `json:"now"` // at the last look
	// Held are larger amounts that they had not long ago, the largest first, and so the one that ends first.
	Held []held `json:"held,omitempty"`
}

// held is an amount that counts for a while, although nodes no longer have it.
type held struct {
	Amount resource.Quantity `json:"amount"`
	Until  time.Time         `json:"until"`
}

// look notes what nodes have now, and returns the most that they had within the grace.
func (r *record) look(now resource.Quantity, at time.Time, grace time.Duration) resource.Quantity {
	next := &history{Now: now.DeepCopy()}
	end := at.Add(grace).UTC().Truncate(time.Second)
	if r.Nodes != nil {
		next.Held = slices.Clone(r.Nodes.Held)
		if now.Cmp(r.Nodes.Now) < 0 {
			next.Held = append(next.Held, held{r.Nodes.Now, end})
		}
	}
	r.Nodes = next
	left := next.Held[:0]
	for _, h := range next.Held {
		if h.Until.After(end) {
			h.Until = end // the grace is shorter than it was, or the clock was wrong
		}
		if h.Until.After(at) && h.Amount.Cmp(now) > 0 {
			left = append(left, h)
		}
	}
	if next.Held = left; len(left) > most {
		// The smallest two go together: the larger of them is held as long as the other.
		left[most-1].Until = left[most].Until
		next.Held = left[:most]
	}
	if len(next.Held) > 0 {
		return next.Held[0].Amount
	}
	return next.Now
}

// ends is when the most that nodes had next gets smaller by itself; zero: never.
func (h *history) ends() time.Time {
	if len(h.Held) > 0 {
		return h.Held[0].Until
	}
	return time.Time{}
}

// records are those of a ClusterQueue, by flavor and resource.
type records map[string]map[string]*record

// read reads an annotation. One that cannot be read is none: quotas are then what nodes give.
func read(text string) records {
	var rs records
	if json.Unmarshal([]byte(text), &rs) != nil || rs == nil {
		return records{}
	}
	return rs
}
