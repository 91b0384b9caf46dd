package world

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/admission"
)

// AddNodes adds nodes of a shape, COUNTxCARDS:MODEL[@WHERE] with commas between. They are like the nodes that are there of
// their model, or where they are to be: a queue's, a flavor's, or those with a label, KEY=VALUE.
func (c *Cluster) AddNodes(shape string) error { return c.addLike(c.Nodes, shape) }

// ReplaceNodes puts nodes of a shape in the place of those that are there, and like them.
func (c *Cluster) ReplaceNodes(shape string) error {
	others := c.Nodes
	c.Nodes, c.Running, c.Pods = nil, nil, nil // what runs now does not run on these, and what waits can
	return c.addLike(others, shape)
}

func (c *Cluster) addLike(others []Node, shape string) error {
	for word := range strings.SplitSeq(shape, ",") {
		kind, err := c.kindOf(others, strings.TrimSpace(word))
		if err != nil {
			return err
		}
		c.addNodes(kind.count, kind.like(others), "node-")
		for i := len(c.Nodes) - kind.count; i < len(c.Nodes) && c.asksOfNodes(); i++ {
			c.takeAsOthers(&c.Nodes[i], kind, others)
		}
	}
	return nil
}

// asksOfNodes says whether pods ask nodes for CPU or memory.
func (c *Cluster) asksOfNodes() bool {
	return slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.CPU+n.Memory > 0 })
}

// takeAsOthers gives a node that does not say how much CPU and memory it has as much for each card as another one has: with
// none no pod could start there.
func (c *Cluster) takeAsOthers(n *Node, kind *nodeKind, others []Node) {
	if example := kind.withCPU(others); n.CPU+n.Memory == 0 && example != nil {
		n.hasAs(example)
		c.Note(fmt.Sprintf("new nodes of %d cards are taken to have as much CPU and memory for each card as %s has", n.Cards, example.Name))
	}
}

// hasAs gives a node the CPU and memory of another one, by their cards.
func (n *Node) hasAs(example *Node) {
	n.CPU, n.Memory = example.CPU, example.Memory
	if example.Cards > 0 && example.Cards != n.Cards {
		n.CPU, n.Memory = n.CPU*int64(n.Cards)/int64(example.Cards), n.Memory/int64(example.Cards)*int64(n.Cards)
	}
}

// more nodes, from the beginning or once a stock-out ends.
func (c *Cluster) more(shape string) error {
	return c.quotaOfAll(func() error {
		before := len(c.Nodes)
		err := c.AddNodes(shape)
		for i := before; i < len(c.Nodes); i++ {
			c.Nodes[i].New = true
		}
		return err
	})
}

// fewer nodes: the last ones of a shape on which nothing runs when the simulation begins.
func (c *Cluster) fewer(shape string) error {
	kind, err := c.kindOf(c.Nodes, shape)
	if err != nil {
		return err
	}
	busy := map[string]bool{}
	for i := range c.Running {
		for _, on := range c.Running[i].Found.on {
			busy[on.node] = true
		}
	}
	for _, pod := range c.Pods {
		busy[pod.Spec.NodeName] = true
	}
	return c.quotaOfAll(func() error {
		for range kind.count {
			at := -1
			for i := range c.Nodes {
				if has := &c.Nodes[i]; has.Cards == kind.cards && has.matches(kind.model) && has.hasLabels(kind.labels) && !busy[has.Name] {
					at = i
				}
			}
			if at < 0 {
				return fmt.Errorf("-%s: there are not so many nodes of that kind on which nothing runs now", shape)
			}
			c.Nodes = slices.Delete(c.Nodes, at, at+1)
		}
		return nil
	})
}

// quotaOfAll changes nodes. A queue that is made for all nodes has quota for all of them then, too, unless its quota was
// set to another one.
func (c *Cluster) quotaOfAll(change func() error) error {
	before := c.TotalCards()
	if err := change(); err != nil {
		return err
	}
	for i := range c.Queues {
		if q := &c.Queues[i]; q.Name == c.ofAllNodes && nominalOf(q.Groups, c.Cards) == before {
			q.Groups[0].Flavors[0].Quotas[c.Cards] = admission.Quota{Nominal: c.TotalCards()}
		}
	}
	return nil
}

// nodeKind is nodes as a word of a shape has them.
type nodeKind struct {
	count, cards int
	model        string
	where        string            // as it was written
	labels       map[string]string // of nodes that are there
	taints       []corev1.Taint
}

