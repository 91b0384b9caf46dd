package queues

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/cli/cluster"
	"github.com/elastic-ai/elastic/internal/cli/output"
)

// Node is a cohort or a queue in the tree, with one resource's amounts summed
// over flavors and everything below.
type Node struct {
	Name     string  `json:"name"`
	Queue    bool    `json:"queue"`
	Nominal  int64   `json:"nominal"`
	Used     int64   `json:"used"`
	Borrowed int64   `json:"borrowed"` // by it, or by queues below it
	Idle     int64   `json:"idle"`     // of its own, which others may use
	Share    int64   `json:"share"`
	Below    []*Node `json:"below,omitempty"`
}

func cohortCommand(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "cohort", Aliases: []string{"cohorts"}, Short: "Show the tree of cohorts"}
	cmd.AddCommand(treeCommand(flags))
	return cmd
}

func treeCommand(flags *cluster.Flags) *cobra.Command {
	var name string
	var printer output.Printer
	cmd := &cobra.Command{
		Use: "tree", Short: "Show cohorts and their queues as a tree, with bars of what is used",
		Example: "  elastic cohort tree\n  elastic cohort tree --resource cpu",
		Args:    cobra.NoArgs,
		RunE: flags.RunE(func(cmd *cobra.Command, c *cluster.Client, _ []string) error {
			queues, cohorts := &kueue.ClusterQueueList{}, &kueue.CohortList{}
			if err := c.List(cmd.Context(), queues); err != nil {
				return err
			}
			if err := c.List(cmd.Context(), cohorts); err != nil {
				return err
			}
			roots := Tree(queues.Items, cohorts.Items, corev1.ResourceName(name))
			return printer.Print(cmd.OutOrStdout(), roots, names(roots), func(s output.Writer, _ bool) {
				fmt.Fprintln(s, name)
				printTree(s, roots, corev1.ResourceName(name))
			})
		}),
	}
	cmd.Flags().StringVar(&name, "resource", "nvidia.com/gpu", "the resource to show")
	printer.AddTo(cmd)
	return cmd
}

// Tree hangs queues below cohorts and sums one resource up.
func Tree(queues []kueue.ClusterQueue, cohorts []kueue.Cohort, name corev1.ResourceName) []*Node {
	nodes, parents := map[string]*Node{}, map[string]string{}
	cohort := func(name string) *Node {
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name}
		}
		return nodes[name]
	}
	for i := range cohorts {
		n := cohort(cohorts[i].Name)
		parents[n.Name] = string(cohorts[i].Spec.ParentName)
		for _, group := range cohorts[i].Spec.ResourceGroups {
			n.Nominal += nominal(group, name)
		}
		if cohorts[i].Status.FairSharing != nil {
			n.Share = cohorts[i].Status.FairSharing.WeightedShare
		}
	}
	var roots []*Node
	for i := range queues {
		q := leaf(&queues[i], name)
		if parent := string(queues[i].Spec.CohortName); parent != "" {
			n := cohort(parent)
			n.Below = append(n.Below, q)
		} else {
			roots = append(roots, q)
		}
	}
	for name, n := range nodes {
		if parent := parents[name]; parent != "" && parent != name {
			above := cohort(parent)
			above.Below = append(above.Below, n)
		}
	}
	for name, n := range nodes {
		if parents[name] == "" {
			roots = append(roots, n)
		}
	}
	byName(roots)
	for _, n := range roots {
		n.sum()
	}
	return roots
}

// names of the tree's objects, from the top.
func names(list []*Node) []string {
	var out []string
	for _, n := range list {
		kind := "cohort/"
		if n.Queue {
			kind = "clusterqueue/"
		}
		out = append(append(out, kind+n.Name), names(n.Below)...)
	}
	return out
}

