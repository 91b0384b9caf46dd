package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/quotarules"
)

// explainQuota says when a quota changes that a workload lacks: a window of a QueuePolicy opens or closes, or what lost nodes
// had no longer counts. What is said of its start is for the quota of now, so it does not hold beyond that.
func (s *Shell) explainQuota(x *v1alpha1.WorkloadStanding) {
	cq := s.objects.ClusterQueues[x.ClusterQueue]
	if cq == nil || len(x.Missing) == 0 {
		return
	}
	rule, err := quotarules.RuleOf(s.objects.InForceAt(cq.Name), s.objects.Policies)
	if err != nil || !rule.Asks() {
		return
	}
	at, changes := quotarules.Next(cq, rule, s.now())
	var words []string
	suffices := len(x.Missing) > 0 // for all that it lacks
	for i := range x.Missing {
		m := &x.Missing[i]
		c := slices.IndexFunc(changes, func(c quotarules.Change) bool { return c.Flavor == m.Flavor && c.Resource == m.Resource })
		if c < 0 {
			suffices = false
			continue
		}
		words = append(words, fmt.Sprintf("%s %s in flavor %s instead of %s", changes[c].To.String(), m.Resource, m.Flavor, changes[c].From.String()))
		lacks, err := resource.ParseQuantity(m.Amount)
		lacks.Add(changes[c].From)
		suffices = suffices && err == nil && m.ClusterQueue == cq.Name && changes[c].To.Cmp(lacks) >= 0
	}
	if len(words) == 0 {
		return
	}
	x.Quota = strings.Join(slices.Compact(words), ", ") + " from " + at.UTC().Format(time.RFC3339) + " on, as QueuePolicies say"
	if x.StartsAt != nil && !x.StartsAt.After(at) {
		return
	}
	x.StartsAt = nil
	if suffices && x.Position == 1 {
		x.StartsAt = &metav1.Time{Time: at.UTC()}
		x.Suggestions = append(x.Suggestions, "waiting until "+at.UTC().Format(time.RFC3339)+", when its quota suffices")
	}
}
