package queues

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Flavor with the nodes it stands for and the queues that have quota of it.
type Flavor struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"nodeLabels,omitempty"`
	Nodes  int               `json:"nodes"`
	Cards  int64             `json:"cards"`
	Queues []string          `json:"queues"`
}

// ReadFlavors of a cluster.
func ReadFlavors(ctx context.Context, c *cluster.Client) ([]Flavor, error) {
	list, queues, nodes := &kueue.ResourceFlavorList{}, &kueue.ClusterQueueList{}, &corev1.NodeList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("reading the flavors: %w", err)
	}
	if err := c.List(ctx, queues); err != nil {
		return nil, fmt.Errorf("reading the queues: %w", err)
	}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
	}
	out := []Flavor{}
	for _, rf := range list.Items {
		f := Flavor{Name: rf.Name, Labels: rf.Spec.NodeLabels, Queues: []string{}}
		for _, node := range nodes.Items {
			if matches(node.Labels, rf.Spec.NodeLabels) {
				f.Nodes++
				cards := node.Status.Allocatable["nvidia.com/gpu"]
				f.Cards += cards.Value()
			}
		}
		for _, cq := range queues.Items {
			for _, group := range cq.Spec.ResourceGroups {
				if slices.ContainsFunc(group.Flavors, func(q kueue.FlavorQuotas) bool { return string(q.Name) == rf.Name }) {
					f.Queues = append(f.Queues, cq.Name)
				}
			}
		}
		slices.Sort(f.Queues)
		f.Queues = slices.Compact(f.Queues)
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Flavor) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func matches(labels, want map[string]string) bool {
	for key, value := range want {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func flavorTable(all []Flavor) *output.Table {
	t := &output.Table{Columns: []output.Column{{Name: "NAME", Cut: true}, {Name: "NODES"}, {Name: "CARDS"}, {Name: "QUEUES", Cut: true}, {Name: "NODE LABELS", Cut: true}}}
	for _, f := range all {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(f.Labels)) {
			labels = append(labels, key+"="+f.Labels[key])
		}
		t.Add(f.Name, f.Nodes, f.Cards, dash(strings.Join(f.Queues, ",")), dash(strings.Join(labels, ",")))
	}
	return t
}
