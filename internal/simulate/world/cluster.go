package world

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// Cluster is what jobs run on: queues and nodes, and the rules by which they are shared.
type Cluster struct {
	Options   admission.Options // without a Placer: Run makes one
	Placement string            // policy of the placement engine; empty: its default
	LastPod   string            // policy for the last pod of a gang, if it is smaller than the others; empty: the same
	Cards     string            // resource that counts cards
	Flavors   []admission.Flavor
	Cohorts   []admission.Cohort
	Queues    []admission.Queue
	Nodes     []Node
	// Topologies that flavors name.
	Topologies []*kueue.Topology
	// Aliases are other names of queues: those of their LocalQueues.
	Aliases map[string]string
	// Ambiguous are the LocalQueues of a name that stands for several ClusterQueues.
	Ambiguous map[string][]string
	// LocalQueues that jobs may name.
	LocalQueues []admission.LocalQueue
	// Policies are the queues that each QueuePolicy is about, and Targets what it names.
	Policies map[string][]string
	Targets  map[string][]queuepolicy.TargetRef
	// QueuePolicies say which quotas follow nodes and hours, and how long jobs are taken to run; what else they say is in the
	// queues already. QuotaRecords are what elastic-queue stored of quotas that follow nodes, by ClusterQueue.
	QueuePolicies []*queuepolicy.QueuePolicy
	QuotaRecords  map[string]string
	// Budgets and Reservations of policies, and what was used of budgets before, by LocalQueue.
	Budgets      []policy.Budget
	Reservations []policy.Reservation
	Accounts     map[types.NamespacedName]Account
	// Start is when second 0 of the trace is, for calendars; zero: a Monday, the first of a month.
	Start time.Time
	// Running and Waiting are the jobs that are there now, and Pods those that are in no queue.
	Running, Waiting []Job
	// Ended are workloads that have ended, from which run times are learned.
	Ended []*kueue.Workload
	Pods  []*corev1.Pod
	// PerHour is what a card costs in an hour, by model or label, KEY=VALUE; SpotPrice for spot nodes, "" for every other.
	PerHour map[string]float64
	// said is what --set says in place of QueuePolicies, by queue and field.
	said map[string]map[string]string
	// faults of this cluster, beside those of the settings.
	faults []func(*Faults)
	// nodesBefore is how many nodes there were before --set changed that; 0: nothing did.
	nodesBefore int
	// strict is whether queues declare StrictFIFO, whatever backfill makes of it; those are not there that never had backfill.
	strict map[string]bool
	// ofAllNodes is the queue that has quota for all nodes, whatever they are; "": none has.
	ofAllNodes string
	// notes are what was taken to be so that nobody said.
	notes []string
}

// Node of a cluster. Where no node says how much CPU or memory it has, pods ask for none; where one does, those that do not
// have none.
type Node struct {
	Name        string
	Cards       int
	Model       string
	CPU, Memory int64 // thousandths, bytes
	Labels      map[string]string
	Taints      []corev1.Taint
	New         bool // it is not there yet when the simulation begins, if there is a stock-out then
}

// CardResource is how Kubernetes counts whole cards.
const CardResource = string(egpu.ResourceWhole)

// partitionLabel names the queue whose nodes they are, where each queue has its own.
const partitionLabel = "simulate.elasticai.io/queue"

// Share is a queue's nodes, as a file of shapes has them.
type Share struct {
	Queue string
	Nodes int
	Cards int // of each node
}

// ReadShape reads a CSV file of queues with their nodes: queue,nodes,gpus_per_node. Another column may hold the number
// of nodes.
func ReadShape(path, column string) ([]Share, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var shares []Share
	column = cmp.Or(column, "nodes")
	known := map[string]bool{}
	err = readTable(f, path, []string{"queue", column, "gpus_per_node"}, func(l *line) {
		queue := l.name("queue")
		if known[queue] {
			l.fail("queue", "%s is there already", queue)
		}
		known[queue] = true
		shares = append(shares, Share{
			Queue: queue, Nodes: int(l.number(column, true, 1_000_000)), Cards: int(l.number("gpus_per_node", true, 1024)),
		})
	})
	if err == nil && len(shares) == 0 {
		err = fmt.Errorf("%s: no queue in it", path)
	}
	return shares, err
}