// kindOf reads COUNTxCARDS:MODEL[@WHERE].
func (c *Cluster) kindOf(others []Node, word string) (*nodeKind, error) {
	shape, where, _ := strings.Cut(word, "@")
	count, rest, ok := strings.Cut(shape, "x")
	cards, model, _ := strings.Cut(rest, ":")
	n, err1 := strconv.Atoi(count)
	k, err2 := strconv.Atoi(cards)
	if !ok || err1 != nil || err2 != nil || n < 0 || n > 1_000_000 || k < 0 || k > 1024 {
		return nil, fmt.Errorf("nodes %q: want COUNTxCARDS:MODEL, as in 4x8:H100-80G", word)
	}
	kind := &nodeKind{count: n, cards: k, model: model, where: where}
	key, value, labelled := strings.Cut(where, "=")
	switch flavor := c.flavorOf(where, model, others); {
	case where == "":
	case labelled:
		kind.labels = map[string]string{key: value}
	case flavor == nil:
		return nil, fmt.Errorf("%s: there is no queue %s, nor a flavor", word, where)
	default:
		kind.labels = flavor.NodeLabels
		for _, t := range flavor.NodeTaints {
			kind.taints = append(kind.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
		}
	}
	return kind, nil
}

// flavorOf is a flavor by its name, or the one in which a queue has cards: of its flavors the first that has nodes of this
// model, or else the first.
func (c *Cluster) flavorOf(name, model string, others []Node) *admission.Flavor {
	var first *admission.Flavor
	at := slices.IndexFunc(c.Queues, func(q admission.Queue) bool { return q.Name == name })
	for i := range c.Flavors {
		f := &c.Flavors[i]
		if at < 0 && f.Name == name {
			return f
		}
		if at < 0 || !hasCards(c.Queues[at].Groups, f.Name, c.Cards) {
			continue
		}
		if slices.ContainsFunc(others, func(n Node) bool { return n.matches(model) && n.takes(f) }) {
			return f
		}
		if first == nil {
			first = f
		}
	}
	return first
}

// hasCards says whether groups have quota for cards in a flavor, if only of 0: it may be borrowed.
func hasCards(groups []admission.ResourceGroup, flavor, cards string) bool {
	return slices.ContainsFunc(groups, func(g admission.ResourceGroup) bool {
		return slices.ContainsFunc(g.Flavors, func(f admission.FlavorQuotas) bool {
			_, has := f.Quotas[cards]
			return has && f.Flavor == flavor
		})
	})
}

// like is a node of the kind with the labels and taints, and by its cards the CPU and memory, of one that is there. Of a model
// of which there is none it has the labels of where it is to be.
func (k *nodeKind) like(others []Node) Node {
	out := Node{Cards: k.cards, Model: k.model, Labels: k.labels, Taints: k.taints}
	if example := k.example(others); example != nil {
		out.Model, out.Labels, out.Taints = example.Model, maps.Clone(example.Labels), nil
		delete(out.Labels, corev1.LabelHostname)
		for _, t := range example.Taints {
			if !strings.Contains(t.Key, "kubernetes.io/") { // those are of the node's state
				out.Taints = append(out.Taints, t)
			}
		}
		out.hasAs(example)
	}
	return out
}

// example is a node that is there of the kind, if possible with as many cards; nil for none. Where neither a model nor a place is
// said, it is one with as many cards, if all of those have the same labels.
func (k *nodeKind) example(others []Node) *Node {
	var found *Node
	for i := range others {
		n := &others[i]
		if !n.matches(k.model) || !n.hasLabels(k.labels) {
			continue
		}
		if anywhere := k.model == "" && k.where == ""; anywhere && n.Cards != k.cards {
			continue
		} else if anywhere && found != nil && !sameKind(found, n) {
			return nil
		}
		if found == nil || found.Cards != k.cards && n.Cards == k.cards {
			found = n
		}
	}
	return found
}

// withCPU is a node that has cards and says how much CPU or memory it has, if possible where the kind is to be; nil for none.
func (k *nodeKind) withCPU(others []Node) *Node {
	var found *Node
	for i := range others {
		n := &others[i]
		if n.Cards > 0 && n.CPU+n.Memory > 0 && (found == nil || !found.hasLabels(k.labels) && n.hasLabels(k.labels)) {
			found = n
		}
	}
	return found
}

// sameKind says whether two nodes have the same labels but for their names.
func sameKind(a, b *Node) bool {
	if a.Model != b.Model || len(a.Labels) != len(b.Labels) {
		return false
	}
	for key, value := range a.Labels {
		if has, ok := b.Labels[key]; !ok || has != value && key != corev1.LabelHostname {
			return false
		}
	}
	return true
}
