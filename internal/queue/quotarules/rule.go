package quotarules

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// defaultGrace is how long what nodes had still counts where a policy does not say.
const defaultGrace = 10 * time.Minute

// quotaName is one quota of a ClusterQueue.
type quotaName struct{ flavor, resource string }

// Rule is what policies ask of a ClusterQueue's quotas.
type Rule struct {
	share    int64 // percent of what nodes have, outside of windows; 0: as declared
	headroom int64 // percent of what nodes have that nobody gets
	grace    time.Duration
	windows  []window

	Follows bool               // now or in a window, quotas are shares of what nodes have
	named   map[quotaName]bool // quotas that some window names
}

// window is a time with other quotas.
type window struct {
	open   policy.Schedule
	share  *int32
	quotas map[quotaName]resource.Quantity
}

// Rules are what policies ask of the quotas of ClusterQueues, by name; those of which they ask nothing are not there.
func Rules(policies []*v1alpha1.QueuePolicy, world policy.World) (map[string]Rule, error) {
	byName := map[string]*v1alpha1.QueuePolicy{}
	for _, p := range policies {
		byName[p.Name] = p
	}
	resolved, rules := policy.Resolve(policies, world), map[string]Rule{}
	for name := range world.ClusterQueues {
		r, err := RuleOf(resolved.ClusterQueue(name), byName)
		if err != nil {
			return nil, err
		}
		if r.Asks() {
			rules[name] = r
		}
	}
	return rules, nil
}

// RuleOf reads what is in force at a ClusterQueue; windows are those of the policy that sets them.
func RuleOf(s policy.Settings, policies map[string]*v1alpha1.QueuePolicy) (Rule, error) {
	r := Rule{
		share: percent(s, policy.ShareOfNodes), headroom: percent(s, policy.Headroom), grace: s.Duration(policy.Grace, defaultGrace),
		named: map[quotaName]bool{},
	}
	r.Follows = r.share > 0
	for _, v := range s {
		if v.Field != policy.Windows {
			continue
		}
		for i := range policies[v.Policy].Spec.Quota.Windows {
			w := &policies[v.Policy].Spec.Quota.Windows[i]
			open, err := policy.ScheduleOf(w)
			if err != nil {
				return Rule{}, err
			}
			next := window{open, w.ShareOfNodes, map[quotaName]resource.Quantity{}}
			for _, q := range w.Quotas {
				which := quotaName{q.Flavor, q.Resource}
				r.named[which], next.quotas[which] = true, q.NominalQuota
			}
			r.windows, r.Follows = append(r.windows, next), r.Follows || w.ShareOfNodes != nil
		}
	}
	return r, nil
}

// Asks says that policies ask anything of a ClusterQueue's quotas.
func (r *Rule) Asks() bool { return r.Follows || len(r.named) > 0 }

// Opened is when each window has been open once, from a time on; the time itself without windows.
func (r *Rule) Opened(from time.Time) time.Time {
	last := from
	for i := range r.windows {
		open, until := r.windows[i].open.At(from)
		if !open && !until.IsZero() {
			_, until = r.windows[i].open.At(until)
		}
		if until.After(last) {
			last = until
		}
	}
	return last
}

// percent is a value of a policy that was checked; 0 without one.
func percent(s policy.Settings, field string) int64 {
	n, err := strconv.ParseInt(s.Text(field), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// moment is what a rule asks at one time.
type moment struct {
	share  int64
	quotas map[quotaName]resource.Quantity
}

// at is what the rule asks at a time, and when it may ask something else; zero: never. Of windows that are open at once
// the first counts.
func (r *Rule) at(now time.Time) (m moment, again time.Time) {
	m = moment{r.share, map[quotaName]resource.Quantity{}}
	shared := false
	for i := range r.windows {
		open, until := r.windows[i].open.At(now)
		if again = Earlier(again, until); !open {
			continue
		}
		if s := r.windows[i].share; s != nil && !shared {
			m.share, shared = int64(*s), true
		}
		for which, amount := range r.windows[i].quotas {
			if _, has := m.quotas[which]; !has {
				m.quotas[which] = amount
			}
		}
	}
	return m, again
}
