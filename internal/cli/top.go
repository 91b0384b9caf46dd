package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/gpu"
	"github.com/elastic-ai/elastic/internal/cli/job"
	"github.com/elastic-ai/elastic/internal/cli/output"
	"github.com/elastic-ai/elastic/internal/cli/queues"
)

// topCommand shows what is in use.
func topCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "top", Short: "Show what is in use: jobs, nodes, cards, queues"}
	flags := &cluster.Flags{}
	flags.AddTo(cmd)
	cmd.AddCommand(job.TopCommand(flags), topNodeCommand(flags), gpu.TopCommand("gpu", flags), queues.ListCommand(flags, "queue"))
	return cmd
}

// nodeRow is a node as "top node" shows it.
type nodeRow struct {
	Name      string `json:"name"`
	Address   string `json:"ipAddress"`
	Role      string `json:"role"`
	Status    string `json:"status"`
	Model     string `json:"model,omitempty"`
	Total     int64  `json:"totalGPUs"`
	Allocated int64  `json:"allocatedGPUs"`
	Pods      int    `json:"gpuPods"`
}

func topNodeCommand(flags *cluster.Flags) *cobra.Command {
	return cluster.List[nodeRow]{What: "nodes", Read: readNodes, Name: func(r *nodeRow) string { return "node/" + r.Name }, Print: printNodes}.
		Make(&cobra.Command{Use: "node", Short: "Show nodes and their cards", Example: "  elastic top node"}, flags)
}

// readNodes counts the cards that running pods hold; parts of cards count as
// the cards they are on, once the GPU scheduler has chosen those.
func readNodes(ctx context.Context, c *cluster.Client) ([]nodeRow, error) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
	}
	if err := c.List(ctx, pods); err != nil {
		return nil, fmt.Errorf("reading the pods: %w", err)
	}
	held, count := map[string]float64{}, map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if n := job.Cards(&pod.Spec); n > 0 {
			held[pod.Spec.NodeName] += n
			count[pod.Spec.NodeName]++
		}
	}
	rows := []nodeRow{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		cards := node.Status.Capacity["nvidia.com/gpu"]
		row := nodeRow{
			Name: node.Name, Role: "<none>", Status: "NotReady", Model: node.Labels["elasticgpu.io/gpu-model"],
			Total: cards.Value(), Allocated: int64(held[node.Name] + 0.999), Pods: count[node.Name],
		}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				row.Address = address.Address
			}
		}
		for label := range node.Labels {
			if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
				row.Role = role
			}
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				row.Status = "Ready"
			}
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}

func printNodes(s output.Writer, rows []nodeRow, wide bool) {
	t := &output.Table{Columns: []output.Column{
		{Name: "NAME", Cut: true}, {Name: "IPADDRESS"}, {Name: "ROLE"}, {Name: "STATUS", Paint: output.ByStatus}, {Name: "GPU(Total)"}, {Name: "GPU(Allocated)"},
		{Name: "MODEL", Wide: true}, {Name: "PODS", Wide: true},
	}}
	var total, allocated int64
	for _, r := range rows {
		t.Add(r.Name, r.Address, r.Role, r.Status, r.Total, r.Allocated, r.Model, r.Pods)
		total += r.Total
		allocated += r.Allocated
	}
	t.Print(s, wide)
	fmt.Fprintf(s, "\nAllocated/Total GPUs of the cluster: %d/%d\n", allocated, total)
}