// Partitions gives each queue its own nodes and nobody else's: no borrowing.
func Partitions(shares []Share) *Cluster {
	c := &Cluster{Cards: CardResource}
	for _, s := range shares {
		labels := map[string]string{partitionLabel: s.Queue}
		c.Flavors = append(c.Flavors, admission.Flavor{Name: s.Queue, NodeLabels: labels})
		c.Queues = append(c.Queues, c.newQueue(s.Queue, s.Queue, int64(s.Nodes*s.Cards)))
		c.addNodes(s.Nodes, Node{Cards: s.Cards, Labels: labels}, s.Queue+"-")
	}
	return c
}

// Pool puts all nodes into one cohort in which queues borrow from each other.
func Pool(shares []Share) *Cluster {
	c := &Cluster{Cards: CardResource, Flavors: []admission.Flavor{{Name: "default"}}, Cohorts: []admission.Cohort{{Name: "all"}}}
	for _, s := range shares {
		q := c.newQueue(s.Queue, "default", int64(s.Nodes*s.Cards))
		q.Cohort = "all"
		q.Preemption.ReclaimWithinCohort = admission.PreemptAny
		c.Queues = append(c.Queues, q)
		c.addNodes(s.Nodes, Node{Cards: s.Cards}, s.Queue+"-")
	}
	return c
}

// ParseNodes reads a shape as "elastic up" takes it: "4x8:H100-80G,8x4:A100-40G". All nodes belong to one queue.
func ParseNodes(shape, queue string) (*Cluster, error) {
	c := &Cluster{Cards: CardResource, Flavors: []admission.Flavor{{Name: "default"}}, ofAllNodes: queue}
	if err := c.AddNodes(shape); err != nil {
		return nil, err
	}
	c.Queues = append(c.Queues, c.newQueue(queue, "default", c.TotalCards()))
	return c, nil
}

// addNodes like one, under names of their own.
func (c *Cluster) addNodes(count int, like Node, prefix string) {
	taken := map[string]bool{}
	for i := range c.Nodes {
		taken[c.Nodes[i].Name] = true
	}
	for number := len(c.Nodes); count > 0; number++ {
		if name := fmt.Sprintf("%s%05d", prefix, number); !taken[name] {
			like.Name = name
			c.Nodes = append(c.Nodes, like)
			count--
		}
	}
}

func (c *Cluster) newQueue(name, flavor string, cards int64) admission.Queue {
	return admission.Queue{
		Name: name, NamespaceSelector: &admission.Term{},
		Groups: []admission.ResourceGroup{{Resources: []string{c.Cards}, Flavors: []admission.FlavorQuotas{{
			Flavor: flavor, Quotas: map[string]admission.Quota{c.Cards: {Nominal: cards}},
		}}}},
	}
}

// TotalCards of all nodes.
func (c *Cluster) TotalCards() int64 {
	var sum int64
	for i := range c.Nodes {
		sum += int64(c.Nodes[i].Cards)
	}
	return sum
}

// Has says whether the cluster has a queue of that name.
func (c *Cluster) Has(queue string) bool {
	return slices.ContainsFunc(c.Queues, func(q admission.Queue) bool { return q.Name == queue })
}

// Missing are queues of a trace that the cluster does not have.
func (c *Cluster) Missing(t *Trace) []string {
	return slices.DeleteFunc(t.Queues(), c.Has)
}

// Second of the trace that a time is.
func (c *Cluster) Second(at time.Time) int64 { return int64(at.Sub(c.begins()) / time.Second) }

// begins is second 0.
func (c *Cluster) begins() time.Time {
	if c.Start.IsZero() {
		return epoch
	}
	return c.Start.UTC().Truncate(time.Second)
}

// localQueue by its name, with its namespace or without; nil: there is none.
func (c *Cluster) localQueue(name string) *admission.Key {
	for i := range c.LocalQueues {
		if key := &c.LocalQueues[i].Key; key.String() == name || key.Name == name && c.LocalQueues[i].Queue == c.Aliases[name] {
			return key
		}
	}
	return nil
}