func byName(list []*Node) {
	slices.SortFunc(list, func(a, b *Node) int {
		if a.Queue != b.Queue {
			return cmp.Compare(btoi(a.Queue), btoi(b.Queue)) // cohorts first
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (n *Node) sum() {
	byName(n.Below)
	for _, below := range n.Below {
		below.sum()
		n.Nominal += below.Nominal
		n.Used += below.Used
		n.Borrowed += below.Borrowed
	}
	n.Idle = max(0, n.Nominal-n.Used)
}

func leaf(cq *kueue.ClusterQueue, name corev1.ResourceName) *Node {
	n := &Node{Name: cq.Name, Queue: true}
	for _, group := range cq.Spec.ResourceGroups {
		n.Nominal += nominal(group, name)
		for _, flavor := range group.Flavors {
			used, borrowed := Usage(cq, flavor.Name, name)
			n.Used += value(name, used)
			n.Borrowed += value(name, borrowed)
		}
	}
	if cq.Status.FairSharing != nil {
		n.Share = cq.Status.FairSharing.WeightedShare
	}
	return n
}

func nominal(group kueue.ResourceGroup, name corev1.ResourceName) (total int64) {
	for _, flavor := range group.Flavors {
		for _, r := range flavor.Resources {
			if r.Name == name {
				total += value(name, r.NominalQuota)
			}
		}
	}
	return total
}

// value of cpu is in thousandths.
func value(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func printTree(w io.Writer, roots []*Node, name corev1.ResourceName) {
	type line struct {
		label string
		node  *Node
	}
	var lines []line
	width := 0
	var walk func(list []*Node, indent string, top bool)
	walk = func(list []*Node, indent string, top bool) {
		for i, n := range list {
			branch, below := "├─ ", "│  "
			if i == len(list)-1 {
				branch, below = "└─ ", "   "
			}
			if top {
				branch, below = "", ""
			}
			lines = append(lines, line{indent + branch + n.Name, n})
			width = max(width, len([]rune(indent+branch+n.Name)))
			walk(n.Below, indent+below, false)
		}
	}
	walk(roots, "", true)
	for _, l := range lines {
		n := l.node
		text := fmt.Sprintf("%s%s  %s %s of %s", l.label, strings.Repeat(" ", width-len([]rune(l.label))), bar(n), show(name, n.Used), show(name, n.Nominal))
		if n.Borrowed > 0 {
			verb := "borrowed"
			if !n.Queue {
				verb = "lent to each other"
			}
			text += fmt.Sprintf(", %s %s", show(name, n.Borrowed), verb)
		}
		if n.Idle > 0 {
			text += fmt.Sprintf(", %s idle", show(name, n.Idle))
		}
		if n.Share > 0 {
			text += fmt.Sprintf(", share %d", n.Share)
		}
		fmt.Fprintln(w, text)
	}
}

func show(name corev1.ResourceName, v int64) string {
	if name == corev1.ResourceCPU {
		return resource.NewMilliQuantity(v, resource.DecimalSI).String()
	}
	if name == corev1.ResourceMemory {
		return resource.NewQuantity(v, resource.BinarySI).String()
	}
	return fmt.Sprint(v)
}

// bar of what is used of its own (#), borrowed on top (+), and idle (.).
func bar(n *Node) string {
	const size = 20
	most := max(n.Nominal, n.Used, 1)
	own := int(min(n.Used, n.Nominal) * size / most)
	over := int(n.Used*size/most) - own
	return "[" + strings.Repeat("#", own) + strings.Repeat("+", over) + strings.Repeat(".", size-own-over) + "]"
}

func flavorCommand(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "flavor", Aliases: []string{"flavors"}, Short: "Show flavors: kinds of nodes that quota is of"}
	cmd.AddCommand(cluster.List[Flavor]{
		What: "flavors", Read: ReadFlavors, Name: func(f *Flavor) string { return "resourceflavor/" + f.Name },
		Print: func(s output.Writer, all []Flavor, wide bool) { flavorTable(all).Print(s, wide) },
	}.Make(&cobra.Command{Use: "list", Short: "Show flavors, their nodes and the queues that have them", Example: "  elastic flavor list"}, flags))
	return cmd
}
