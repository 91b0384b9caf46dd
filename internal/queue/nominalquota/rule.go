package nominalquota

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

// rule is what policies ask of a ClusterQueue's quotas.
type rule struct {
	share    int64 // percent of what nodes have, outside of windows; 0: as declared
	headroom int64 // percent of what nodes have that nobody gets
	grace    time.Duration
	windows  []window

	follows bool               // now or in a window, quotas are shares of what nodes have
	named   map[quotaName]bool // quotas that some window names
}

// window is a time with other quotas.
type window struct {
	open   policy.Schedule
	share  *int32
	quotas map[quotaName]resource.Quantity
}

// ruleOf reads what is in force at a ClusterQueue; windows are those of the policy that sets them.
func ruleOf(s policy.Settings, policies map[string]*v1alpha1.QueuePolicy) (rule, error) {
	r := rule{
		share: percent(s, policy.ShareOfNodes), headroom: percent(s, policy.Headroom), grace: s.Duration(policy.Grace, defaultGrace),
		named: map[quotaName]bool{},
	}
	r.follows = r.share > 0
	for _, v := range s {
		if v.Field != policy.Windows {
			continue
		}
		for i := range policies[v.Policy].Spec.Quota.Windows {
			w := &policies[v.Policy].Spec.Quota.Windows[i]
			open, err := policy.ScheduleOf(w)
			if err != nil {
				return rule{}, err
			}
			next := window{open, w.ShareOfNodes, map[quotaName]resource.Quantity{}}
			for _, q := range w.Quotas {
				which := quotaName{q.Flavor, q.Resource}
				r.named[which], next.quotas[which] = true, q.NominalQuota
			}
			r.windows, r.follows = append(r.windows, next), r.follows || w.ShareOfNodes != nil
		}
	}
	return r, nil
}

// asks says that policies ask anything of a ClusterQueue's quotas.
func (r *rule) asks() bool { return r.follows || len(r.named) > 0 }

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
func (r *rule) at(now time.Time) (m moment, again time.Time) {
	m = moment{r.share, map[quotaName]resource.Quantity{}}
	shared := false
	for i := range r.windows {
		open, until := r.windows[i].open.At(now)
		if again = earlier(again, until); !open {
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
