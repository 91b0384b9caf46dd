package inventory

import (
	"iter"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Nodes are a cluster's nodes with their GPU objects, as its watches report them. Objects may come in any
// order. It is for one goroutine.
type Nodes struct {
	describe func(*corev1.Node, map[string]*egpu.GPU) placement.Node
	entries  map[string]*Entry
	gpuNode  map[string]string // GPU object to node
}

// Entry is one node.
type Entry struct {
	Node *corev1.Node // nil where only GPU objects name it
	GPUs map[string]*egpu.GPU
	// Applied is the description that the engine has; nil where it has none.
	Applied *placement.Node
}

// NewNodes knows none yet. describe says what the engine has to know of a node.
func NewNodes(describe func(*corev1.Node, map[string]*egpu.GPU) placement.Node) *Nodes {
	return &Nodes{describe: describe, entries: map[string]*Entry{}, gpuNode: map[string]string{}}
}

// Len is how many nodes there are.
func (n *Nodes) Len() int { return len(n.entries) }

// All entries, in no order.
func (n *Nodes) All() iter.Seq[*Entry] { return maps.Values(n.entries) }

// Get the entry of a node; nil where nothing is known of it.
func (n *Nodes) Get(name string) *Entry { return n.entries[name] }

// Object is the Node object; nil where there is none.
func (n *Nodes) Object(name string) *corev1.Node {
	if e := n.entries[name]; e != nil {
		return e.Node
	}
	return nil
}

// NodeOf is the node that a GPU object names.
func (n *Nodes) NodeOf(gpu string) (node string, known bool) {
	node, known = n.gpuNode[gpu]
	return node, known
}

// SetNode takes in a Node object that changed or is gone.
func (n *Nodes) SetNode(node *corev1.Node, gone bool) {
	e := n.entry(node.Name)
	if e.Node = node; gone {
		e.Node = nil
	}
}

// SetGPU takes in a GPU object that changed or is gone. It returns the node that the object left and the
// one that it is on now; either may be empty.
func (n *Nodes) SetGPU(gpu *egpu.GPU, gone bool) (left, on string) {
	if old, known := n.gpuNode[gpu.Name]; known && (gone || old != gpu.Spec.NodeName) {
		left = old
		delete(n.entry(old).GPUs, gpu.Name)
		delete(n.gpuNode, gpu.Name)
	}
	if gone || gpu.Spec.NodeName == "" {
		return left, ""
	}
	n.entry(gpu.Spec.NodeName).GPUs[gpu.Name] = gpu
	n.gpuNode[gpu.Name] = gpu.Spec.NodeName
	return left, gpu.Spec.NodeName
}

func (n *Nodes) entry(name string) *Entry {
	e := n.entries[name]
	if e == nil {
		e = &Entry{GPUs: map[string]*egpu.GPU{}}
		n.entries[name] = e
	}
	return e
}

// Describe a node that SetNode or SetGPU changed. now is nil where the node is gone, and changed is false
// where the engine has this very description: kubelets write much that changes nothing here. The caller
// sets Applied once the engine has taken it.
func (n *Nodes) Describe(name string) (e *Entry, now *placement.Node, changed bool) {
	e = n.entry(name)
	if e.Node == nil {
		if len(e.GPUs) == 0 {
			delete(n.entries, name)
		}
		return e, nil, e.Applied != nil
	}
	described := n.describe(e.Node, e.GPUs)
	return e, &described, e.Applied == nil || !reflect.DeepEqual(*e.Applied, described)
}