// clone is a copy whose settings may be changed apart.
func (c *Cluster) clone() *Cluster {
	out := *c
	out.Flavors, out.Cohorts = slices.Clone(c.Flavors), slices.Clone(c.Cohorts)
	out.Nodes, out.notes = slices.Clone(c.Nodes), slices.Clone(c.notes)
	out.QueuePolicies = slices.Clone(c.QueuePolicies)
	out.Budgets, out.Reservations = slices.Clone(c.Budgets), slices.Clone(c.Reservations)
	out.Queues = slices.Clone(c.Queues)
	out.strict = maps.Clone(c.strict)
	if out.strict == nil {
		out.strict = map[string]bool{}
	}
	out.said = map[string]map[string]string{}
	for queue, values := range c.said {
		out.said[queue] = maps.Clone(values)
	}
	for i := range out.Queues {
		out.Queues[i].Groups = cloneGroups(out.Queues[i].Groups)
	}
	for i := range out.Cohorts {
		out.Cohorts[i].Groups = cloneGroups(out.Cohorts[i].Groups)
	}
	return &out
}

func cloneGroups(in []admission.ResourceGroup) []admission.ResourceGroup {
	out := slices.Clone(in)
	for i := range out {
		out[i].Flavors = slices.Clone(out[i].Flavors)
		for j := range out[i].Flavors {
			quotas := make(map[string]admission.Quota, len(out[i].Flavors[j].Quotas))
			for name, q := range out[i].Flavors[j].Quotas {
				quotas[name] = q
			}
			out[i].Flavors[j].Quotas = quotas
		}
	}
	return out
}

// productLabel is where NVIDIA's operator says which model cards are.
const productLabel = "nvidia.com/gpu.product"

// label of the node, as its object has it.
func (n *Node) label(key string) (string, bool) {
	switch value, has := n.Labels[key]; {
	case has:
		return value, true
	case key == corev1.LabelHostname:
		return n.Name, true
	case key == egpu.ModelLabel && n.Model != "":
		return n.Model, true
	}
	return "", false
}

func (n *Node) hasLabels(labels map[string]string) bool {
	for key, want := range labels {
		if value, has := n.label(key); !has || value != want {
			return false
		}
	}
	return true
}

// takes pods of a flavor: it has its labels, and they tolerate its taints.
func (n *Node) takes(f *admission.Flavor) bool {
	return n.hasLabels(f.NodeLabels) && !slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
		taint := admission.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
		return taint.Binds() && !taint.ToleratedBy(f.Tolerations)
	})
}

// object is the node as the API server would show it.
func (n *Node) object(ready bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name}}}
	for key, value := range n.Labels {
		node.Labels[key] = value
	}
	if n.Model != "" && n.Model != n.Labels[productLabel] {
		node.Labels[egpu.ModelLabel] = n.Model
	}
	node.Spec.Taints = n.Taints
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if !ready {
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
	}
	node.Status.Allocatable = corev1.ResourceList{egpu.ResourceWhole: *resource.NewQuantity(int64(n.Cards), resource.DecimalSI)}
	if n.CPU > 0 {
		node.Status.Allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(n.CPU, resource.DecimalSI)
	}
	if n.Memory > 0 {
		node.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(n.Memory, resource.BinarySI)
	}
	return node
}

// check what makes no sense to simulate.
func (c *Cluster) check() error {
	switch {
	case len(c.Queues) == 0:
		return errors.New("the cluster has no queue")
	case c.TotalCards() == 0:
		return errors.New("the cluster has no cards")
	}
	return nil
}

// Helios is the cluster under the rules of the Helios replay (Hu et al., SC '21): the head of a queue blocks, a pod
// takes the fullest node that has its cards, and the last pod of a gang over several nodes the emptiest.
func (c *Cluster) Helios() *Cluster {
	out := c.clone()
	out.Placement, out.LastPod = "binpack", "spread"
	for i := range out.Queues {
		out.Queues[i].StrictFIFO = true
	}
	return out
}

// LeastAttainedService is the cluster with queues that order by service, and preempt within themselves.
func (c *Cluster) LeastAttainedService() *Cluster {
	out := c.clone()
	for i := range out.Queues {
		out.Queues[i].Order = admission.OrderLeastAttainedService
		out.Queues[i].Preemption.WithinQueue = admission.PreemptLowerPriority
	}
	return out
}
