package multicluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// The dispatcher elasticai.io/cheapest nominates clusters as the incremental one does, in the order of what the workload is
// expected to cost there, and never two at a time that cost it a different sum: the first to admit it would win, and not the
// cheaper one. Where no cluster has a CloudOffer that is the incremental dispatcher.

// costs are what the workload is expected to cost in some clusters, cheapest first.
func (s *situation) costs(clusters []string) []cloud.ClusterCost {
	run := s.runTime()
	terms, _ := workload.PurchaseTermsOf(s.local.Annotations) // what cannot be read is reported elsewhere, and is not given
	input, _ := workload.InputOf(s.local.Annotations)
	job := &cloud.Job{Left: run, Checkpoint: terms.Checkpoint, DelayPrice: terms.DelayPrice}
	return cloud.OrderClusters(job, amounts(s.local), input, clusters, s.offers, s.now)
}

// runTime is how long the workload is taken to run.
func (s *situation) runTime() time.Duration {
	run, _ := workload.RunTime(s.local)
	return cmp.Or(s.learnedRun, run)
}

// amounts are how much of each resource a workload has quota for.
func amounts(wl *kueue.Workload) map[string]float64 {
	all := map[string]float64{}
	if wl.Status.Admission == nil {
		return all
	}
	for i := range wl.Status.Admission.PodSetAssignments {
		for name, quantity := range wl.Status.Admission.PodSetAssignments[i].ResourceUsage {
			all[string(name)] += quantity.AsApproximateFloat64()
		}
	}
	return all
}

// cheapestFirst are the steps in which clusters are nominated.
func cheapestFirst(costs []cloud.ClusterCost, step int) [][]string {
	var steps [][]string
	for i := range costs {
		if costs[i].Kind == cloud.Unpriced {
			break // those are last
		}
		last := len(steps) - 1
		if i == 0 || len(steps[last]) == step || !costs[i].Same(&costs[i-1]) {
			steps, last = append(steps, nil), last+1
		}
		steps[last] = append(steps[last], costs[i].Cluster)
	}
	return steps
}

// withPrice leaves out clusters that were nominated and have no price any more: nobody looks at the price again before a job
// starts there.
func withPrice(names []string, costs []cloud.ClusterCost) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(costs, func(c cloud.ClusterCost) bool { return c.Cluster == name && c.Kind == cloud.Unpriced })
	})
}

// message is what the check says of a nomination; "": nothing.
func (d dispatcher) message(s *situation, nominated []string) string {
	if d.name != v1alpha1.CheapestDispatcher {
		return ""
	}
	costs := s.costs(d.usable(s))
	if len(costs) == 0 || costs[len(costs)-1].Kind == cloud.Owned {
		return ""
	}
	parts := make([]string, len(costs))
	for i := range costs {
		parts[i] = costText(&costs[i])
	}
	sent := "No cluster is nominated"
	if len(nominated) > 0 {
		sent = "Nominated " + strings.Join(nominated, ", ")
	}
	run := s.runTime()
	return fmt.Sprintf("%s; expected cost for %s in USD: %s", sent, run, strings.Join(parts, ", "))
}

func costText(c *cloud.ClusterCost) string {
	switch c.Kind {
	case cloud.Owned:
		return c.Cluster + " nothing more"
	case cloud.Unpriced:
		return c.Cluster + " (it has no price, or costs more than it may)"
	case cloud.Closed:
		return fmt.Sprintf("%s %.2f (not to be had until %s)", c.Cluster, c.Cost, c.ClosedUntil.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s %.2f", c.Cluster, c.Cost)
}
