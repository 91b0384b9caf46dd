package nodequota

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotation of a ClusterQueue is what nodes gave it, and what it had been given before.
const Annotation = "elasticai.io/quota-from-nodes"

// most is how many amounts are held at once: when nodes go one after the other, the last of them go together.
const most = 16

// record is what is stored of one quota: of one resource of one flavor.
type record struct {
	// Declared is the nominal quota that somebody wrote, and Lending the lending limit; they come back with the last policy.
	Declared resource.Quantity  `json:"declared"`
	Lending  *resource.Quantity `json:"lending,omitempty"`
	// Now is the share of what nodes had at the last look.
	Now resource.Quantity `json:"now"`
	// Held are larger amounts that nodes gave not long ago, the largest first, and so the one that ends first.
	Held []held `json:"held,omitempty"`
}

// held is an amount that counts for a while, although nodes no longer give it.
type held struct {
	Amount resource.Quantity `json:"amount"`
	Until  time.Time         `json:"until"`
}

// look notes what nodes give now.
func (r *record) look(now resource.Quantity, at time.Time, grace time.Duration) {
	if now.Cmp(r.Now) < 0 && grace > 0 {
		r.Held = append(r.Held, held{r.Now, at.Add(grace).UTC().Truncate(time.Second)})
	}
	r.Now = now
	left := r.Held[:0]
	for _, h := range r.Held {
		if h.Until.After(at.Add(grace)) {
			h.Until = at.Add(grace).UTC().Truncate(time.Second) // the grace is shorter than it was, or the clock was wrong
		}
		if h.Until.After(at) && h.Amount.Cmp(now) > 0 {
			left = append(left, h)
		}
	}
	if r.Held = left; len(left) > most {
		// The smallest two go together: the larger of them is held as long as the other.
		left[most-1].Until = left[most].Until
		r.Held = left[:most]
	}
}

// quota is the most that nodes gave within the grace.
func (r *record) quota() resource.Quantity {
	if len(r.Held) > 0 {
		return r.Held[0].Amount
	}
	return r.Now
}

// ends is when the quota next gets smaller by itself; zero: never.
func (r *record) ends() time.Time {
	if len(r.Held) > 0 {
		return r.Held[0].Until
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
